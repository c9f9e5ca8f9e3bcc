"""The prepare attempt, run for real: a process that speaks JSON Lines over its pipe."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from PIL import Image

from perdure.artifacts import ObjectStore, StoredObject, open_store
from perdure.artifacts.hashing import digest_bytes
from perdure.attempts.channel import CHANNEL_VARIABLE, JOB_FILE, STOPPED
from perdure.contracts.v1 import events_pb2
from perdure.datasets.cache import materialise
from perdure.datasets.check import check
from perdure.datasets.snapshot import blob_key
from perdure.datasets.thin_archive import IMAGES_FILE, NamedImage, images_text
from perdure.domain.failures import POLICIES, Failure, Response
from tests.builders.datasets import ROW, encoded, picture, write_files, write_zip, yolo_files
from tests.builders.formats import in_format
from tests.builders.packing import pack_folder

TIMEOUT_S = 60


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store((tmp_path / "store").as_uri())


@contextmanager
def child(tmp_path: Path, data: dict[str, Any], **changes: Any) -> Iterator[tuple[Any, Any]]:
    """The process and the reading end of its pipe. Its standard output goes to `log`."""
    job = {
        "task_id": "t1",
        "fence": 1,
        "stage": "prepare",
        "store_url": (tmp_path / "store").as_uri(),
        "data": {"dataset_version": "", "upload": None, "name": "birds", "rules": {}} | data,
        "val_ratio": 0.4,
        "seed": 7,
    }
    job_dir = tmp_path / "job"
    job_dir.mkdir(exist_ok=True)
    (job_dir / JOB_FILE).write_text(json.dumps(job | changes))
    reading, writing = os.pipe()
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "perdure_data_prep.child", str(job_dir)],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=subprocess.PIPE,
        pass_fds=[writing],
        env=os.environ | {CHANNEL_VARIABLE: str(writing), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(writing)
    log.close()
    try:
        with os.fdopen(reading, encoding="utf-8") as lines:
            yield process, lines
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


def run(tmp_path: Path, data: dict[str, Any], **changes: Any) -> tuple[int, list[dict[str, Any]]]:
    with child(tmp_path, data, **changes) as (process, lines):
        said = [json.loads(line) for line in lines]
        return process.wait(timeout=TIMEOUT_S), said


def upload(store: ObjectStore, archive: Path) -> dict[str, Any]:
    stored = store.put_file("uploads/birds.zip", archive)
    return {"upload": blob(stored)}


def blob(stored: StoredObject) -> dict[str, Any]:
    return {"key": stored.key, "digest": stored.digest, "size_bytes": stored.size_bytes}


def of_kind(said: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [line for line in said if line["kind"] == kind]


def test_an_upload_becomes_a_version_that_can_be_trained_on(store, tmp_path):
    folder = write_files(tmp_path / "set", yolo_files(5) | {"images/4.jpg": picture(0)})
    version = check(folder).manifest.version

    code, said = run(tmp_path, upload(store, pack_folder(folder, tmp_path / "birds.zip")))

    assert code == 0
    assert said[0] == {"kind": "started", "resumed_from_epoch": None}
    assert said[-1]["kind"] == "result"
    prepared = said[-1]["result"]["prepared"]
    assert prepared["dataset_version"] == version
    phases = list(dict.fromkeys(line["phase"] for line in of_kind(said, "progress")))
    assert phases == ["fetching", "unpacking", "checking", "probing", "storing"]

    [facts] = of_kind(said, "facts")
    imported = json_format.ParseDict(facts["facts"]["imported"], events_pb2.DatasetImported())
    assert (imported.version, imported.name, imported.format) == (version, "birds", "yolo")
    assert (list(imported.classes), imported.images, imported.boxes) == (["bird"], 5, 5)
    assert imported.train_images + imported.val_images == 5
    assert (imported.split_id, imported.warnings) == (prepared["split_id"], 0)
    assert store.stat(imported.manifest.key).digest == imported.manifest.digest == version
    assert json.loads(store.get_bytes(imported.findings.key))["findings"] == []

    assert len(list(store.list("datasets/blobs/"))) == 4  # two images are byte-identical
    local = materialise(store, version, prepared["split_id"], tmp_path / "cache")
    assert len(local.train) + len(local.val) == 5
    assert [path.name for path in (tmp_path / "job").iterdir()] == [JOB_FILE]


def test_what_is_imported_is_probed(store, tmp_path):
    files = yolo_files(5) | {"images/4.jpg": picture(0)}
    code, said = run(tmp_path, upload(store, write_zip(tmp_path / "birds.zip", files)))

    assert code == 0
    [facts] = of_kind(said, "facts")
    probed = json_format.ParseDict(facts["facts"]["probed"], events_pb2.DatasetProbed())
    assert probed.version == said[-1]["result"]["prepared"]["dataset_version"]
    # Five images of 32 x 24 pixels, two of them the same, and one class on fewer than ten.
    warned = ["probe.class-rare", "probe.duplicate-images", "probe.image-small"]
    assert list(probed.warnings) == warned
    probe = json.loads(store.get_bytes(probed.probe.key, digest=probed.probe.digest))
    assert (probe["version"], probe["images"], probe["warnings"]) == (probed.version, 5, warned)
    [counted] = probe["classes"]
    imported = facts["facts"]["imported"]
    assert (probe["split"], counted["train_images"], counted["val_images"]) == (
        "made",
        imported["train_images"],
        imported["val_images"],
    )
    page = store.get_bytes(probed.report.key, digest=probed.report.digest).decode()
    assert "3 things to look at" in page
    assert "data:image/jpeg;base64," in page
    assert f"probe: 3 warnings: {', '.join(warned)}" in log_of(tmp_path)


def test_images_that_were_sent_apart_are_collected(store, tmp_path):
    files = yolo_files(3)
    version = check(write_files(tmp_path / "set", files)).manifest.version
    known = picture(1)
    named = {"images/1.jpg": NamedImage(digest_bytes(known), len(known))}
    thin = {name: content for name, content in files.items() if name not in named}
    thin[IMAGES_FILE] = images_text(named)
    data = upload(store, write_zip(tmp_path / "birds.zip", thin))

    code, said = run(tmp_path, data)
    assert (code, said[-1]["failure"]) == (1, "store_damaged")
    assert "1 of 1 images" in said[-1]["detail"]
    assert of_kind(said, "facts") == []  # nothing is said against the data set

    store.put_bytes(blob_key(digest_bytes(known)), known)
    code, said = run(tmp_path, data)
    assert (code, said[-1]["result"]["prepared"]["dataset_version"]) == (0, version)
    phases = list(dict.fromkeys(line["phase"] for line in of_kind(said, "progress")))
    assert phases[:4] == ["fetching", "unpacking", "collecting", "checking"]
    assert "collecting 1 image that was sent apart" in log_of(tmp_path)
    assert [path.name for path in (tmp_path / "job").iterdir()] == [JOB_FILE]


def test_an_unsafe_list_of_images_is_rejected(store, tmp_path):
    thin = yolo_files(3) | {IMAGES_FILE: images_text({"../x.jpg": NamedImage("ab" * 32, 1)})}
    code, said = run(tmp_path, upload(store, write_zip(tmp_path / "birds.zip", thin)))
    assert (code, said[-1]["failure"]) == (1, "dataset_invalid")
    assert "archive.path-escape" in said[-1]["detail"]


def test_the_rules_of_the_submission_hold(store, tmp_path):
    files = in_format("voc")
    text = str(files["Annotations/0.xml"]).replace("<xmax>16</xmax>", "<xmax>8</xmax>")
    folder = write_files(tmp_path / "set", files | {"Annotations/0.xml": text})
    data = upload(store, pack_folder(folder, tmp_path / "birds.zip"))

    refused, said = run(tmp_path, data)
    assert refused == 1
    assert "label.degenerate-box" in said[-1]["detail"]

    code, said = run(tmp_path, data | {"rules": {"format": "voc", "drop_degenerate": True}})
    assert code == 0
    [facts] = of_kind(said, "facts")
    imported = facts["facts"]["imported"]
    assert (imported["format"], imported["boxes"]) == ("voc", 3)


def test_doing_it_again_gives_the_same_and_stores_nothing_new(store, tmp_path):
    data = upload(store, write_zip(tmp_path / "birds.zip", yolo_files(4)))
    first = run(tmp_path, data)[1]
    objects = list(store.list(""))
    written = {path.name for path in (tmp_path / "store" / "data").rglob("*")}

    again = run(tmp_path, data)[1]

    assert again[-1] == first[-1]
    assert of_kind(again, "facts") == of_kind(first, "facts")
    assert list(store.list("")) == objects
    # Each write of the folder store makes a file of a fresh name.
    assert {path.name for path in (tmp_path / "store" / "data").rglob("*")} == written


def test_a_known_version_gets_a_split_without_an_upload(store, tmp_path):
    data = upload(store, write_zip(tmp_path / "birds.zip", yolo_files(8)))
    first = run(tmp_path, data)[1][-1]["result"]["prepared"]

    known = {"dataset_version": first["dataset_version"]}
    code, same = run(tmp_path, known)
    _, other = run(tmp_path, known, seed=8)

    assert code == 0
    assert same[-1]["result"]["prepared"] == first
    assert other[-1]["result"]["prepared"]["split_id"] != first["split_id"]
    assert store.stat(f"datasets/splits/{other[-1]['result']['prepared']['split_id']}.json")


def test_a_broken_data_set_is_rejected_with_all_its_faults(store, tmp_path):
    files = yolo_files(3) | {"labels/0.txt": "7 0.5 0.5 0.1 0.1\n0 nan 0.5 0.1 0.1\n"}

    code, said = run(tmp_path, upload(store, write_zip(tmp_path / "birds.zip", files)))

    assert code == 1
    assert said[-1]["kind"] == "failed"
    assert said[-1]["failure"] == "dataset_invalid"
    assert said[-1]["detail"].startswith(
        "2 errors in data set birds; first: labels/0.txt:1: error: label.class-out-of-range: '7'"
    )
    assert said[-1]["detail"].endswith("; `perdure dataset findings t1` lists all")
    [facts] = of_kind(said, "facts")
    rejected = json_format.ParseDict(facts["facts"]["rejected"], events_pb2.DatasetRejected())
    assert (rejected.name, rejected.errors, rejected.warnings) == ("birds", 2, 0)
    assert len(rejected.first_findings) == 2
    stored = json.loads(store.get_bytes(rejected.findings.key, digest=rejected.findings.digest))
    assert [(f["code"], f["line"]) for f in stored["findings"]] == [
        ("label.class-out-of-range", 1),
        ("label.not-finite", 2),
    ]
    assert list(store.list("datasets/manifests/")) == []
    assert list(store.list("datasets/blobs/")) == []


def log_of(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text(encoding="utf-8").splitlines()


def test_the_log_says_in_plain_lines_what_was_found_and_stored(store, tmp_path):
    files = yolo_files(6) | {
        "images/5.jpg": picture(0),
        "labels/1.txt": "",
        "labels/2.txt": "\n".join(f"0 0.05 0.{n} 0.2 0.1" for n in range(3, 8)),
        "labels/\u202e9.txt": ROW,
    }
    del files["labels/3.txt"]
    archive = write_zip(tmp_path / "birds.zip", files)
    data = upload(store, archive)

    code, said = run(tmp_path, data)
    log = log_of(tmp_path)

    assert code == 0
    prepared = said[-1]["result"]["prepared"]
    assert log[:6] == [
        f"data set birds: archive uploads/birds.zip, {archive.stat().st_size} bytes",
        "unpacking 13 files",
        "checking 6 images",
        "format yolo",
        "found 6 images, 8 boxes, 1 class: bird",
        "2 images without a box, 0 images skipped",
    ]
    clipped = log.index("warning label.clipped (5): a box reaches past the image's border")
    assert log[clipped + 2 : clipped + 6] == [
        "  labels/2.txt:1 0 0.05 0.3 0.2 0.1",
        "  labels/2.txt:2 0 0.05 0.4 0.2 0.1",
        "  labels/2.txt:3 0 0.05 0.5 0.2 0.1",
        "  and 2 more (the stored findings list all)",
    ]
    assert "  labels/\ufffd9.txt" in log
    assert "7 warnings" in log
    assert log[-4:-2] == ["storing 5 different images", "stored 5 new images, 0 were stored before"]
    assert log[-2] == f"version {prepared['dataset_version']}"
    assert log[-1].startswith(f"split {prepared['split_id']}: ")
    assert log[-1].endswith(" in train, 3 in val")

    run(tmp_path, data)
    assert "stored 0 new images, 5 were stored before" in log_of(tmp_path)
    run(tmp_path, {"dataset_version": prepared["dataset_version"]})
    assert log_of(tmp_path)[1:] == log[-2:]


def test_the_log_of_a_refused_data_set_says_why(store, tmp_path):
    files = yolo_files(3) | {"labels/0.txt": "7 0.5 0.5 0.1 0.1"}
    run(tmp_path, upload(store, write_zip(tmp_path / "birds.zip", files)))
    log = log_of(tmp_path)

    assert "error label.class-out-of-range: a class id is not one of the classes" in log
    assert "1 error" in log


def test_an_unsafe_archive_is_rejected(store, tmp_path):
    code, said = run(tmp_path, upload(store, write_zip(tmp_path / "birds.zip", {"../x": b""})))

    assert code == 1
    assert said[-1]["failure"] == "dataset_invalid"
    assert "archive.path-escape" in said[-1]["detail"]
    assert of_kind(said, "facts")[0]["facts"]["rejected"]["errors"] == 1


@pytest.mark.parametrize(
    ("data", "changes", "failure"),
    [
        ({"dataset_version": "ab" * 32}, {}, "store_damaged"),
        (
            {"upload": {"key": "uploads/x", "digest": "ab" * 32, "size_bytes": 1}},
            {},
            "store_damaged",
        ),
    ],
)
def test_what_the_store_does_not_hold_cannot_be_prepared(store, tmp_path, data, changes, failure):
    code, said = run(tmp_path, data, **changes)
    assert (code, said[-1]["kind"], said[-1]["failure"]) == (1, "failed", failure)


def test_an_upload_that_the_store_has_changed_is_the_stores_damage(store, tmp_path):
    data = upload(store, write_zip(tmp_path / "birds.zip", yolo_files(3)))
    (stored,) = (path for path in (tmp_path / "store" / "data").rglob("*") if path.is_file())
    stored.chmod(0o644)
    stored.write_bytes(stored.read_bytes()[:-1] + b"x")
    code, said = run(tmp_path, data)
    assert (code, said[-1]["kind"], said[-1]["failure"]) == (1, "failed", "store_damaged")
    assert "uploads/birds.zip" in said[-1]["detail"]
    assert of_kind(said, "facts") == []  # nothing is said against the data set
    policy = POLICIES[Failure(said[-1]["failure"])]
    assert (policy.response, policy.max_retries) == (Response.GIVE_UP, 0)
    assert "perdure dataset push" in policy.advice


def test_pushed_again_a_version_whose_manifest_was_damaged_is_whole(store, tmp_path):
    data = upload(store, write_zip(tmp_path / "birds.zip", yolo_files(3)))
    prepared = run(tmp_path, data)[1][-1]["result"]["prepared"]
    key = f"datasets/manifests/{prepared['dataset_version']}.json"
    text = store.get_bytes(key)
    stored = next(
        path
        for path in (tmp_path / "store/data").rglob("*")
        if path.is_file() and path.read_bytes() == text
    )
    stored.chmod(0o644)
    stored.write_bytes(text[:-1])
    known = {"dataset_version": prepared["dataset_version"]}
    assert run(tmp_path, known)[1][-1]["failure"] == "store_damaged"
    assert run(tmp_path, data)[0] == 0
    assert store.get_bytes(key) == text
    assert run(tmp_path, known)[0] == 0


def test_a_ratio_out_of_range_is_the_configurations_fault(store, tmp_path):
    data = upload(store, write_zip(tmp_path / "birds.zip", yolo_files(3)))
    code, said = run(tmp_path, data, val_ratio=1.5)
    assert (code, said[-1]["failure"]) == (1, "config_invalid")


def test_missing_keys_to_the_store_are_not_the_tasks_fault(tmp_path, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)

    code, said = run(
        tmp_path, {"dataset_version": "0" * 64}, store_url="s3+http://127.0.0.1:9/bucket"
    )

    assert (code, said[-1]["failure"]) == (1, "unknown")
    assert "AWS_ACCESS_KEY_ID" in said[-1]["detail"]


def test_a_store_that_is_away_is_unreachable(store, tmp_path):
    data = upload(store, write_zip(tmp_path / "birds.zip", yolo_files(3)))
    (tmp_path / "blocked").write_text("a file, no folder")

    code, said = run(tmp_path, data, store_url=(tmp_path / "blocked" / "store").as_uri())

    assert (code, said[-1]["failure"]) == (1, "unreachable")


def test_a_stop_is_obeyed_in_the_middle_and_leaves_no_files(store, tmp_path):
    large = encoded(Image.new("RGB", (2500, 2500)), "JPEG")  # quick to make, slow to decode
    files = {f"images/{number}.jpg": large for number in range(400)}
    data = upload(store, write_zip(tmp_path / "birds.zip", files))

    with child(tmp_path, data) as (process, lines):
        for line in lines:
            if json.loads(line).get("phase") == "checking":
                process.send_signal(signal.SIGTERM)
                break
        rest = [json.loads(line) for line in lines]
        assert process.wait(timeout=TIMEOUT_S) == STOPPED

    assert {line["kind"] for line in rest} <= {"progress"}
    assert [path.name for path in (tmp_path / "job").iterdir()] == [JOB_FILE]
    assert list(store.list("datasets/manifests/")) == []
