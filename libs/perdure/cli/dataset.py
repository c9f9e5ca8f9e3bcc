"""perdure dataset: check, push, ls, show; diff, export and findings lie beside."""

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.dataset_diff import diff
from perdure.cli.dataset_export import export_dataset
from perdure.cli.dataset_findings import show_findings
from perdure.cli.findings import checked, print_findings, refuse
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
from perdure.datasets.rules import (
    DEFAULT_MAX_SKIPPED,
    BoxFormat,
    FormatName,
    ImportRules,
    SixthField,
)
from perdure.errors import TaskFailed

app = typer.Typer(help="Check and import data sets, and look at them.", no_args_is_help=True)
DataPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A folder or a zip archive of images and labels.")
]
Format = Annotated[
    FormatName | None,
    typer.Option("--format", help="The labels' format; without it, it is recognised."),
]
BoxFormatOption = Annotated[
    BoxFormat | None, typer.Option("--box-format", help="What COCO's boxes are: xywh, or xyxy.")
]
SixthFieldOption = Annotated[
    SixthField | None,
    typer.Option(
        "--sixth-field",
        help="What the sixth field of YOLO rows is, confidence or track; it is left out.",
    ),
]
DropDegenerate = Annotated[
    bool, typer.Option("--drop-degenerate", help="Leave out boxes without width or height.")
]
MaxSkipped = Annotated[
    float, typer.Option("--max-skipped", help="Share of images that may be undecodable.")
]
AllowLeakage = Annotated[
    bool, typer.Option("--allow-leakage", help="Accept identical images in train and val.")
]
GroupBy = Annotated[
    str,
    typer.Option(
        "--group-by",
        metavar="REGEX",
        help="Images whose names match alike stay in one split, e.g. '^[^_]+' for a prefix.",
    ),
]
Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="A version, or the beginning of one.")
]


app.command("diff")(diff)
app.command("export")(export_dataset)
app.command("findings")(show_findings)


@app.command("check")
def check_dataset(
    path: DataPath,
    format_: Format = None,
    box_format: BoxFormatOption = None,
    sixth_field: SixthFieldOption = None,
    drop_degenerate: DropDegenerate = False,
    max_skipped: MaxSkipped = DEFAULT_MAX_SKIPPED,
    allow_leakage: AllowLeakage = False,
    group_by: GroupBy = "",
    as_json: AsJson = False,
) -> None:
    """Look for faults in a data set on this machine; nothing is sent anywhere."""
    result = checked(
        path,
        ImportRules(
            format_, box_format, sixth_field, drop_degenerate, max_skipped, allow_leakage, group_by
        ),
    )
    print_findings(result, as_json=as_json)
    if not result.ok:
        raise typer.Exit(1)


@app.command()
def push(
    path: DataPath,
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
    result = checked(path, rules)
    if not result.ok:
        refuse(result, as_json=as_json)
    with connect() as client:
        client.version()
        with bytes_bar("uploading") as on_progress:
            task = client.push_dataset(path, name, rules=rules.to_json(), on_progress=on_progress)
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
    if as_json:
        print_json(dataset.json)
    else:
        print_fields(_fields(dataset))
        say("")
        say(f"train on it with: perdure train --data {dataset.version[:SHORT_ID]}")


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
        "split": form["split_id"],
        "imported": form["imported_at"],
    }
