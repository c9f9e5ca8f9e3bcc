"""A probe as one HTML page that needs nothing else: no script, and no request to anywhere."""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

from perdure.datasets.annotation import Box
from perdure.datasets.manifest import Manifest
from perdure.datasets.probe_charts import class_bar, histogram, meter, safe
from perdure.datasets.probe_kinds import percent
from perdure.datasets.probe_oddities import ClassCount
from perdure.datasets.probe_pictures import ICON_PX, PICTURE_PX, data_uri, picture
from perdure.datasets.probes import Case, Oddity, Probe
from perdure.datasets.problems import PROBLEMS
from perdure.datasets.report import plural
from perdure.errors import InvalidDataset

# All pictures together, in bytes as they stand in the page: what a mail still takes.
MAX_PICTURES_BYTES: Final = 5 << 20
# A warning is looked into; of the rest an example is enough.
_SHOWN_OF_WARNING: Final = 8
_SHOWN_OF_OTHER: Final = 4
_ICONS: Final = 3  # beside a warning
# Of more classes, those with the most and with the fewest boxes are listed: half and half.
_MAX_CLASSES: Final = 40
_SEVERITIES: Final = {"error": "error", "warning": "warning", "info": "note"}
# Also sent as a header where the page comes from a server.
CONTENT_POLICY: Final = (
    "default-src 'none'; img-src data:; style-src {style}; base-uri 'none'; form-action 'none'"
)

# Called with the number of kinds whose pictures are drawn, and of all.
Progress = Callable[[int, int], None]


def report(
    probe: Probe,
    name: str,
    manifest: Manifest,
    files: Mapping[str, Path],
    progress: Progress | None = None,
) -> str:
    """The page. `files` says where the images of the manifest lie, by path.

    An image that is not there, or that changed since it was checked, is left out of it.
    """
    pictures = _Pictures({image.path: image.boxes for image in manifest.images}, files)
    galleries = []
    for number, oddity in enumerate(probe.oddities, start=1):
        galleries.append(_gallery(oddity, pictures))
        if progress:
            progress(number, len(probe.oddities))
    folder = resources.files("perdure.datasets")
    style = (folder / "probe_report.css").read_text(encoding="utf-8")
    return Template((folder / "probe_report.html").read_text(encoding="utf-8")).substitute(
        policy=CONTENT_POLICY.format(style=_hash(style)),
        style=style,
        name=safe(name),
        version=probe.version,
        tiles=_tiles(probe),
        **_verdict(probe, pictures),
        classes=_classes(probe),
        charts="".join(histogram(shown) for shown in probe.histograms),
        galleries="".join(galleries),
        findings=_findings(probe),
        footer=_FOOTER,
    )


_FOOTER: Final = (
    "<p>Nothing here refuses a data set: what looks odd may be what you want. Sizes of boxes are "
    "shares of the upright image. Sharpness is measured with the longer side at 640 pixels. "
    "“Far from the others” means more than 3.5 robust standard deviations from the median.</p>"
)


class _Pictures:
    """Draws pictures for as long as there is room for them."""

    def __init__(self, boxes: Mapping[str, Sequence[Box]], files: Mapping[str, Path]) -> None:
        self._boxes = boxes
        self._files = files
        self._left_bytes = MAX_PICTURES_BYTES

    def draw(self, path: str, marked: Sequence[int], side_px: int = PICTURE_PX) -> str:
        """An <img> of the image at `path`; "" where there is none to draw."""
        if path not in self._files or path not in self._boxes or self._left_bytes <= 0:
            return ""
        try:
            jpeg = picture(self._files[path], self._boxes[path], marked, side_px)
        except (InvalidDataset, OSError):
            return ""  # it changed since it was checked, which the next check will say
        uri = data_uri(jpeg)
        self._left_bytes -= len(uri)
        return f'<img src="{uri}" alt="{safe(path)}">'


