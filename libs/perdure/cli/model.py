"""perdure model: ls, show, pull."""

from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.output import (
    SHORT_ID,
    AsJson,
    Limit,
    bytes_bar,
    number,
    print_fields,
    print_json,
    print_table,
    say,
)
from perdure.cli.server import connect
from perdure.client import Model

app = typer.Typer(help="Look at the registry, and fetch models from it.", no_args_is_help=True)
ModelId = Annotated[
    str, typer.Argument(metavar="MODEL_ID", help="A model's id, or the beginning of one.")
]


@app.command("ls")
def list_models(limit: Limit = 50, as_json: AsJson = False) -> None:
    """List models, rejected ones included."""
    with connect() as client:
        models = list(client.models(limit=limit))
    if as_json:
        print_json([model.json for model in models])
        return
    print_table(
        ("ID", "NAME", "STATUS", "MAP50", "MAP50-95", "DATA SET", "TASK", "WHY"),
        (
            (
                model.id,
                model.name,
                model.status,
                number(model.map50),
                number(model.map50_95),
                model.json.get("dataset_version", "")[:SHORT_ID],
                model.task_id,
                model.json.get("detail", ""),
            )
            for model in models
        ),
        empty="there are no models yet: train one with: perdure train --data PATH",
    )


@app.command()
def show(model_id: ModelId, as_json: AsJson = False) -> None:
    """Show one model: metrics, verdict, files and card."""
    with connect() as client:
        model = client.model(client.find_model_id(model_id))
        card = client.model_card(model.id) if "card" in model.json else None
    if as_json:
        print_json({**model.json, "card_content": card})
        return
    print_fields(_fields(model))
    if model.files:
        say("")
        print_table(
            ("FILE", "SIZE", "BLAKE3"),
            ((file.name, f"{file.size_bytes:,} bytes", file.digest) for file in model.files),
            empty="",
        )
        say("")
        say(f"fetch it with: perdure model pull {model.id} --out DIR")


def _fields(model: Model) -> dict[str, Any]:
    form = model.json
    by_class = form.get("evaluation", {}).get("map50_by_class", {})
    parity = form.get("parity")
    export = form.get("export", {})
    return {
        "model": model.id,
        "name": model.name,
        "status": model.status,
        "why": form.get("detail"),
        "task": model.task_id,
        "data set": form.get("dataset_version"),
        "config": form.get("config_hash"),
        "mAP50": number(model.map50),
        "mAP50-95": number(model.map50_95),
        "mAP50 by class": ", ".join(f"{name} {number(ap)}" for name, ap in by_class.items()),
        "ONNX": f"opset {export['opset']}, input {export['input_shape']}" if export else "",
        "parity": parity
        and (
            f"confidence within {parity['max_confidence_difference']:.2g}, boxes within "
            f"{parity['max_box_difference_px']:.2g} px on {parity['images']} images"
        ),
    }


@app.command()
def pull(
    model_id: ModelId,
    out: Annotated[Path, typer.Option("--out", help="The folder for the files.")],
    as_json: AsJson = False,
) -> None:
    """Fetch a registered model's files, checked by their digests."""
    with connect() as client, bytes_bar("fetching") as on_progress:
        full_id = client.find_model_id(model_id)
        paths = client.pull_model(full_id, out, on_progress=on_progress)
    if as_json:
        print_json({"model": full_id, "files": [str(path) for path in paths]})
    else:
        for path in paths:
            say(str(path))
