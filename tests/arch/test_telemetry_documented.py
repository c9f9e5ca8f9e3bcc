"""docs/telemetry.md names what the code measures, and nothing else."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TELEMETRY = (ROOT / "docs/telemetry.md").read_text(encoding="utf-8")
CODE = [
    path.read_text(encoding="utf-8")
    for folder in ("libs", "services")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def test_every_metric_is_documented() -> None:
    instruments = (ROOT / "libs/perdure/telemetry/metrics.py").read_text(encoding="utf-8")
    measured = re.findall(r'"(perdure\.[a-z.]+)"', instruments)
    documented = re.findall(r"^\| `(perdure[.a-z]+)` \|", TELEMETRY, flags=re.MULTILINE)
    assert sorted(measured) == sorted(documented)
    assert len(measured) == len(set(measured)) >= 10


def test_every_span_is_documented() -> None:
    """By the first word of its name, where that is fixed."""
    begun = {
        name.split()[0]
        for text in CODE
        for name in re.findall(r'tracing\.(?:span|record)\(\s*f?"([^"]+)"', text)
    }
    documented = re.findall(
        r"^\| `([a-z]+) [^`]+` \| (?:producer|consumer|internal) \|", TELEMETRY, flags=re.MULTILINE
    )
    assert begun == set(documented)
    assert len(begun) >= 7