def _hash(style: str) -> str:
    digest = hashlib.sha256(style.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _tiles(probe: Probe) -> str:
    share = f" <small>{percent(probe.empty / probe.images)}</small>" if probe.empty else ""
    splits = {"given": "given", "made": "made at import", "": "none yet"}
    facts = (
        ("Images", f"{probe.images:,}"),
        ("Boxes", f"{probe.boxes:,}"),
        ("Classes", f"{len(probe.classes):,}"),
        ("Without a box", f"{probe.empty:,}{share}"),
        ("Split", splits[probe.split]),
    )
    return "".join(f"<div><dt>{term}</dt><dd>{value}</dd></div>" for term, value in facts)


def _verdict(probe: Probe, pictures: _Pictures) -> dict[str, str]:
    """The heading, the warnings, and what is below its limit."""
    warnings = probe.warnings
    others = [oddity for oddity in probe.oddities if not oddity.warns]
    notes = ""
    if others:
        listed = "".join(f"<li>{_link(oddity)}: {_counted(oddity)}</li>" for oddity in others)
        notes = (
            f'<div class="notes"><p>Found too, and no more than usual:</p><ul>{listed}</ul></div>'
        )
    told = f"⚠ {plural(len(warnings), 'thing', 'things')} to look at"
    listed = "".join(_warning(oddity, pictures) for oddity in warnings)
    return {
        "verdict": told if warnings else "✓ Nothing stands out",
        "verdict_class": "warn" if warnings else "good",
        "warnings": f'<ul class="warnings">{listed}</ul>' if listed else "",
        "notes": notes,
    }


def _warning(oddity: Oddity, pictures: _Pictures) -> str:
    kind = oddity.kind
    of = f"of {oddity.total:,} {kind.counted}, {percent(oddity.share)}"
    worst = oddity.cases[:_ICONS]
    icons = "".join(pictures.draw(case.subject, case.boxes, ICON_PX) for case in worst)
    if not icons and kind.counted == "classes":
        icons = "".join(f"<bdi>{safe(case.subject)}</bdi>" for case in worst)
    return (
        f'<li><div class="number">{oddity.count:,} <small>{of}</small>{meter(oddity)}</div>'
        f"<div><h3>{_link(oddity)}</h3><p>{_sentence(kind.problem)}</p>"
        f'<p class="advice">{_sentence(kind.advice)}</p></div><div class="icons">{icons}</div></li>'
    )


def _link(oddity: Oddity) -> str:
    return f'<a href="#{oddity.code}">{oddity.kind.title}</a>'


def _counted(oddity: Oddity) -> str:
    return f"{oddity.count:,} of {oddity.total:,} {oddity.kind.counted} ({percent(oddity.share)})"


def _sentence(text: str) -> str:
    return safe(text[:1].upper() + text[1:]) + "."


def _classes(probe: Probe) -> str:
    ordered = sorted(probe.classes, key=lambda counted: (-counted.boxes, counted.name))
    split = bool(probe.split)
    heads = "".join(
        f'<th scope="col" class="n">{head}</th>'
        for head in (
            ("Boxes", "Images", "Images in train", "Images in val")
            if split
            else ("Boxes", "Images")
        )
    )
    left_out = len(ordered) - _MAX_CLASSES
    if left_out > 0:
        half = _MAX_CLASSES // 2
        between = f'<tr><td colspan="6">… {left_out:,} more classes …</td></tr>'
        rows = _class_rows(ordered[:half], ordered, split) + between
        rows += _class_rows(ordered[-half:], ordered, split)
    else:
        rows = _class_rows(ordered, ordered, split)
    caption = (
        '<span class="key train"></span> train <span class="key val"></span> val'
        if split
        else "Boxes of each class"
    )
    return (
        f'<div class="table"><table><caption>{caption}</caption><thead><tr>'
        f'<th scope="col">Class</th><th scope="col">Share of boxes</th>{heads}'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _class_rows(shown: Sequence[ClassCount], ordered: Sequence[ClassCount], split: bool) -> str:
    most = ordered[0].boxes
    rows = []
    for counted in shown:
        numbers = [counted.boxes, counted.images]
        if split:
            numbers += [counted.train_images, counted.val_images]
        cells = "".join(f'<td class="n">{number:,}</td>' for number in numbers)
        rows.append(
            f'<tr><th scope="row"><bdi>{safe(counted.name)}</bdi></th>'
            f'<td class="wide">{class_bar(counted, most)}</td>{cells}</tr>'
        )
    return "".join(rows)


def _shown(oddity: Oddity) -> tuple[Case, ...]:
    if oddity.kind.counted == "classes":
        return oddity.cases  # names take no room
    return oddity.cases[: _SHOWN_OF_WARNING if oddity.warns else _SHOWN_OF_OTHER]


def _gallery(oddity: Oddity, pictures: _Pictures) -> str:
    kind = oddity.kind
    cases = _shown(oddity)
    figures = [_figure(case, oddity, pictures) for case in cases]
    tag = ' <span class="tag">warning</span>' if oddity.warns else ""
    limit = f"; the limit is {percent(kind.limit)}" if kind.limit else ""
    if all(figures):
        shown = f'<div class="cases">{"".join(figures)}</div>'
    else:
        listed = "".join(f"<li>{_caption(case, oddity)}</li>" for case in cases)
        shown = f'<ul class="plain">{listed}</ul>'
    first = " The worst first:" if kind.told and len(cases) > 1 else ""
    return (
        f'<section class="gallery" aria-labelledby="{oddity.code}">'
        f'<h3 id="{oddity.code}">{kind.title}{tag}</h3>'
        f"<p>{_counted(oddity)}{limit}. {_sentence(kind.problem)} "
        f'<span class="advice">{_sentence(kind.advice)}</span>{first}</p>{shown}</section>'
    )


def _figure(case: Case, oddity: Oddity, pictures: _Pictures) -> str:
    """A case with its picture, or the pair of them; "" where there is none."""
    drawn = pictures.draw(case.subject, case.boxes)
    if drawn and case.other:
        drawn = f'<div class="pair">{drawn}{pictures.draw(case.other, ())}</div>'
    if not drawn:
        return ""
    return f'<figure class="case">{drawn}<figcaption>{_caption(case, oddity)}</figcaption></figure>'


def _caption(case: Case, oddity: Oddity) -> str:
    told = case.told(oddity.kind)
    value = f"<b>{safe(told)}</b> " if told else ""
    other = f" and <bdi>{safe(case.other)}</bdi>" if case.other else ""
    return f"{value}<bdi>{safe(case.subject)}</bdi>{other}"


def _findings(probe: Probe) -> str:
    if not probe.findings:
        return "<p>Nothing: all files were as they must be.</p>"
    rows = "".join(
        f'<tr><td class="n">{count:,}</td><td>{_SEVERITIES[severity]}</td>'
        f'<th scope="row"><code>{safe(code)}</code></th>'
        f"<td>{safe(PROBLEMS.get(code, ''))}</td></tr>"
        for severity, code, count in probe.findings
    )
    return (
        '<div class="table"><table><thead><tr><th scope="col" class="n">Number</th>'
        '<th scope="col">Kind</th><th scope="col">Code</th><th scope="col">What is wrong</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )
