"""The contract between Perdure's parts: events and messages from proto/, and the envelope they
travel in.
"""
