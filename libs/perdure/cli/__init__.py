"""The command line. It stands on the SDK; commands that bring services come in through entry
points.
"""

import sys

from perdure.cli.exit_codes import ExitCode


def main() -> None:
    """Run the command line and exit."""
    try:
        from perdure.cli.app import main as run  # takes half a second, in which Ctrl-C may come

        run()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)


__all__ = ["main"]
