"""perdure dataset export: a version, or a data set on this machine, as YOLO or COCO files."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.dataset_sources import is_version, manifest_of_path
from perdure.cli.output import AsJson, given_source, print_json, say, steps_bar
from perdure.cli.server import connect
from perdure.datasets.export import ExportFormat, Fetch, export
from perdure.datasets.manifest import Manifest, ManifestImage
from perdure.datasets.report import describe_size
from perdure.errors import InvalidInput


def export_dataset(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A version, or a folder.")],
    format_: Annotated[ExportFormat, typer.Option("--format", help="What to write.")],
    out: Annotated[Path, typer.Option("--out", help="A new folder for the files.")],
    as_json: AsJson = False,
) -> None:
    """Write the images and labels of a data set as YOLO or COCO, for other tools.

    A folder may be in any format that is read: so this converts it.
    """
    with _opened(source, as_json=as_json) as (manifest, fetch), steps_bar() as on_step:
        export(manifest, format_, fetch, out, lambda done, total: on_step("writing", done, total))
    if as_json:
        print_json({"version": manifest.version, "format": format_, "folder": str(out)})
        return
    boxes = sum(len(image.boxes) for image in manifest.images)
    say(f"{out}: {describe_size(len(manifest.images), boxes, manifest.classes)}")


@contextmanager
def _opened(source: str, *, as_json: bool) -> Iterator[tuple[Manifest, Fetch]]:
    """The manifest, and what gives the bytes of its images."""
    path = Path(given_source(source))
    if path.is_dir():
        manifest, files = manifest_of_path(path, "exported", as_json=as_json)

        def copy(image: ManifestImage, target: Path) -> None:
            shutil.copyfile(files[image.path], target)

        yield manifest, copy
    elif path.exists():
        raise InvalidInput(f"{source} is no folder: unpack it first")
    else:
        is_version(source)
        with connect() as client:
            version = client.find_dataset_version(source)

            def fetch(image: ManifestImage, target: Path) -> None:
                client.fetch_image(version, image.digest, image.size_bytes, target)

            yield client.manifest(version), fetch
