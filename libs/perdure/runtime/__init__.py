"""What every service is built on: clock, ids, logging, the worker kit."""
