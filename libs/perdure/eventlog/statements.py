"""The SQL beside this package, one statement a file."""

from functools import cache
from importlib import resources


@cache
def statement(name: str) -> str:
    """The text of sql/`name`.sql."""
    return (resources.files("perdure.eventlog") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
