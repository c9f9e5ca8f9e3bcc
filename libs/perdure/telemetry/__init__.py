"""What goes on, for those who watch: traces, metrics, and what each log line is about.

Nothing here is needed for the work. Switched off, it costs some microseconds a message.
"""
