"""Charts of a probe as inline SVG: they need no script, and say in words what they show."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from perdure.datasets.findings import quoted
from perdure.datasets.near_duplicates import MIN_CONTRAST
from perdure.datasets.probe_kinds import (
    MAX_BOX_ASPECT,
    MAX_IMAGE_ASPECT,
    MIN_LONGER_SIDE_PX,
    TINY_AREA,
    percent,
)
from perdure.datasets.probe_oddities import ClassCount
from perdure.datasets.probes import Histogram, Oddity

_WIDTH: Final = 320
_HEIGHT: Final = 120
_PLOT_TOP: Final = 8
_PLOT_BOTTOM: Final = 98
# One of ten thousand must be seen beside the others: a rare value is what one looks for.
_MIN_BAR: Final = 2.0
_TICKS: Final = 6

_METER: Final = 120


def safe(text: str) -> str:
    """Text from a data set for HTML: short, escaped, and nothing that turns or hides other text."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    return html.escape(quoted(shown), quote=True)


def _percent(value: float) -> str:
    return f"{value * 100:.3g} %"


def _plain(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _ratio(value: float) -> str:
    return f"{value:.2g}:1" if value >= 1 else f"1:{1 / value:.2g}"


@dataclass(frozen=True)
class _Chart:
    """How a histogram is drawn. `limits` are lines at what counts as odd."""

    title: str
    said: str
    counted: str
    label: Callable[[float], str] = _plain
    limits: tuple[float, ...] = ()
    whole: bool = False  # bars are of whole numbers, from an edge to the one before the next


_CHARTS: Final = {
    "box-area": _Chart("Box size", "share of the image's area", "boxes", _percent, (TINY_AREA,)),
    "box-aspect": _Chart(
        "Box shape",
        "width : height",
        "boxes",
        _ratio,
        (1 / MAX_BOX_ASPECT, MAX_BOX_ASPECT),
    ),
    "boxes-per-image": _Chart("Boxes on an image", "number", "images", whole=True),
    "image-longer-side": _Chart(
        "Image size", "longer side, pixels", "images", limits=(MIN_LONGER_SIDE_PX,)
    ),
    "image-aspect": _Chart(
        "Image shape",
        "width : height",
        "images",
        _ratio,
        (1 / MAX_IMAGE_ASPECT, MAX_IMAGE_ASPECT),
    ),
    "brightness": _Chart("Brightness", "mean luma, 0 black to 255 white", "images"),
    "contrast": _Chart("Contrast", "standard deviation of luma", "images", limits=(MIN_CONTRAST,)),
    "sharpness": _Chart("Sharpness", "variance of the Laplacian", "images"),
    "strangeness": _Chart("Unlikeness", "distance to the fifth most alike image", "images"),
}


def histogram(shown: Histogram) -> str:
    """A histogram as a figure. Rare values get a bar of at least two pixels."""
    chart = _CHARTS[shown.name]
    first, last = _used(shown)
    edges, counts = shown.edges[first : last + 1], shown.counts[first:last]
    step = _WIDTH / len(counts)
    most = max(*counts, 1)
    bars = []
    said = []
    for number, count in enumerate(counts):
        if not count:
            continue
        told = f"{_range(chart, edges, number)}: {count} {chart.counted}"
        said.append(told)
        tall = max((_PLOT_BOTTOM - _PLOT_TOP) * count / most, _MIN_BAR)
        bars.append(
            f'<rect class="bar" x="{number * step + 1:.1f}" y="{_PLOT_BOTTOM - tall:.1f}" '
            f'width="{step - 2:.1f}" height="{tall:.1f}"><title>{told}</title></rect>'
        )
    key = f"chart-{shown.name}"
    return (
        f'<figure class="chart"><figcaption><b>{chart.title}</b> {chart.said}</figcaption>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{chart.title}: {chart.said}</title>'
        f'<desc id="{key}-d">{"; ".join(said) or "nothing"}</desc>'
        + "".join(bars)
        + _limits(chart, edges, step)
        + f'<line class="axis" x1="0" x2="{_WIDTH}" y1="{_PLOT_BOTTOM}" y2="{_PLOT_BOTTOM}"/>'
        + _ticks(chart, edges, step)
        + "</svg></figure>"
    )


def _used(shown: Histogram) -> tuple[int, int]:
    """The first and the last edge to show: those around what was counted, and one more."""
    full = [number for number, count in enumerate(shown.counts) if count]
    if not full:
        return 0, len(shown.counts)
    return max(full[0] - 1, 0), min(full[-1] + 2, len(shown.counts))


def _range(chart: _Chart, edges: Sequence[float], number: int) -> str:
    low, high = edges[number], edges[number + 1]
    if not chart.whole:
        return f"{chart.label(low)} to {chart.label(high)}"
    return f"{low:.0f}" if high == low + 1 else f"{low:.0f} to {high - 1:.0f}"


def _ticks(chart: _Chart, edges: Sequence[float], step: float) -> str:
    bars = len(edges) - 1
    every = max(1, -(-bars // _TICKS))
    if chart.whole:  # under the bars, and else at their edges
        places = [(number + 0.5, f"{edges[number]:.0f}") for number in range(0, bars, every)]
    else:
        places = [(number, chart.label(edges[number])) for number in range(0, bars + 1, every)]
    texts = []
    for place, label in places:
        anchor = "start" if place == 0 else "end" if place == bars else "middle"
        x = place * step
        texts.append(f'<text x="{x:.1f}" y="112" text-anchor="{anchor}">{label}</text>')
    return "".join(texts)


def _limits(chart: _Chart, edges: Sequence[float], step: float) -> str:
    lines = []
    for limit in chart.limits:
        for number in range(len(edges) - 1):
            low, high = edges[number], edges[number + 1]
            if low <= limit < high:
                x = (number + (limit - low) / (high - low)) * step
                lines.append(
                    f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_PLOT_BOTTOM}">'
                    f"<title>odd from {chart.label(limit)} on</title></line>"
                )
    return "".join(lines)


def meter(oddity: Oddity) -> str:
    """A bar for an oddity's share, with a line at its limit; "" for a kind without one."""
    limit = oddity.kind.limit
    if not limit:
        return ""
    end = max(oddity.share, limit) * 1.25
    share, at = (min(part / end, 1) * _METER for part in (oddity.share, limit))
    told = f"{percent(oddity.share)}; the limit is {percent(limit)}"
    return (
        f'<svg class="meter" viewBox="0 0 {_METER} 14" role="img" aria-label="{told}">'
        f"<title>{told}</title>"
        f'<rect class="track" x="0" y="3" width="{_METER}" height="8" rx="2"/>'
        f'<rect class="{"over" if oddity.warns else "bar"}" x="0" y="3" width="{share:.1f}" '
        f'height="8" rx="2"/>'
        f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="14"/></svg>'
    )


def class_bar(counted: ClassCount, most: int) -> str:
    """A bar for a class's boxes: what trains, what validates; one part where there is no split."""
    most = max(most, 1)
    parts = [(counted.train_boxes, "train"), (counted.val_boxes, "val")]
    if not any(count for count, _ in parts):
        parts = [(counted.boxes, "all")]
    told = ", ".join(f"{count} {name}" for count, name in parts)
    x = 0.0
    drawn = ""
    for count, name in parts:
        wide = 100 * count / most
        if count:
            wide = max(wide, 0.6)
        drawn += f'<rect class="{name}" x="{x:.2f}" y="0" width="{wide:.2f}" height="10"/>'
        x += wide
    return (
        f'<svg class="share" viewBox="0 0 101 10" preserveAspectRatio="none" role="img" '
        f'aria-label="boxes: {told}"><title>{told}</title>{drawn}</svg>'
    )
