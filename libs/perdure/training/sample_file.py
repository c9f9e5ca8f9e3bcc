"""Augmented samples in a file, in the order of a batch: whole on disk, checked when read.

    PERDSMP1                    8 bytes: what the file is, and its form
    length                      4 bytes, little-endian: bytes of the header
    header                      JSON: `label`, `libraries`, `side`, `samples` [[id, boxes], ...]
    digest                      32 bytes: BLAKE3 of all of the above
    images                      samples x 3 x side x side bytes, RGB
    classes, boxes              each sample's m classes, then its m x 4; float32, little-endian
    digest                      32 bytes: BLAKE3 of images, classes and boxes

The header has a digest of its own: it can still say what made a file whose images are damaged.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from blake3 import blake3
from numpy.typing import NDArray

from perdure.artifacts.files import new_file
from perdure.artifacts.places import open_file

MARK: Final = b"PERDSMP1"
LENGTH_BYTES: Final = 4
DIGEST_BYTES: Final = 32
FLOAT_BYTES: Final = 4
NUMBERS_PER_BOX: Final = 5  # its class, centre x, centre y, width, height

# `img` (3, side, side) uint8 RGB, `cls` (m, 1) and `bboxes` (m, 4) float32, `sample_id`.
Sample = dict[str, Any]
Libraries = Mapping[str, str]  # versions by name
Piece = bytes | memoryview


@dataclass(frozen=True)
class Damage:
    """Why a file does not give its samples, and what made it, when it can still say that."""

    reason: str
    libraries: Libraries | None = None


@dataclass(frozen=True)
class _Header:
    label: str
    libraries: Libraries
    side: int
    ids: list[str]
    counts: list[int]  # boxes of each sample


def encoded(samples: Sequence[Sample], label: str, libraries: Libraries) -> list[Piece]:
    """The bytes of a file of `samples`, all of one size, in pieces.

    `label` says what they are: it is asked for when they are read.
    """
    header = {
        "label": label,
        "libraries": dict(libraries),
        "side": samples[0]["img"].shape[-1],
        "samples": [[sample["sample_id"], len(sample["cls"])] for sample in samples],
    }
    text = json.dumps(header).encode()
    head = MARK + len(text).to_bytes(LENGTH_BYTES, "little") + text
    body: list[Piece] = [_bytes_of(sample["img"], "|u1") for sample in samples]
    for sample in samples:
        body += [_bytes_of(sample["cls"], "<f4"), _bytes_of(sample["bboxes"], "<f4")]
    return [head, blake3(head).digest(), *body, _digest(body)]


def write_pieces(path: Path, pieces: Sequence[Piece]) -> None:
    """Write a file. It appears whole, and is on disk when this returns. Raises OSError."""
    with new_file(path) as file:
        for piece in pieces:
            file.write(piece)


def read_samples(path: Path, label: str, ids: Sequence[str]) -> list[Sample] | Damage:
    """The samples that a file holds, which are those called `ids` under `label`, or its damage.

    Raises OSError when it cannot be read, FileNotFoundError when there is none.
    """
    data = _content(path)
    found = _header(data)
    if isinstance(found, Damage):
        return found
    header, start = found
    if (header.label, header.ids) != (label, list(ids)):
        return Damage("it holds other samples than its name says", header.libraries)
    body = memoryview(data)[start:-DIGEST_BYTES]
    images = len(header.ids) * 3 * header.side**2
    if len(body) != images + sum(header.counts) * NUMBERS_PER_BOX * FLOAT_BYTES:
        return Damage(f"it is cut short or too long ({len(data)} bytes)", header.libraries)
    if _digest([body]) != data[-DIGEST_BYTES:]:
        return Damage("its bytes have changed", header.libraries)
    return _samples(header, body[:images], body[images:])


def libraries_of(path: Path) -> Libraries | None:
    """What made a file, or None when it cannot say. Raises OSError."""
    with open_file(path) as file:
        start = file.read(len(MARK) + LENGTH_BYTES)
        rest = file.read(int.from_bytes(start[len(MARK) :], "little") + DIGEST_BYTES)
    found = _header(bytearray(start + rest))
    return found.libraries if isinstance(found, Damage) else found[0].libraries


def _content(path: Path) -> bytearray:
    """All bytes of a file, in memory that tensors may lie in."""
    with open_file(path) as file:
        data = bytearray(os.fstat(file.fileno()).st_size)
        del data[file.readinto(data) :]
    return data


def _header(data: bytearray) -> tuple[_Header, int] | Damage:
    """The header, and where the images begin."""
    begin = len(MARK) + LENGTH_BYTES
    end = begin + int.from_bytes(data[len(MARK) : begin], "little")
    start = end + DIGEST_BYTES
    if data[: len(MARK)] != MARK or blake3(data[:end]).digest() != data[end:start]:
        return Damage("it does not begin as a file of samples does")
    header = json.loads(data[begin:end])
    ids = [sample[0] for sample in header["samples"]]
    counts = [sample[1] for sample in header["samples"]]
    return _Header(header["label"], header["libraries"], header["side"], ids, counts), start


def _samples(header: _Header, images: memoryview, numbers: memoryview) -> list[Sample]:
    pixels = np.frombuffer(images, np.uint8).reshape(-1, 3, header.side, header.side)
    rows = np.frombuffer(numbers, "<f4").astype(np.float32, copy=False)
    samples = []
    for sample_id, count, image in zip(header.ids, header.counts, pixels, strict=True):
        mine, rows = np.split(rows, [count * NUMBERS_PER_BOX])
        samples.append(
            {
                "img": torch.from_numpy(image),
                "cls": torch.from_numpy(mine[:count].reshape(-1, 1)),
                "bboxes": torch.from_numpy(mine[count:].reshape(-1, 4)),
                "sample_id": sample_id,
            }
        )
    return samples


def _bytes_of(tensor: torch.Tensor, kind: str) -> memoryview:
    numbers: NDArray[Any] = np.ascontiguousarray(tensor.numpy(), dtype=kind)
    return numbers.reshape(-1).view(np.uint8).data


def _digest(pieces: Sequence[Piece]) -> bytes:
    hasher = blake3()
    for piece in pieces:
        hasher.update(piece)
    return hasher.digest()
