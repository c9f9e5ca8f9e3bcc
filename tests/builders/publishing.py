"""A small world in which a model is published: its data, its checkpoint, and attempts on them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from blake3 import blake3

from perdure.artifacts import ObjectStore, open_store
from perdure.attempts.channel import Channel
from perdure.datasets.imaging import probe
from perdure.datasets.manifest import ManifestImage, manifest_of
from perdure.datasets.snapshot import store_images, store_manifest, store_split
from perdure.datasets.split import make_split
from perdure.training.checkpoint import Best, Snapshot, export_best
from perdure.training.config import TrainConfig
from perdure.training.model import new_model
from perdure_embedded.birds import CLASSES, draw_bird_dataset
from perdure_publisher.job import read_job
from perdure_publisher.publication import Publication

CONFIG = TrainConfig.from_pairs({"imgsz": 64, "epochs": 1, "device": "cpu"})
CHILD_TIMEOUT_S = 120
NOW = "2026-01-02T03:04:05.000000+00:00"


@dataclass(frozen=True)
class World:
    """A store with a small data set and an untrained checkpoint, and the job to publish it."""

    store: ObjectStore
    root: Path
    job: dict[str, Any]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread, within the block."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def make_world(root: Path) -> World:
    """A world in the folder `root`."""
    store = open_store((root / "store").as_uri())
    version, split_id = store_birds(store, draw_bird_dataset(root / "birds", images=20, size_px=96))
    checkpoint = store_checkpoint(store, root, CLASSES)
    job = {
        "task_id": "task7",
        "fence": 3,
        "stage": "publish",
        "store_url": (root / "store").as_uri(),
        "cache_root": str(root / "cache"),
        "name": "birds at the pond",
        "dataset_version": version,
        "split_id": split_id,
        "config_json": CONFIG.canonical(),
        "config_hash": CONFIG.hash,
        "checkpoint": checkpoint,
        "best_epoch": 1,
        "gate": {},
        "threads": 1,
    }
    return World(store, root, job)


def store_birds(store: ObjectStore, folder: Path) -> tuple[str, str]:
    """Put a YOLO folder into the store as the prepare stage does; gives version and split id."""
    images, files = [], {}
    for path in sorted(folder.glob("images/*/*.jpg")):
        split = path.parent.name
        rows = (folder / "labels" / split / f"{path.stem}.txt").read_text().splitlines()
        digest = blake3(path.read_bytes()).hexdigest()
        info = probe(path)
        files[path.relative_to(folder).as_posix()] = path
        boxes = tuple((int(row.split()[0]), *map(float, row.split()[1:])) for row in rows)
        images.append(
            ManifestImage(
                path.relative_to(folder).as_posix(),
                digest,
                path.stat().st_size,
                info.width,
                info.height,
                boxes,
                split,
            )
        )
    manifest = manifest_of(CLASSES, tuple(images))
    split = make_split(manifest, seed=0, val_ratio=0.2)
    store_images(store, manifest, files, lambda _done, _total: None)
    store_split(store, split)
    store_manifest(store, manifest)
    return manifest.version, split.split_id


def store_checkpoint(store: ObjectStore, root: Path, classes: tuple[str, ...]) -> dict[str, Any]:
    """Store an untrained detector as the train stage stores its best epoch.

    Its normalisation has seen noise: otherwise a signal dies away in a fresh network, and no fault
    in an export would show.
    """
    torch.manual_seed(0)
    model = new_model(CONFIG.model, classes).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        for _ in range(2):
            model(torch.rand(4, 3, 64, 64))
    weights = dict(model.state_dict())
    snapshot = Snapshot(
        config=CONFIG.canonical(),
        dataset_version="",
        split_id="",
        classes=classes,
        threads=1,
        epoch=1,
        step=0,
        optimizer_steps=1,
        last_step=0,
        model=weights,
        ema=weights,
        ema_updates=1,
        optimizer={},
        scaler={},
        gradients={},
        loss_sums=(0.0, 0.0, 0.0),
        seen=(),
        skipped_steps=0,
        best=Best(epoch=1, map50=0.0, map50_95=0.0, ema=weights),
        stopped=False,
    )
    best = export_best(snapshot, root / "-".join(classes))
    key = f"checkpoints/task7-best/{best.digest}.pt"
    store.put_file(key, best.path)
    return {"key": key, "digest": best.digest, "size_bytes": best.size_bytes}


@dataclass(frozen=True)
class Ended:
    """How a child process ended and what it said."""

    exit_code: int
    lines: list[dict[str, Any]]
    log: str
    job_dir: Path
    home: Path


def run_child_process(job: dict[str, Any], folder: Path) -> Ended:
    job_dir, home = folder / "job", folder / "home"
    job_dir.mkdir()
    home.mkdir()
    (job_dir / "job.json").write_text(json.dumps(job))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("YOLO_", "XDG_", "MPL"))}
    with (folder / "channel").open("wb") as said, (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "perdure_publisher.child", str(job_dir)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(said.fileno(),),
            cwd=home,
            env=kept
            | {
                "PERDURE_CHANNEL_FD": str(said.fileno()),
                "PYTHONPATH": os.pathsep.join(sys.path),
                "HOME": str(home),
            },
        )
        exit_code = process.wait(CHILD_TIMEOUT_S)
    lines = [json.loads(line) for line in (folder / "channel").read_text().splitlines()]
    return Ended(exit_code, lines, (folder / "log").read_text(), job_dir, home)


def facts_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in lines:
        if line["kind"] == "facts":
            facts |= line["facts"]
    return facts


def card_of(world: World) -> dict[str, Any]:
    return json.loads(world.store.get_bytes("models/task7-3/card.json"))


@dataclass(frozen=True)
class Attempt:
    """A publication in this process, and what it says."""

    publication: Publication
    said: Path

    @property
    def facts(self) -> dict[str, Any]:
        return facts_of([json.loads(line) for line in self.said.read_text().splitlines()])


def attempt(world: World, folder: Path, **changes: Any) -> Attempt:
    said = folder / "said"
    channel = Channel(os.open(said, os.O_WRONLY | os.O_CREAT))
    job = read_job(world.job | {"fence": 9} | changes)
    return Attempt(Publication(job, folder, world.store, channel, lambda: NOW), said)


def card_stored(world: World) -> bool:
    return world.store.stat("models/task7-9/card.json") is not None
