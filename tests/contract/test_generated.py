"""The committed contract is what proto/ says."""

import subprocess
import sys
from pathlib import Path

import pytest

from perdure.contracts.codec import event_class, from_json, to_json
from perdure.contracts.v1 import events_pb2
from perdure.errors import DamagedLog

ROOT = Path(__file__).resolve().parents[2]


def test_generating_again_changes_nothing(tmp_path: Path) -> None:
    out = tmp_path / "v1"
    script = ROOT / "infra/generate_contracts.py"
    subprocess.run([sys.executable, script, "--out", out], check=True, timeout=60)
    committed = ROOT / "libs/perdure/contracts/v1"
    names = {path.name for path in committed.iterdir() if path.suffix in (".py", ".pyi")}
    assert {path.name for path in out.iterdir()} == names
    for name in sorted(names):
        assert (out / name).read_text() == (committed / name).read_text(), name


def test_an_event_comes_back_from_its_canonical_json() -> None:
    event = events_pb2.CheckpointSaved(
        fence=2, epoch=3, step=40, best=True, blob=events_pb2.Blob(key="k", size_bytes=2**40)
    )
    text = to_json(event)
    assert text == (
        '{"best":true,"blob":{"digest":"","key":"k","size_bytes":"1099511627776"},'
        '"epoch":3,"fence":2,"step":"40"}'
    )
    assert from_json("CheckpointSaved", text) == event


def test_fields_of_a_newer_version_are_passed_over() -> None:
    event = from_json("TaskCancelled", '{"detail":"x","new_field":1}')
    assert event == events_pb2.TaskCancelled(detail="x")


def test_an_unknown_event_type_is_refused() -> None:
    with pytest.raises(DamagedLog, match="NoSuchEvent"):
        event_class("NoSuchEvent")
