"""`perdure service scheduler`."""

from typing import NoReturn

from perdure.runtime import host
from perdure_scheduler.bootstrap import assemble
from perdure_scheduler.settings import SchedulerSettings


def serve() -> NoReturn:
    """Run the scheduler until it is told to stop."""
    host.serve("scheduler", SchedulerSettings, assemble)
