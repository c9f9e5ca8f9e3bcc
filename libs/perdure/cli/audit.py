"""perdure audit: what the log says."""

from typing import Annotated

import typer

from perdure.cli.output import AsJson, print_fields, print_json, say
from perdure.cli.task import TaskId, task_fields
from perdure.client import Client

app = typer.Typer(help="Ask the event log what happened.", no_args_is_help=True)


@app.command()
def replay(
    task_id: TaskId,
    at_version: Annotated[
        int | None,
        typer.Option("--at-version", min=1, help="After so many of the task's events."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild a task's state from its events alone."""
    with Client() as client:
        task = client.replay(client.find_task_id(task_id), at_version)
    if as_json:
        print_json(task.json)
    else:
        print_fields(task_fields(task))


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Check that the log is complete, in order, and unchanged."""
    with Client() as client:
        verification = client.verify()
    if as_json:
        print_json(verification.json)
    else:
        say(f"complete {verification.first}..{verification.last}")
        say(f"head {verification.head}")
