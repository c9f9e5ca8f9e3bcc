"""What has become of processes."""

import psutil


def lives(process: psutil.Process) -> bool:
    """Whether it runs, and is not only waiting to be buried. It may end at any moment."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
