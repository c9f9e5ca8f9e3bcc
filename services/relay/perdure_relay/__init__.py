"""The relay: from the log to the broker, in order, confirmed."""
