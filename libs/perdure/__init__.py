"""Perdure: object-detection training that finishes, and whose result can be believed."""

__version__ = "0.1.0"
