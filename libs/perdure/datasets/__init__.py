"""Data sets: formats, findings, manifest, split, local cache, and the one image decoder."""
