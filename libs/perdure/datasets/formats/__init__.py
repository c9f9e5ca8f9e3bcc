"""Readers of annotation formats: each gives Annotations and records findings."""
