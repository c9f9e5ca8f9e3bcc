"""The page of a probe: whole without the network, safe with hostile names, and within its size."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from perdure.datasets import probe_report
from perdure.datasets.check import CheckResult, check
from perdure.datasets.probe_charts import histogram, safe
from perdure.datasets.probe_oddities import ClassCount
from perdure.datasets.probe_pictures import PICTURE_PX, picture
from perdure.datasets.probe_report import report
from perdure.datasets.probes import Histogram, Probe, probe
from tests.builders.datasets import encoded, write_files

CLASS = "<img src=x onerror=alert(1)>\"'&</style><script>alert(2)</script>"
TITLE = "\u202e</title>" + CLASS
TAGS = re.compile(
    r"html|head|meta|title|style|body|header|main|section|footer|h[123]|p|a|bdi|code|small|b|span"
    r"|div|dl|dt|dd|ul|li|figure|figcaption|img|table|caption|thead|tbody|tr|th|td"
    r"|svg|desc|rect|line|text"
)
ATTRIBUTES = re.compile(
    r"(lang|charset|http-equiv|content|name|id|class|href|src|alt|scope|colspan|role|viewbox|title"
    r"|aria-[a-z]+|x|y|x1|x2|y1|y2|width|height|rx|text-anchor|preserveaspectratio)"
)


class Page(HTMLParser):
    """All tags of a page with their attributes; whether they are closed in order."""

    VOID = frozenset({"meta", "img", "rect", "line"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def odd_files() -> dict[str, str | bytes]:
    """Twelve images; the class's name is hostile, and so are names of images. Some are odd."""
    rng = np.random.default_rng(2)
    files: dict[str, str | bytes] = {
        "data.yaml": f"train: images\nnames: [bird, {json.dumps(CLASS)}]\n"
    }
    for number in range(12):
        pixels = rng.integers(40, 200, (150, 200, 3), dtype=np.uint8)
        name = f"{number}" if number else "0 \"><b onload=x>'&"
        files[f"images/{name}.png"] = encoded(Image.fromarray(pixels), "PNG")
        files[f"labels/{name}.txt"] = "1 .5 .5 .4 .4\n0 .5 .5 .4 .399\n0 .1 .1 .01 .01\n"
    flat = Image.new("RGB", (200, 150), (9, 9, 9))
    files["images/flat.png"] = files["images/flat copy.png"] = encoded(flat, "PNG")
    return files


@pytest.fixture
def checked(tmp_path) -> CheckResult:
    return check(write_files(tmp_path / "set", odd_files()))


def page_of(checked: CheckResult, found: Probe | None = None) -> str:
    assert checked.manifest is not None
    return report(found or probe(checked), TITLE, checked.manifest, checked.files)


def test_a_page_needs_nothing_from_elsewhere(checked):
    text = page_of(checked)
    page = Page(text)
    for _, attributes in page.tags:
        for name in ("src", "href"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("data:image/jpeg;base64,", "#"))
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    assert "//" not in re.sub(r'src="[^"]*"', "", text)
    targets = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    links = {(link["href"] or "")[1:] for link in page.of("a")}
    assert links
    assert links <= targets


def test_its_policy_forbids_scripts_and_requests(checked):
    text = page_of(checked)
    charset, policy = Page(text).of("meta")[:2]  # before anything that it has to judge
    assert charset == {"charset": "utf-8"}
    assert policy["http-equiv"] == "Content-Security-Policy"
    [style] = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy["content"] == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashed}'; base-uri 'none'; "
        "form-action 'none'"
    )


def test_hostile_names_stay_text(checked):
    text = page_of(checked)
    page = Page(text)
    assert all(TAGS.fullmatch(tag) for tag, _ in page.tags)
    for _, attributes in page.tags:
        assert all(ATTRIBUTES.fullmatch(name) for name in attributes), attributes
    assert "\u202e" not in text
    assert CLASS in page.words
    assert TITLE.replace("\u202e", "\ufffd") in page.words
    assert any("0 \"><b onload=x>'&.png" in word for word in page.words)


def test_charts_and_pictures_have_words(checked):
    page = Page(page_of(checked))
    for svg in page.of("svg"):
        assert svg["role"] == "img"
        assert svg.get("aria-label") or svg.get("aria-labelledby")
    assert all(image["alt"] for image in page.of("img"))
    named = [part for svg in page.of("svg") for part in (svg.get("aria-labelledby") or "").split()]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert set(named) <= set(ids)
    assert len(ids) == len(set(ids))
    assert "prefers-color-scheme: dark" in page_of(checked)


def test_what_is_wrong_comes_first_with_its_number(checked):
    words = "".join(Page(page_of(checked)).words)
    assert "things to look at" in words
    verdict = words[words.index("things to look at") : words.index("Share of boxes")]
    assert "12 of 36 boxes, 33 %" in verdict
    assert "Objects with two classes" in verdict
    assert "Decide what the object is" in verdict


def test_a_set_in_which_nothing_is_odd_says_so(tmp_path):
    files = odd_files()
    for name in [name for name in files if "flat" in name]:
        del files[name]
    files["data.yaml"] = "train: images\nnames: [bird]\n"
    labels = {name: "0 .5 .5 .4 .4\n" for name in files if name.startswith("labels/")}
    text = page_of(check(write_files(tmp_path / "set", files | labels)))
    assert "Nothing stands out" in text
    assert Page(text).of("img") == []


