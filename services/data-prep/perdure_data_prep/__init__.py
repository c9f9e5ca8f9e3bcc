"""Data-prep: imports, checks, versions and splits data sets."""
