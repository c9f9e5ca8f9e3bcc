"""What the log of a prepare attempt says: plain lines, each written out at once."""

import sys
from typing import Final

from perdure.artifacts.port import StoredObject
from perdure.datasets.check import CheckResult
from perdure.datasets.probe_summary import count_warnings
from perdure.datasets.probes import Probe
from perdure.datasets.report import (
    count_findings,
    describe_findings,
    describe_left_out,
    describe_size,
    plural,
)
from perdure.datasets.split import Split

# Examples to begin with; the list in the store has them all.
SHOWN_PER_CODE: Final = 3
_PHASES: Final = {
    "unpacking": ("unpacking", "file", "files"),
    "collecting": ("collecting", "image that was sent apart", "images that were sent apart"),
    "checking": ("checking", "image", "images"),
    "storing": ("storing", "different image", "different images"),
}


def write(line: str) -> None:
    """Write a line to the log. Names come from strangers: they cannot steer a terminal."""
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in line)
    sys.stdout.write(plain + "\n")
    sys.stdout.flush()


def write_upload(name: str, upload: StoredObject) -> None:
    """Say which archive is prepared, and its size."""
    write(f"data set {name}: archive {upload.key}, {_size(upload.size_bytes)}")


def write_phase(phase: str, steps: int) -> None:
    """Say that a phase begins, and what there is to do in it."""
    if phase in _PHASES:
        verb, one, many = _PHASES[phase]
        write(f"{verb} {plural(steps, one, many)}")


def write_checked(checked: CheckResult) -> None:
    """Say what was found in the data set, and what is wrong or remarkable."""
    write(f"format {checked.format}")
    write(f"found {describe_size(checked.images, checked.boxes, checked.classes)}")
    write(
        f"{plural(checked.background, 'image', 'images')} without a box, "
        f"{plural(checked.skipped, 'image', 'images')} skipped"
    )
    for line in describe_left_out(checked.left_out):
        write(line)
    more = " (the stored findings list all)"
    for line in describe_findings(checked.findings, shown=SHOWN_PER_CODE, more=more):
        write(line)
    write(count_findings(checked.findings))


def write_probe(probe: Probe) -> None:
    """Say what looks odd in the data set."""
    write(f"probe: {count_warnings(probe)}")


def write_split(split: Split) -> None:
    """Say which version was established and how it is split."""
    write(f"version {split.version}")
    write(
        f"split {split.split_id}: {plural(len(split.train), 'image', 'images')} in train, "
        f"{len(split.val)} in val"
    )


def write_stored(new: int, contents: int) -> None:
    """Say how many different images were stored, and how many were there before."""
    write(f"stored {plural(new, 'new image', 'new images')}, {contents - new} were stored before")


def _size(size_bytes: int) -> str:
    if size_bytes < 1 << 20:
        return plural(size_bytes, "byte", "bytes")
    return f"{size_bytes / (1 << 20):.1f} MiB"
