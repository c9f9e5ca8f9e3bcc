"""The command line. It stands on the SDK; commands that bring services come in through entry
points.
"""

from perdure.cli.app import main

__all__ = ["main"]
