"""The structure that the project promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from perdure.contracts.v1 import events_pb2

ROOT = Path(__file__).resolve().parents[2]
CODE = sorted(
    path
    for folder in ("libs", "services", "infra")
    for path in (ROOT / folder).rglob("*.py")
    if "contracts/v1" not in path.as_posix()
)
MAX_LINES = 400
FORBIDDEN_NAMES = re.compile(r"^(utils?|helpers?|managers?|common|base|misc)$")


def test_imports_run_downwards() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", CODE, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_module_is_named_for_what_it_holds_and_is_not_too_long(path: Path) -> None:
    assert not FORBIDDEN_NAMES.match(path.stem)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@pytest.mark.parametrize("service", sorted(p.name for p in (ROOT / "services").iterdir()))
def test_a_service_says_what_it_owns(service: str) -> None:
    text = (ROOT / "services" / service / "README.md").read_text(encoding="utf-8")
    assert "owns" in text.lower()


def test_every_event_is_in_the_catalogue() -> None:
    catalogue = (ROOT / "docs/events.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| (\w+) \| [a-z]+-", catalogue, flags=re.MULTILINE))
    messages = events_pb2.DESCRIPTOR.message_types_by_name
    parts = {
        field.message_type.name
        for message in messages.values()
        for field in message.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE
    }
    assert listed == set(messages) - parts
