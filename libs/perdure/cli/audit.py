"""perdure audit: replay, events, verify, reconcile, dead-letters."""

from typing import Annotated, Final

import typer

from perdure.cli import dead_letters
from perdure.cli.events import event_line
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import AsJson, print_json, print_table, say
from perdure.cli.server import connect
from perdure.cli.task import TaskId, print_task
from perdure.client import Reconciliation
from perdure.domain.reconciliation import EXPLAINED, Category

app = typer.Typer(help="Ask the event log what happened.", no_args_is_help=True)
app.add_typer(dead_letters.app, name="dead-letters")

_WIDTH: Final = max(map(len, Category))
_CATEGORIES: Final = "\n".join(f"  {name:<{_WIDTH}}  {EXPLAINED[name]}" for name in Category)
_RECONCILE_EPILOG: Final = f"""\b
What is found is one of these:
{_CATEGORIES}

\b
Exit codes: 0 nothing, or only what is owed; 1 something else was found;
3 nothing else was found, but not all could be checked: try again.
"""


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
    with connect() as client:
        task = client.replay(client.find_task_id(task_id), at_version)
    if as_json:
        print_json(task.json)
    else:
        print_task(task)


@app.command()
def events(task_id: TaskId, as_json: AsJson = False) -> None:
    """List a task's events as they stand in the log."""
    with connect() as client:
        found = list(client.events(client.find_task_id(task_id)))
    if as_json:
        print_json(found)
        return
    print_table(
        ("POSITION", "VERSION", "TIME", "TYPE", "WHAT"),
        (
            (event["position"], event["version"], event["time"], event["type"], event_line(event))
            for event in found
        ),
        empty="",
    )


@app.command()
def verify(as_json: AsJson = False) -> None:
    """Check that the log is complete, in order, and unchanged."""
    with connect() as client:
        verification = client.verify()
    if as_json:
        print_json(verification.json)
    else:
        say(f"complete {verification.first}..{verification.last}")
        say(f"head {verification.head}")


@app.command(epilog=_RECONCILE_EPILOG)
def reconcile(as_json: AsJson = False) -> None:
    """Hold the log against the relay, the broker, the dead letters and the read models, and name
    what is lost, duplicated or parked.
    """
    with connect() as client:
        found = client.reconcile()
    if as_json:
        print_json(found.json)
    else:
        _print_found(found)
    if not found.ok:
        raise typer.Exit(_verdict(found))


def _verdict(found: Reconciliation) -> ExitCode:
    """What is not all right, when something is not: a finding weighs more than a gap."""
    harmless = (Category.OWED, Category.UNCHECKED)
    if any(count for category, count in found.counts.items() if category not in harmless):
        return ExitCode.NEGATIVE
    return ExitCode.UNAVAILABLE


def _print_found(found: Reconciliation) -> None:
    log = found.json["log"]
    say(
        f"events {log['events']}, published up to {log['published']}; tasks {log['tasks']}, "
        f"ended {log['tasks_ended']}; dead letters {log['dead_letters']}"
    )
    for category in Category:
        say(f"{category:<{_WIDTH}} {found.counts.get(category, 0):>3}  {EXPLAINED[category]}")
    for finding in found.findings:
        # Errors may run over many lines; a finding is one.
        told = " ".join(finding.detail.split()) or f"{finding.kind} {finding.subject}"
        unchecked = finding.category == Category.UNCHECKED
        say(f"{'could not check' if unchecked else finding.category}: {told}; {finding.advice}")
    if found.json["not_listed"]:
        say(f"and {found.json['not_listed']} more of the same kinds")
