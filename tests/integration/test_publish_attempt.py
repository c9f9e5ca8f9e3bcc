"""A publish attempt from checkpoint to card: in its own process, and step by step."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import pytest
import torch
from blake3 import blake3
from google.protobuf import json_format
from onnx import numpy_helper

from perdure.artifacts import ObjectStore, open_store
from perdure.attempts.channel import Channel, Stopped
from perdure.contracts.v1 import work_pb2
from perdure.datasets.imaging import probe
from perdure.datasets.manifest import ManifestImage, manifest_of
from perdure.datasets.snapshot import load_split, store_images, store_manifest, store_split
from perdure.datasets.split import Split, make_split
from perdure.detection.onnx_session import OnnxDetector
from perdure.detection.pipeline import decode, preprocess
from perdure.errors import AttemptError, DamagedObject, StoreUnavailable
from perdure.training.checkpoint import Best, Snapshot, export_best
from perdure.training.config import TrainConfig
from perdure.training.model import new_model
from perdure_embedded.birds import CLASSES, draw_bird_dataset
from perdure_publisher import publication as steps
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


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    root = tmp_path_factory.mktemp("world")
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


# ---- in its own process


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


@pytest.fixture(scope="module")
def published(world, tmp_path_factory) -> Ended:
    return run_child_process(world.job, tmp_path_factory.mktemp("published"))


def facts_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for line in lines:
        if line["kind"] == "facts":
            facts |= line["facts"]
    return facts


def card_of(world: World) -> dict[str, Any]:
    return json.loads(world.store.get_bytes("models/task7-3/card.json"))


def pulled(world: World, folder: Path) -> Path:
    world.store.get_file("models/task7-3/model.onnx", folder / "model.onnx")
    return folder / "model.onnx"


def test_an_untrained_model_is_published_when_there_is_no_gate(published):
    assert published.exit_code == 0, published.log
    result = published.lines[-1]["result"]["published"]
    assert result["model_id"] == "task7-3"
    assert 0 <= result["map50_95"] <= result["map50"] < 0.05


def test_facts_are_established_in_order_and_fit_the_contract(published, world):
    order = [key for line in published.lines if line["kind"] == "facts" for key in line["facts"]]
    assert order == ["model_id", "exported", "verified", "evaluated", "registered"]
    facts = json_format.ParseDict(facts_of(published.lines), work_pb2.ModelFacts())
    assert list(facts.exported.input_shape) == [1, 3, 64, 64]
    assert facts.exported.opset == 17
    assert facts.verified.images == facts.evaluated.images == 4
    assert facts.verified.max_confidence_difference <= 1e-3
    assert facts.registered.dataset_version == world.job["dataset_version"]
    assert facts.registered.card.key == "models/task7-3/card.json"
    assert len(facts.registered.files) == 4


def test_progress_is_told_for_every_phase(published):
    phases = [line["phase"] for line in published.lines if line["kind"] == "progress"]

    assert list(dict.fromkeys(phases)) == [
        "starting",
        "downloading",
        "exporting",
        "verifying",
        "evaluating",
        "uploading",
    ]
    assert phases.count("evaluating") == 4  # once per image


def test_the_card_names_the_hash_of_every_file(published, world):
    files = card_of(world)["files"]

    assert sorted(files) == ["model.onnx", "preview.jpg", "weights.pt"]
    for name, said in files.items():
        data = world.store.get_bytes(said["key"])
        assert said["key"] == f"models/task7-3/{name}"
        assert (said["digest"], said["size_bytes"]) == (blake3(data).hexdigest(), len(data))


def test_the_card_says_where_the_model_comes_from_and_how_good_it_is(published, world):
    card = card_of(world)

    assert card["task_id"] == "task7"
    assert card["dataset"]["version"] == world.job["dataset_version"]
    assert card["dataset"]["train_images"] + card["dataset"]["val_images"] == 20
    assert card["config_hash"] == CONFIG.hash
    assert card["config"]["imgsz"] == 64
    assert card["checkpoint"] == {"digest": world.job["checkpoint"]["digest"], "epoch": 1}
    assert set(card["metrics"]["by_class"]) == set(CLASSES)
    assert card["metrics"]["map50"] == published.lines[-1]["result"]["published"]["map50"]
    assert card["versions"]["torch"].startswith("2.14")
    assert card["created"].endswith("+00:00")


def test_the_files_own_metadata_is_what_the_card_says(published, world, tmp_path):
    detector = OnnxDetector.open(pulled(world, tmp_path), threads=1)

    assert detector.deployment.to_dict() == card_of(world)["deployment"]
    assert detector.deployment.classes == CLASSES


def test_the_readme_runs_a_published_file_with_its_metadata_alone(
    published, world, tmp_path, monkeypatch, capsys
):
    """The program in the README, in its own words, finds the box that the detector thinks best."""
    readme = Path(__file__).parents[2] / "services/publisher/README.md"
    program = readme.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    image = np.random.default_rng(0).integers(0, 256, (70, 110, 3), dtype=np.uint8)
    letterboxed = preprocess(image, 64)
    raw = OnnxDetector.open(pulled(world, tmp_path), threads=1).raw(letterboxed.tensor[None])[0]
    best = decode(raw, confidence=0.0)
    centre = (best.boxes[0, :2] + best.boxes[0, 2:]) / 2
    expected = (centre - (letterboxed.pad_left, letterboxed.pad_top)) / letterboxed.scale
    cv2.imwrite(str(tmp_path / "photo.png"), image[..., ::-1])
    monkeypatch.chdir(tmp_path)

    exec(program.replace("photo.jpg", "photo.png"), {})

    name, x, y = re.match(r"(\w+) \[ *([-\d.]+) +([-\d.]+) *\]", capsys.readouterr().out).groups()
    assert name == CLASSES[best.classes[0]]
    assert (float(x), float(y)) == pytest.approx(expected, abs=1e-2)
    assert len(program.splitlines()) <= 17


def test_the_weights_are_the_checkpoint(published, world):
    stored = world.store.get_bytes("models/task7-3/weights.pt")

    assert blake3(stored).hexdigest() == world.job["checkpoint"]["digest"]


def test_the_log_tells_the_result_of_every_phase(published, world):
    lines = [line.split(" ", 1)[1] for line in published.log.splitlines()]
    score = facts_of(published.lines)["evaluated"]
    told = {line.split(":")[0]: line for line in lines}

    assert list(told) == [
        "downloaded",
        "exported",
        "verified",
        "evaluated",
        "gate",
        "uploaded",
        "removed 0 checkpoints to resume from, of no more use",
        "registered as task7-3",
    ]
    assert "opset 17, 64 x 64 px, 2 classes" in told["exported"]
    assert re.search(r"differ by \S+ in confidence \(limit 0.001\)", told["verified"])
    assert told["verified"].endswith("on 4 of 4 validation images")
    assert f"mAP50 {score['map50']:.4f}, mAP50-95 {score['map50_95']:.4f}" in told["evaluated"]
    uploaded = {line.split()[1][:-1] for line in lines if line.startswith("uploaded: ")}
    assert uploaded == {stored.key for stored in world.store.list("models/task7-3/")}


def test_the_card_says_how_to_run_the_file_and_which_images_were_compared(published, world):
    card = card_of(world)
    deployment = card["deployment"]

    assert deployment["input_shape"] == [1, 3, 64, 64]
    assert deployment["suppression"]["needed"]
    assert deployment["suppression"]["iou"] == card["metrics"]["rules"]["nms_iou"] == 0.7
    assert deployment["suggested_confidence"] == 0.25
    assert "(1, 4 + classes, anchors)" in deployment["output"]
    assert "after the sigmoid" in deployment["scores"]
    assert "INTER_LINEAR, no antialiasing" in deployment["resize"]
    assert "- 0.1" in deployment["padding"]
    split = load_split(world.store, world.job["split_id"])
    assert card["parity"]["compared"] == list(split.val)
    assert card["parity"]["chosen"].startswith("4 of 4 validation images")


def test_nothing_is_written_outside_the_jobs_folder(published):
    assert list(published.home.rglob("*")) == []
    assert (published.job_dir / "model.onnx").exists()


def test_a_model_below_the_gate_is_rejected_with_figures(world, tmp_path):
    job = world.job | {"fence": 4, "gate": {"min_map50": 0.5}}

    ended = run_child_process(job, tmp_path)

    assert ended.exit_code == 1
    assert "rejected (below_gate): mAP50 is" in ended.log
    failed = ended.lines[-1]
    assert (failed["kind"], failed["failure"]) == ("failed", "below_gate")
    assert "the gate asks for 0.5000" in failed["detail"]
    facts = facts_of(ended.lines)
    assert facts["rejected"]["failure"] == "below_gate"
    assert "registered" not in facts
    # Kept for inspection, but without a card it is no model.
    assert [file.key for file in world.store.list("models/task7-4/")] == [
        "models/task7-4/model.onnx"
    ]


# ---- step by step


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


def test_the_weights_are_copied_within_the_store(world, tmp_path, monkeypatch):
    sent: list[str] = []
    put = world.store.put_file
    monkeypatch.setattr(
        world.store, "put_file", lambda key, path: sent.append(key) or put(key, path)
    )

    attempt(world, tmp_path, fence=20).publication.run()

    assert sent == ["models/task7-20/model.onnx"]
    stored = world.store.stat("models/task7-20/weights.pt")
    assert stored.digest == world.job["checkpoint"]["digest"]


def test_weights_that_were_replaced_meanwhile_are_not_registered(world, tmp_path, monkeypatch):
    real = world.store.copy

    def late(source, target):
        return replace(real(source, target), digest="0" * 64)

    monkeypatch.setattr(world.store, "copy", late)
    late_attempt = attempt(world, tmp_path, fence=10)

    with pytest.raises(DamagedObject, match="was replaced while it was being published"):
        late_attempt.publication.run()

    assert world.store.stat("models/task7-10/card.json") is None


RESUME_KEYS = (
    "checkpoints/task7/0000000003-000001-a.pt",
    "checkpoints/task7/0000000006-000002-b.pt",
)


@pytest.fixture
def resumable(world) -> Iterator[None]:
    """What the training would have resumed from, and that of a task of a similar name."""
    others = ("checkpoints/task70/0000000003-000001-a.pt",)
    for key in (*RESUME_KEYS, *others):
        world.store.put_bytes(key, b"state")
    yield
    for key in (*RESUME_KEYS, *others):
        world.store.delete(key)


def checkpoint_keys(world: World) -> set[str]:
    """The keys of all checkpoints but the best ones."""
    keys = {stored.key for stored in world.store.list("checkpoints/")}
    return {key for key in keys if "-best/" not in key}


@pytest.mark.usefixtures("resumable")
def test_the_checkpoints_to_resume_from_go_and_the_best_one_stays(world, tmp_path):
    attempt(world, tmp_path, fence=20).publication.run()

    assert checkpoint_keys(world) == {"checkpoints/task70/0000000003-000001-a.pt"}
    assert world.store.stat(world.job["checkpoint"]["key"]) is not None


@pytest.mark.usefixtures("resumable")
def test_a_model_that_is_not_registered_keeps_them(world, tmp_path):
    with pytest.raises(AttemptError):
        attempt(world, tmp_path, fence=20, gate={"min_map50": 1.0}).publication.run()

    assert set(RESUME_KEYS) <= checkpoint_keys(world)


@pytest.mark.usefixtures("resumable")
def test_a_store_that_is_away_afterwards_does_not_undo_the_model(world, tmp_path, monkeypatch):
    def away(key):
        raise StoreUnavailable(f"cannot delete {key}")

    monkeypatch.setattr(world.store, "delete", away)

    result = attempt(world, tmp_path, fence=20).publication.run()

    assert result["published"]["model_id"] == "task7-20"
    assert set(RESUME_KEYS) <= checkpoint_keys(world)
    monkeypatch.undo()


def test_an_export_that_computes_something_else_is_rejected(world, tmp_path, monkeypatch):
    sound = steps.export_onnx

    def swap_channels(model, *, image_size, classes, path):
        deployment = sound(model, image_size=image_size, classes=classes, path=path)
        graph = onnx.load(path)
        weight = next(w for w in graph.graph.initializer if list(w.dims) == [16, 3, 3, 3])
        flipped = np.ascontiguousarray(numpy_helper.to_array(weight)[:, ::-1])
        weight.CopyFrom(numpy_helper.from_array(flipped, weight.name))
        path.write_bytes(graph.SerializeToString())
        return deployment

    monkeypatch.setattr(steps, "export_onnx", swap_channels)
    broken = attempt(world, tmp_path)

    with pytest.raises(AttemptError, match=r"most on images/val/\S+\.jpg") as caught:
        broken.publication.run()

    assert caught.value.failure == "export_mismatch"
    assert broken.facts["rejected"]["failure"] == "export_mismatch"
    assert not {"verified", "evaluated", "registered"} & set(broken.facts)
    assert not card_stored(world)


def test_a_truncated_export_is_rejected(world, tmp_path, monkeypatch):
    sound = steps.export_onnx

    def truncate(model, *, image_size, classes, path):
        deployment = sound(model, image_size=image_size, classes=classes, path=path)
        path.write_bytes(path.read_bytes()[:-1000])
        return deployment

    monkeypatch.setattr(steps, "export_onnx", truncate)
    broken = attempt(world, tmp_path)

    with pytest.raises(AttemptError, match="cannot be loaded") as caught:
        broken.publication.run()

    assert caught.value.failure == "export_mismatch"
    assert "rejected" in broken.facts


def test_classes_in_another_order_are_rejected(world, tmp_path):
    other = store_checkpoint(world.store, world.root, tuple(reversed(CLASSES)))
    wrong = attempt(world, tmp_path, checkpoint=other)

    with pytest.raises(AttemptError, match="they do not belong together") as caught:
        wrong.publication.run()

    assert caught.value.failure == "export_mismatch"
    assert wrong.facts["rejected"]["failure"] == "export_mismatch"


def test_a_checkpoint_that_was_changed_in_the_store_is_noticed(world, tmp_path):
    checkpoint = world.job["checkpoint"] | {"digest": "0" * 64}

    with pytest.raises(DamagedObject):
        attempt(world, tmp_path, checkpoint=checkpoint).publication.run()


def test_a_configuration_that_is_not_the_hashed_one_is_refused(world, tmp_path):
    with pytest.raises(AttemptError, match="it was changed on its way") as caught:
        attempt(world, tmp_path, config_hash="0" * 64).publication.run()

    assert caught.value.failure == "config_invalid"


def test_a_split_without_validation_images_is_refused(world, tmp_path):
    given = load_split(world.store, world.job["split_id"])
    split = Split(given.version, None, None, given.train + given.val, ())
    store_split(world.store, split)

    with pytest.raises(AttemptError, match="no validation images") as caught:
        attempt(world, tmp_path, split_id=split.split_id).publication.run()

    assert caught.value.failure == "dataset_invalid"


@pytest.mark.parametrize("after", ["exporting", "evaluating", "uploading"])
def test_a_stop_is_obeyed_between_two_steps_and_leaves_no_card(world, tmp_path, after):
    stopped = attempt(world, tmp_path)
    channel = stopped.publication.channel
    tell = channel.progress

    def progress(phase, **fields):
        tell(phase, **fields)
        if phase == after:
            channel.request_stop()

    channel.progress = progress  # type: ignore[method-assign]

    with pytest.raises(Stopped):
        stopped.publication.run()

    assert not card_stored(world)


def test_the_same_checkpoint_published_again_gives_the_same_onnx_bytes(published, world, tmp_path):
    again = attempt(world, tmp_path)
    publication = replace(again.publication, store=open_store((tmp_path / "store").as_uri()))
    for stored in list(world.store.list("datasets/")) + list(world.store.list("checkpoints/")):
        publication.store.put_bytes(stored.key, world.store.get_bytes(stored.key))

    publication.run()

    first = card_of(world)["files"]["model.onnx"]["digest"]
    assert again.facts["exported"]["onnx"]["digest"] == first


def test_a_job_with_a_missing_field_is_named():
    with pytest.raises(AttemptError, match=r"job\.json is wrong at dataset_version"):
        read_job(
            {
                "task_id": "t",
                "fence": 1,
                "stage": "publish",
                "store_url": "",
                "cache_root": "",
                "name": "",
            }
        )