def test_pictures_are_small_and_bounded_in_all(checked, monkeypatch):
    uris = [image["src"] or "" for image in Page(page_of(checked)).of("img")]
    assert len(uris) > 20
    for uri in uris:
        image = Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))
        assert image.format == "JPEG"
        assert max(image.size) <= PICTURE_PX
    monkeypatch.setattr(probe_report, "MAX_PICTURES_BYTES", 20_000)
    fewer = [image["src"] or "" for image in Page(page_of(checked)).of("img")]
    assert 0 < len(fewer) < len(uris)
    assert sum(map(len, fewer[:-1])) < 20_000


def test_it_is_the_same_each_time(checked):
    assert page_of(checked) == page_of(checked)


def test_images_that_are_gone_are_left_out(checked):
    found = probe(checked)
    for file in checked.files.values():
        file.write_bytes(b"gone")
    text = page_of(checked, found)
    assert Page(text).of("img") == []
    assert "flat.png" in text


def test_of_many_classes_the_most_and_the_least_frequent_are_listed(checked):
    found = probe(checked)
    classes = tuple(ClassCount(f"class {n:04}", 5000 - n, 1, 0, 0, 0, 0) for n in range(3000))
    text = page_of(checked, Probe(**(vars(found) | {"classes": classes})))
    assert "class 0000" in text
    assert "class 2999" in text
    assert "class 1500" not in text
    assert "2,960 more classes" in text


def test_all_progress_is_told(checked):
    told: list[tuple[int, int]] = []
    found = probe(checked)
    report(found, "", checked.manifest, checked.files, lambda *step: told.append(step))
    kinds = len(found.oddities)
    assert told == [(number, kinds) for number in range(1, kinds + 1)]


# ---- pictures ------------------------------------------------------------------------------------


def drawn(tmp_path: Path, size: tuple[int, int], boxes, marked) -> np.ndarray:
    (tmp_path / "a.png").write_bytes(encoded(Image.new("RGB", size, (0, 0, 90)), "PNG"))
    jpeg = picture(tmp_path / "a.png", boxes, marked)
    return np.asarray(Image.open(io.BytesIO(jpeg)).convert("RGB"), np.int16)


def is_marked(pixels: np.ndarray) -> np.ndarray:
    """Where the picture is orange, which is the colour of the boxes that are meant."""
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    return (red > 170) & (green > 90) & (green < 215) & (blue < 130)


def test_a_marked_box_is_drawn_where_it_is(tmp_path):
    pixels = drawn(tmp_path, (480, 240), [(0, 0.5, 0.5, 0.5, 0.5), (0, 0.1, 0.1, 0.1, 0.1)], [0])
    assert pixels.shape == (120, 240, 3)
    rows, columns = np.nonzero(is_marked(pixels))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == pytest.approx(
        (30, 90, 60, 180), abs=2
    )


def test_a_small_box_is_shown_enlarged_with_its_surroundings(tmp_path):
    # 40 x 20 pixels at (900, 300): a square of 160 pixels around it, enlarged 1.5 times.
    pixels = drawn(tmp_path, (1000, 600), [(0, 0.9, 0.5, 0.04, 1 / 30)], [0])
    assert pixels.shape == (240, 240, 3)
    rows, columns = np.nonzero(is_marked(pixels))
    assert rows.max() - rows.min() == pytest.approx(30, abs=4)
    assert columns.max() - columns.min() == pytest.approx(60, abs=4)
    assert (rows.mean(), columns.mean()) == pytest.approx((120, 120), abs=4)


def test_a_box_in_the_corner_of_a_small_image_is_shown(tmp_path):
    pixels = drawn(tmp_path, (30, 20), [(0, 0.99, 0.99, 0.02, 0.02)], [0])
    assert max(pixels.shape) == PICTURE_PX
    assert is_marked(pixels).any()


def test_other_boxes_are_no_more_than_hinted_at(tmp_path):
    pixels = drawn(tmp_path, (200, 200), [(0, 0.5, 0.5, 0.5, 0.5)], [])
    assert not is_marked(pixels).any()
    assert (pixels[50, 60:140].sum(axis=1) > 300).all()


# ---- charts --------------------------------------------------------------------------------------


def bars(text: str) -> list[tuple[float, float, float]]:
    """Of each bar its left edge, its top and its height."""
    found = re.findall(
        r'class="bar" x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"', text
    )
    return [(float(x), float(y), float(height)) for x, y, height in found]


def test_bars_are_as_tall_as_what_they_count_and_the_rare_can_be_seen():
    edges = tuple(float(16 * n) for n in range(17))
    counts = (0,) * 4 + (50, 100, 1) + (0,) * 9
    text = histogram(Histogram("brightness", edges, counts))
    assert [height for _, _, height in bars(text)] == [45, 90, 2]
    assert all(y + height == pytest.approx(98) for _, y, height in bars(text))
    assert "64 to 80: 50 images" in text
    assert "96 to 112: 1 images" in text


def test_a_limit_is_a_line_at_its_place():
    # The limit of contrast is 4, in the middle of the first bar of four: 40 of 320.
    text = histogram(Histogram("contrast", (0, 8, 16, 24, 32), (1, 1, 1, 1)))
    assert re.findall(r'class="limit" x1="([\d.]+)"', text) == ["40.0"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<b>", "&lt;b&gt;"),
        ("a\x00\u202eb\n", "a\ufffd\ufffdb\ufffd"),
        ("\udcff", "\ufffd"),
        ("'\"&", "&#x27;&quot;&amp;"),
    ],
)
def test_text_is_safe(text, expected):
    assert safe(text) == expected
    assert len(safe("x" * 10_000)) < 200
