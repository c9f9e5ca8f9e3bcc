"""A data set's folder as the archive that somebody zips and pushes."""

from pathlib import Path

from perdure.artifacts.packing import dataset_files, pack_files


def pack_folder(folder: Path, target: Path) -> Path:
    """Zip what belongs to a data set, and return `target`."""
    return pack_files(dataset_files(folder), target)
