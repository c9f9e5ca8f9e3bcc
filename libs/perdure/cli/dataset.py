"""perdure dataset: check, push, ls, show; the others lie beside."""

from collections.abc import Sequence
from typing import Annotated

import typer

from perdure.cli.dataset_diff import diff
from perdure.cli.dataset_export import export_dataset
from perdure.cli.dataset_findings import show_findings
from perdure.cli.dataset_probe import fetch_report, probe_dataset
from perdure.cli.findings import at_hand, checked, print_findings, refuse
from perdure.cli.import_options import (
    AllowLeakage,
    BoxFormatOption,
    DataSource,
    DropDegenerate,
    Format,
    GroupBy,
    MaxSkipped,
    SixthFieldOption,
    Version,
)
from perdure.cli.output import (
    SHORT_ID,
    AsJson,
    Limit,
    bytes_bar,
    complain_line,
    given_name,
    print_error_json,
    print_fields,
    print_json,
    print_table,
    say,
)
from perdure.cli.server import connect
from perdure.cli.watching import complain_failed, follow
from perdure.client import Dataset
from perdure.datasets.rules import DEFAULT_MAX_SKIPPED, ImportRules
from perdure.errors import TaskFailed

app = typer.Typer(help="Check and import data sets, and look at them.", no_args_is_help=True)

app.command("diff")(diff)
app.command("export")(export_dataset)
app.command("findings")(show_findings)
app.command("probe")(probe_dataset)
app.command("report")(fetch_report)


@app.command("check")
def check_dataset(
    source: DataSource,
    format_: Format = None,
    box_format: BoxFormatOption = None,
    sixth_field: SixthFieldOption = None,
    drop_degenerate: DropDegenerate = False,
    max_skipped: MaxSkipped = DEFAULT_MAX_SKIPPED,
    allow_leakage: AllowLeakage = False,
    group_by: GroupBy = "",
    as_json: AsJson = False,
) -> None:
    """Look for faults in a data set; nothing is sent anywhere."""
    rules = ImportRules(
        format_, box_format, sixth_field, drop_degenerate, max_skipped, allow_leakage, group_by
    )
    with at_hand(source, as_json=as_json) as path:
        result = checked(path, rules)
    print_findings(result, as_json=as_json)
    if not result.ok:
        raise typer.Exit(1)


@app.command()
def push(
    source: DataSource,
    name: Annotated[str, typer.Option("--name", help="The data set's name.")],
    format_: Format = None,
    box_format: BoxFormatOption = None,
    sixth_field: SixthFieldOption = None,
    drop_degenerate: DropDegenerate = False,
    max_skipped: MaxSkipped = DEFAULT_MAX_SKIPPED,
    allow_leakage: AllowLeakage = False,
    group_by: GroupBy = "",
    as_json: AsJson = False,
) -> None:
    """Check a data set, send it to the server, and import it as a version."""
    given_name(name)
    rules = ImportRules(
        format_, box_format, sixth_field, drop_degenerate, max_skipped, allow_leakage, group_by
    )
    with at_hand(source, as_json=as_json) as path:
        result = checked(path, rules)
        if not result.ok:
            refuse(result, as_json=as_json)
        with connect() as client:
            client.version()
            with bytes_bar("uploading") as on_progress:
                task = client.push_dataset(
                    path, name, rules=rules.to_json(), on_progress=on_progress
                )
    with connect() as client:  # what was fetched is not kept while the server imports
        task = follow(client, task, quiet=as_json)
        if task.status != "succeeded":
            if as_json:
                print_error_json(TaskFailed(task.why_no_result, task_id=task.id))
            complain_failed(task)
            raise typer.Exit(1)
        dataset = client.dataset(task.dataset_version)
    if as_json:
        print_json(dataset.json)
    else:
        print_fields(_fields(dataset))
    if result.manifest is not None and dataset.version != result.manifest.version:
        complain_line(
            f"this is not the version {result.manifest.version[:SHORT_ID]} that was checked here: "
            "the data set changed while it was sent, or the server is another version of Perdure. "
            "Push it again when nothing writes to it"
        )
    if dataset.name != name:
        complain_line(
            f"the same images and labels were imported before: this version is called "
            f"{dataset.name!r}, and keeps that name"
        )


@app.command("ls")
def list_datasets(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List data set versions."""
    with connect() as client:
        found = list(client.datasets(limit=limit))
    if as_json:
        print_json([dataset.json for dataset in found])
        return
    print_table(
        ("VERSION", "NAME", "CLASSES", "IMAGES", "BOXES", "IMPORTED"),
        (
            (
                dataset.version[:SHORT_ID],
                dataset.name,
                len(dataset.classes),
                dataset.images,
                dataset.boxes,
                dataset.json["imported_at"][:19],
            )
            for dataset in found
        ),
        empty="there are no data sets yet: import one with: perdure dataset push PATH --name NAME",
    )


@app.command()
def show(version: Version, as_json: AsJson = False) -> None:
    """Show one data set version."""
    with connect() as client:
        dataset = client.dataset(client.find_dataset_version(version))
        report_url = client.report_url(dataset.version)
    if as_json:
        print_json(dataset.json)
    else:
        print_fields(_fields(dataset))
        say("")
        short = dataset.version[:SHORT_ID]
        say(f"train on it with: perdure train --data {short}")
        if "probe" in dataset.json:
            say(f"look at its report: perdure dataset report {short} --out report.html")
            say(f"or in a browser: {report_url}")


def _fields(dataset: Dataset) -> dict[str, object]:
    form = dataset.json
    return {
        "version": dataset.version,
        "name": dataset.name,
        "format": form["format"],
        "classes": ", ".join(dataset.classes),
        "images": f"{dataset.images} ({form['train_images']} train, {form['val_images']} val)",
        "boxes": dataset.boxes,
        "warnings": form["warnings"] or None,
        "probe": _odd(form["probe"]["warnings"]) if "probe" in form else None,
        "split": form["split_id"],
        "imported": form["imported_at"],
    }


def _odd(codes: Sequence[str]) -> str:
    return ", ".join(codes) or "nothing stands out"
