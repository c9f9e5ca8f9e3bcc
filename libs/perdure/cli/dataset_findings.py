"""perdure dataset findings: what the server found in a data set that was sent to it."""

from collections.abc import Callable
from typing import Annotated

import typer

from perdure.cli.findings import SHOWN_PER_CODE
from perdure.cli.output import AsJson, complain_line, print_json_text, say
from perdure.cli.server import connect
from perdure.client import Client
from perdure.client.records import Json
from perdure.datasets.findings import Finding, Findings, Severity
from perdure.datasets.findings_document import document
from perdure.datasets.report import count_findings, describe_findings
from perdure.errors import PerdureError


def show_findings(
    task_id: Annotated[
        str, typer.Argument(metavar="TASK", help="The task that imported it, or its beginning.")
    ],
    as_json: AsJson = False,
) -> None:
    """List what was found in the data set of a task, whether it was refused or imported."""
    with connect() as client:
        full_id = client.find_task_id(task_id)
        head: Json = {"task_id": full_id}
        findings = _fetched(client, full_id, head.update)
    if as_json:
        print_json_text(document(head, findings))
        return
    for line in describe_findings(findings, shown=SHOWN_PER_CODE, more=" (all of them: --json)"):
        say(line)
    say(count_findings(findings))


def complain_findings(task_id: str) -> None:
    """Say on standard error, grouped, why the server refused a task's data set; or why that cannot
    be said.
    """
    try:
        with connect() as client:
            findings = _fetched(client, task_id)
    except PerdureError as error:
        complain_line(f"its findings could not be fetched: {error.message}")
    else:
        more = f" (all of them: perdure dataset findings {task_id} --json)"
        for line in describe_findings(findings, shown=SHOWN_PER_CODE, more=more):
            complain_line(line)
        complain_line(count_findings(findings))


def _fetched(
    client: Client, task_id: str, on_head: Callable[[Json], object] | None = None
) -> Findings:
    findings = Findings()
    for form in client.findings(task_id, on_head):
        findings.take(Finding(**(form | {"severity": Severity(form["severity"])})))
    return findings
