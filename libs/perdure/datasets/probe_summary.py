"""A probe as lines for people: its warnings with the worst cases, and the rest in short."""

from typing import Final

from perdure.datasets.probe_kinds import percent
from perdure.datasets.probes import Oddity, Probe
from perdure.datasets.report import describe_size, plural

# Enough to begin with; the report shows them with pictures.
_SHOWN: Final = 3


def describe_probe(probe: Probe) -> list[str]:
    """Lines for all that is odd, warnings first, and their number at the end."""
    names = [counted.name for counted in probe.classes]
    lines = [describe_size(probe.images, probe.boxes, names)]
    for oddity in probe.oddities:
        lines += _describe(oddity)
    return [*lines, count_warnings(probe)]


def count_warnings(probe: Probe) -> str:
    """The number of warnings: "2 warnings: probe.blur, probe.unlike", or "nothing stands out"."""
    codes = [oddity.code for oddity in probe.warnings]
    if not codes:
        return "nothing stands out"
    return f"{plural(len(codes), 'warning', 'warnings')}: {', '.join(codes)}"


def _describe(oddity: Oddity) -> list[str]:
    kind = oddity.kind
    number = f"{oddity.count} of {oddity.total} {kind.counted}, {percent(oddity.share)}"
    if not oddity.warns:
        return [f"note {oddity.code} ({number}): {kind.problem}"]
    lines = [f"warning {oddity.code} ({number}): {kind.problem}", f"  {kind.advice}"]
    for case in oddity.cases[:_SHOWN]:
        told = case.told(kind)
        other = f" and {case.other}" if case.other else ""
        lines.append(f"  {case.subject}{other}" + (f": {told}" if told else ""))
    if len(oddity.cases) > _SHOWN:
        lines.append("  ... (the report shows more)")
    return lines
