"""perdure dataset findings: what the server found in a data set that was sent to it."""

from typing import Annotated

import typer

from perdure.cli.findings import SHOWN_PER_CODE
from perdure.cli.output import AsJson, print_json_text, say
from perdure.cli.server import connect
from perdure.datasets.findings import Finding, Findings, Severity
from perdure.datasets.findings_document import document
from perdure.datasets.report import count_findings, describe_findings


def show_findings(
    task_id: Annotated[
        str, typer.Argument(metavar="TASK", help="The task that imported it, or its beginning.")
    ],
    as_json: AsJson = False,
) -> None:
    """List what was found in the data set of a task, whether it was refused or imported."""
    findings = Findings()
    with connect() as client:
        full_id = client.find_task_id(task_id)
        for form in client.findings(full_id):
            findings.take(Finding(**(form | {"severity": Severity(form["severity"])})))
    if as_json:
        print_json_text(document({"task_id": full_id}, findings))
        return
    for line in describe_findings(findings, shown=SHOWN_PER_CODE, more=" (all of them: --json)"):
        say(line)
    say(count_findings(findings))
