"""perdure dataset: check, push, ls, show."""

from pathlib import Path
from typing import Annotated

import typer

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
from perdure.errors import TaskFailed

app = typer.Typer(help="Check and import data sets, and look at them.", no_args_is_help=True)
DataPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A folder or a zip archive in YOLO format.")
]
Version = Annotated[
    str, typer.Argument(metavar="VERSION", help="A version, or the beginning of one.")
]


@app.command("check")
def check_dataset(path: DataPath, as_json: AsJson = False) -> None:
    """Look for faults in a data set on this machine; nothing is sent anywhere."""
    result = checked(path)
    print_findings(result, as_json=as_json)
    if not result.ok:
        raise typer.Exit(1)


@app.command()
def push(
    path: DataPath,
    name: Annotated[str, typer.Option("--name", help="The data set's name.")],
    as_json: AsJson = False,
) -> None:
    """Check a data set, send it to the server, and import it as a version."""
    given_name(name)
    result = checked(path)
    if not result.ok:
        refuse(result, as_json=as_json)
    with connect() as client:
        client.version()
        with bytes_bar("uploading") as on_progress:
            task = client.push_dataset(path, name, on_progress=on_progress)
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
