"""The event log: appended once, read in order, provable."""
