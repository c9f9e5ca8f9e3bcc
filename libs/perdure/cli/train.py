"""perdure train: check, send, submit, and follow."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from perdure.cli.findings import checked, refuse
from perdure.cli.output import AsJson, bytes_bar, given_name, given_source, print_json, say
from perdure.cli.server import connect
from perdure.cli.settings import default_of, print_settings
from perdure.cli.watching import conclude, follow
from perdure.client import Client, Task
from perdure.errors import InvalidInput
from perdure.training.config import TrainConfig

_VERSION: Final = re.compile(r"[0-9a-f]{4,64}")
MAX_NAME: Final = 200
Config = dict[str, Any]

DataArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA",
        show_default=False,
        help="A folder or zip archive, or a data set version (its beginning is enough).",
    ),
]
DataOption = Annotated[str | None, typer.Option("--data", metavar="DATA", help="The same.")]
Name = Annotated[
    str | None, typer.Option("--name", help="The model's name; by default the data's.")
]
ModelName = Annotated[
    str | None, typer.Option("--model", help=f"Which detector{default_of('model')}.")
]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", help=f"Passes over the training images{default_of('epochs')}."),
]
Imgsz = Annotated[
    int | None,
    typer.Option("--imgsz", help=f"Side of the square input, pixels{default_of('imgsz')}."),
]
Batch = Annotated[
    int | None, typer.Option("--batch", help=f"Images in a step{default_of('batch')}.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", help=f"Decides everything that is random{default_of('seed')}."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any other setting; repeatable. --list-settings shows them all.",
    ),
]
ListSettings = Annotated[
    bool, typer.Option("--list-settings", help="Show all settings of a training, and stop.")
]
MinMap50 = Annotated[
    float | None,
    typer.Option("--min-map50", min=0, max=1, help="Register the model only from this mAP50 on."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Follow the task until it has ended.")]


@dataclass(frozen=True)
class Source:
    """Where the images come from: a path on this machine, or a version on the server (its
    beginning).
    """

    path: Path | None
    version: str


def train(
    data_argument: DataArgument = None,
    data: DataOption = None,
    name: Name = None,
    model: ModelName = None,
    epochs: Epochs = None,
    imgsz: Imgsz = None,
    batch: Batch = None,
    seed: Seed = None,
    settings: Settings = None,
    min_map50: MinMap50 = None,
    wait: Wait = False,
    list_settings: ListSettings = False,
    as_json: AsJson = False,
) -> None:
    """Train a detector, export it, check it, and register it.

    The work is done by the server: start one with `perdure up`.
    """
    if list_settings:
        print_settings(as_json=as_json)
        return
    given_name(name)
    options = {"model": model, "epochs": epochs, "imgsz": imgsz, "batch": batch, "seed": seed}
    config = read_config(options, settings or [])
    source = read_source(_one_of(data_argument, data))
    if source.path is not None:
        result = checked(source.path)
        if not result.ok:
            refuse(result, as_json=as_json)
    with connect() as client:
        task = _submit(client, source, name, config, min_map50)
        if wait:
            if not as_json:
                say(f"task {task.id} submitted")
            task = follow(client, task, quiet=as_json)
    if as_json:
        print_json(task.json)
    elif not wait:
        say(f"task {task.id} submitted")
        say(f"follow it with: perdure task watch {task.id}")
        say(f"its log:        perdure task logs {task.id} -f")
    if wait:
        conclude(task, as_json=as_json)


def _one_of(argument: str | None, option: str | None) -> str:
    if (argument is None) == (option is None):
        raise InvalidInput(
            "name the data once: perdure train DATA, where DATA is a folder, a zip archive, or a "
            "data set version"
        )
    return given_source(argument if argument is not None else str(option))


def read_config(options: Config, settings: list[str]) -> Config:
    """The pairs as given, checked against the schema. Raises InvalidConfig and InvalidInput."""
    config = {key: value for key, value in options.items() if value is not None}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidInput(f"--set {setting!r} is not understood: write --set key=value")
        if key in config:
            raise InvalidInput(f"{key} is given twice: leave one of them out")
        config[key] = value.strip()
    TrainConfig.from_pairs(config)
    return config


def read_source(data: str) -> Source:
    """What DATA means: a path that exists, else a version. Raises InvalidInput otherwise."""
    path = Path(data)
    if path.exists():
        return Source(path, "")
    if _VERSION.fullmatch(data):
        return Source(None, data)
    raise InvalidInput(
        f"{data!r}: there is no such folder or archive, and it is no data set version "
        "(see: perdure dataset ls)"
    )


def _submit(
    client: Client, source: Source, name: str | None, config: Config, min_map50: float | None
) -> Task:
    if source.path is None:
        version = client.find_dataset_version(source.version)
        name = name or client.dataset(version).name
        return client.submit(name=name, dataset_version=version, config=config, min_map50=min_map50)
    client.version()  # before a long upload is prepared: is there a server at all?
    with bytes_bar("uploading") as on_progress:
        upload = client.upload(source.path, on_progress)
    name = name or source.path.resolve().stem[:MAX_NAME]
    return client.submit(name=name, upload=upload, config=config, min_map50=min_map50)
