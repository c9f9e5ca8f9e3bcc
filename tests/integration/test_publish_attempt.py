"""A publish attempt in its own process: what it says, what it stores, and what its card says."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from blake3 import blake3
from google.protobuf import json_format

from perdure.artifacts import open_store
from perdure.contracts.v1 import work_pb2
from perdure.datasets.snapshot import load_split
from perdure.detection.onnx_session import OnnxDetector
from perdure.detection.pipeline import decode, preprocess
from perdure.training.checkpoint import load_detector, weights_digest
from perdure_embedded.birds import CLASSES
from tests.builders.publishing import (
    CONFIG,
    Ended,
    World,
    attempt,
    card_of,
    facts_of,
    make_world,
    one_thread,
    run_child_process,
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    with one_thread():
        yield make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def published(world, tmp_path_factory) -> Ended:
    return run_child_process(world.job, tmp_path_factory.mktemp("published"))


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
    checkpoint = world.job["checkpoint"]
    weights = world.root / "weights.pt"
    world.store.get_file(checkpoint["key"], weights)
    assert card["checkpoint"] == {
        "digest": checkpoint["digest"],
        "epoch": 1,
        "weights_digest": weights_digest(load_detector(weights).state_dict()),
    }
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


def test_the_same_checkpoint_published_again_gives_the_same_onnx_bytes(published, world, tmp_path):
    again = attempt(world, tmp_path)
    publication = replace(again.publication, store=open_store((tmp_path / "store").as_uri()))
    for stored in list(world.store.list("datasets/")) + list(world.store.list("checkpoints/")):
        publication.store.put_bytes(stored.key, world.store.get_bytes(stored.key))

    publication.run()

    first = card_of(world)["files"]["model.onnx"]["digest"]
    assert again.facts["exported"]["onnx"]["digest"] == first
