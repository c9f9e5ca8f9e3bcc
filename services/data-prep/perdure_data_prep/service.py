"""`perdure service data-prep`."""

from typing import NoReturn

from perdure.runtime import host
from perdure_data_prep.bootstrap import assemble
from perdure_data_prep.settings import NAME, DataPrepSettings


def serve() -> NoReturn:
    """Run the worker until it is told to stop."""
    host.serve(NAME, DataPrepSettings, assemble)
