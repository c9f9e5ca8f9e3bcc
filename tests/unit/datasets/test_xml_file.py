"""Reading XML that is not trusted."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.findings import Findings
from perdure.datasets.xml_file import Element, read_parts, read_xml

DECLARED = '<?xml version="1.0" encoding="{}"?>\n<a>\n<name>车</name></a>'
PLACE = tuple[str, str, int | None, str]


def read(folder: Path, content: bytes, **options) -> tuple[Element | None, list[PLACE]]:
    path = folder / "a.xml"
    path.write_bytes(content)
    findings = Findings()
    root = read_xml(path, "a.xml", findings, **options)
    return root, [(f.code, f.severity, f.line, f.value) for f in findings]


def test_elements_have_their_text_attributes_and_line(tmp_path):
    root, found = read(
        tmp_path, b'<a>\n <b x="1" y="&lt;">\r\n  two <c/>words \n </b>\n <b/>\n <d/></a>'
    )

    assert found == []
    assert (root.tag, root.line, len(root.children)) == ("a", 1, 3)
    first, second = root.all("b")
    assert (first.line, first.text, dict(first.attributes)) == (
        2,
        "two words",
        {"x": "1", "y": "<"},
    )
    assert (second.line, second.text, second.children) == (5, "", ())
    assert root.first("d").line == 6
    assert root.first("e") is None


LAUGHS = b"""<?xml version="1.0"?>
<!DOCTYPE a [
 <!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">
]>
<a>&lol2;</a>"""


@pytest.mark.parametrize(
    ("content", "line", "value"),
    [
        (LAUGHS, 2, "<!DOCTYPE a"),
        (b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<a>&x;</a>', 1, "<!DOCTYPE a"),
        (b'\n\n<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd"><a/>', 3, "<!DOCTYPE a"),
        (b'<!DOCTYPE a PUBLIC "x" "http://127.0.0.1:9/a.dtd" [%x;]><a/>', 1, "<!DOCTYPE a"),
        (b"<!DOCTYPE a><a/>", 1, "<!DOCTYPE a"),
        (b'<!DOCTYPE a [<!ATTLIST a b CDATA "c">]><a/>', 1, "<!DOCTYPE a"),
        (b"<a>\n<b>&nbsp;</b></a>", 2, "undefined entity"),
    ],
)
def test_a_document_type_and_entities_are_refused_and_nothing_is_expanded(
    tmp_path, content, line, value
):
    assert read(tmp_path, content) == (None, [("xml.forbidden", "error", line, value)])


@pytest.mark.parametrize(
    ("content", "line", "value"),
    [
        (b"", 1, "no element found"),
        (b"<a>\n<b>\n</a>", 3, "mismatched tag"),
        (b"<a/>\n<b/>", 2, "junk after document element"),
        (b"<a>\n<b", 2, "unclosed token"),
        (b'<a b="1" b="2"/>', 1, "duplicate attribute"),
        (b"<a>" * 65, 1, "elements are nested more than 64 deep"),
        (b"<a><c>" + b"<b/>" * 500_000, 1, "there are more than 500000 elements"),
        (b"<a>" + b"<b/>" * 500_000 + b"</a>", 1, "there are more than 500000 elements"),
        (
            b'<a>\n<b c="' + b"x" * (5 << 20) + b'"/></a>',
            2,
            "a tag or a comment has more than 4194304 bytes",
        ),
    ],
)
def test_what_is_not_well_formed_or_has_no_bounds_is_refused_at_its_line(
    tmp_path, content, line, value
):
    assert read(tmp_path, content) == (None, [("xml.invalid", "error", line, value)])


@pytest.mark.parametrize(
    ("declared", "encoding", "recorded"),
    [
        ("UTF-8", "utf-8", None),
        ("UTF-8", "utf-8-sig", "UTF-8 with a byte order mark"),
        ("utf-16", "utf-16", "UTF-16"),
        ("utf-16", "utf-16-le", "UTF-16"),
        ("utf-16", "utf-16-be", "UTF-16"),
        ("utf-16", "utf-8", None),  # as .NET's StringWriter says, whatever the file is
        ("GB2312", "gb2312", "GB18030"),
        ("gbk", "gbk", "GB18030"),
        ("GB18030", "gb18030", "GB18030"),
        ("utf-8", "gbk", "GB18030"),  # written on Windows, where open() has its own default
        ("Big5", "utf-8", "error"),  # not what it says
        ("Shift_JIS", "shift_jis", "Shift_JIS"),
    ],
)
def test_other_encodings_are_read_and_recorded(tmp_path, declared, encoding, recorded):
    text = DECLARED.format(declared)
    if declared == "Shift_JIS":
        text = text.replace("车", "車")
    root, found = read(tmp_path, text.encode(encoding))

    if recorded == "error":
        [(code, severity, _, value)] = found
        assert (root, code, severity) == (None, "text.encoding", "error")
        assert value.endswith("in Big5")
        return
    assert root.first("name").text in "车車"
    assert root.first("name").line == 3
    assert found == ([("text.encoding", "info", None, recorded)] if recorded else [])


def test_latin_1_is_read_as_it_is_declared(tmp_path):
    root, found = read(tmp_path, b'<?xml version="1.0" encoding="latin1"?><a><b>\xe9</b></a>')
    assert root.first("b").text == "é"
    assert found == [("text.encoding", "info", None, "latin1")]


@pytest.mark.parametrize("name", ["zlib", "idna", "unicode_escape", "utf-7", "utf-32", "klingon"])
def test_what_is_no_encoding_of_text_is_refused(tmp_path, name):
    content = f'<?xml version="1.0" encoding="{name}"?><a/>'.encode()
    assert read(tmp_path, content) == (None, [("text.encoding", "error", None, name)])


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "a.xml"
    path.write_bytes(b"<a></a>")
    findings = Findings()

    assert list(read_parts(path, "a.xml", findings, max_bytes=6)) == [None]
    assert [(f.code, f.value) for f in findings] == [("files.too-large", "7")]


def test_the_parts_before_a_fault_are_given(tmp_path):
    path = tmp_path / "a.xml"
    path.write_bytes(b"<a>\n<b>1</b>\n<b>2</b>\n<b>3</c></a>")
    findings = Findings()
    root, *parts = read_parts(path, "a.xml", findings)

    assert (root.tag, root.children) == ("a", ())
    assert [part and part.text for part in parts] == ["1", "2", None]
    assert [(f.code, f.line) for f in findings] == [("xml.invalid", 4)]


def test_many_parts_are_read_without_being_held(tmp_path):
    path = tmp_path / "a.xml"
    path.write_bytes(b"<a>" + b"<b/>" * 500_001 + b"</a>")
    findings = Findings()

    assert sum(part is not None for part in read_parts(path, "a.xml", findings)) == 500_002
    assert len(findings) == 0


PIECES = st.sampled_from(
    [
        *(b"<a>", b"</a>", b"<b c='d'>", b"</b>", b"<?xml", b"&lt;", b"&#0;", b"&#xD800;"),
        *(b"<!DOCTYPE a [", b"<!ENTITY e '&e;'>", b"]>"),
        *(b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\0", b"\x81\x30"),
        b'<?xml version="1.0" encoding="gbk"?>',
        b'<?xml version="1.0" encoding="utf-16"?>',
    ]
)


@given(st.lists(PIECES | st.binary(max_size=6), max_size=12).map(b"".join))
def test_arbitrary_bytes_give_a_tree_or_an_error(content):
    with tempfile.TemporaryDirectory() as folder:
        root, found = read(Path(folder), content)
    assert (root is None) == any(severity == "error" for _, severity, *_ in found)
