"""Perdure's servers and services on one machine, without containers: for trying, and for tests."""
