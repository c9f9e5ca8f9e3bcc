"""Reading JSON that anybody wrote, and naming the places in it."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.findings import Findings
from perdure.datasets.json_file import coordinate, json_text, pointer, read_json, whole_number

TOO_MANY_DIGITS = b"[" + b"9" * 5000 + b"]"


def read(folder: Path, data: bytes, **options) -> tuple[object, list[tuple]]:
    """The value of a file, and code, severity, line, pointer, value of what was found."""
    path = folder / "a.json"
    path.write_bytes(data)
    findings = Findings()
    value = read_json(path, "a.json", findings, **options)
    return value, [(f.code, f.severity.value, f.line, f.pointer, f.value) for f in findings]


def test_objects_and_lists_are_read(tmp_path):
    assert read(tmp_path, b'{"a": [1, 2.5, null, true, "x"]}') == (
        {"a": [1, 2.5, None, True, "x"]},
        [],
    )
    assert read(tmp_path, b"[]") == ([], [])


@pytest.mark.parametrize(
    ("data", "line", "value"),
    [
        (b"", 1, ""),
        (b'{"a": 1,\n "b" 2}', 2, "2}"),
        (b"[1, 2", 1, ""),
        (b"{}\n{}", 2, "{}"),
        (b"{'a': 1}", 1, "'a': 1}"),
        (b"[" * 100_000, None, ""),
        (b'{"a":' * 100_000, None, ""),
        (TOO_MANY_DIGITS, None, ""),
    ],
)
def test_what_is_no_json_is_an_error_with_its_line(tmp_path, data, line, value):
    assert read(tmp_path, data) == (None, [("json.invalid", "error", line, None, value)])


@pytest.mark.parametrize("data", [b"3", b"null", b'"{}"', b"NaN"])
def test_a_file_must_hold_an_object_or_a_list(tmp_path, data):
    value, found = read(tmp_path, data)
    assert value is None
    assert found == [("json.invalid", "error", None, None, data.decode().strip('"'))]


def test_numbers_that_are_not_finite_are_left_to_the_reader(tmp_path):
    value, found = read(tmp_path, b"[NaN, -Infinity, 1e999]")
    assert math.isnan(value[0])
    assert value[1:] == [-math.inf, math.inf]
    assert found == []


def test_keys_that_are_there_twice_are_errors_with_their_place(tmp_path):
    data = b'{"a": [{}, {"k/~": 1, "k/~": 2, "m": 0, "m": 0, "m": 0}], "b": {"c": 1, "c": 1}}'
    value, found = read(tmp_path, data)
    assert value == {"a": [{}, {"k/~": 2, "m": 0}], "b": {"c": 1}}
    assert sorted(found) == [
        ("json.invalid", "error", None, "/a/1/k~1~0", "k/~"),
        ("json.invalid", "error", None, "/a/1/m", "m"),
        ("json.invalid", "error", None, "/b/c", "c"),
    ]


def test_a_key_that_is_there_twice_in_what_was_replaced_has_no_place(tmp_path):
    _, found = read(tmp_path, b'{"a": {"b": 1, "b": 2}, "a": 3}')
    assert sorted(found, key=str) == [
        ("json.invalid", "error", None, "/a", "a"),
        ("json.invalid", "error", None, None, "b"),
    ]


@pytest.mark.parametrize(
    ("encoding", "name"),
    [("utf-8-sig", "UTF-8 with a byte order mark"), ("utf-16", "UTF-16"), ("gb18030", "GB18030")],
)
def test_other_encodings_are_read_and_recorded(tmp_path, encoding, name):
    value, found = read(tmp_path, '{"name": "鸟类"}'.encode(encoding))
    assert value == {"name": "鸟类"}
    assert found == [("text.encoding", "info", None, None, name)]


def test_bytes_that_are_no_text_are_refused(tmp_path):
    value, found = read(tmp_path, b'{"a": "\xff"}')
    assert value is None
    assert [code for code, *_ in found] == ["text.encoding"]


def test_a_file_above_the_limit_is_not_read(tmp_path):
    assert read(tmp_path, b"[1,2]", max_bytes=5) == ([1, 2], [])
    value, found = read(tmp_path, b"[1,2]", max_bytes=4)
    assert (value, [code for code, *_ in found]) == (None, ["files.too-large"])


def test_names_that_utf8_cannot_hold_are_recorded(tmp_path):
    value, found = read(tmp_path, rb'{"\ud800": 1, "\ud800": 2}')
    assert value == {"\ud800": 2}
    assert found == [("json.invalid", "error", None, "/\\ud800", "\\ud800")]


# The examples of RFC 6901, section 5.
@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), ""),
        (("foo",), "/foo"),
        (("foo", 0), "/foo/0"),
        (("",), "/"),
        (("a/b",), "/a~1b"),
        (("c%d",), "/c%d"),
        (("e^f",), "/e^f"),
        (("g|h",), "/g|h"),
        (("i\\j",), "/i\\j"),
        (('k"l',), '/k"l'),
        ((" ",), "/ "),
        (("m~n",), "/m~0n"),
        (("~1",), "/~01"),
    ],
)
def test_pointers_are_those_of_rfc_6901(parts, expected):
    assert pointer(*parts) == expected


def test_very_long_keys_are_cut():
    assert pointer("k" * 1000) == "/" + "k" * 119 + "…"


@pytest.mark.parametrize(("value", "expected"), [(3, 3.0), (2.5, 2.5), (-0.0, 0.0), (10**30, 1e30)])
def test_coordinates_are_finite_numbers(value, expected):
    assert coordinate(value) == expected


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ("3", "label.not-a-number", '"3"'),
        (None, "label.not-a-number", "null"),
        (True, "label.not-a-number", "true"),
        ([1], "label.not-a-number", "[1]"),
        ({"a": 1}, "label.not-a-number", "an object of 1 keys"),
        (math.nan, "label.not-finite", "NaN"),
        (-math.inf, "label.not-finite", "-Infinity"),
        (10**309, "label.not-finite", str(10**309)),
    ],
)
def test_other_values_are_no_coordinates(value, code, said):
    fault = coordinate(value)
    assert (fault.code, fault.value) == (code, said)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (7.0, 7),
        ("7", 7),
        (" 007 ", 7),
        ("-7.0", -7),
        (True, None),
        (7.5, None),
        (math.nan, None),
        (math.inf, None),
        ("7.5", None),
        ("", None),
        ("\u0667", None),
        ("9" * 20, None),
        (10**19 - 1, 10**19 - 1),
        (10**19, None),
        (-(10**400), None),
        (1e300, None),
        (None, None),
        ([7], None),
    ],
)
def test_whole_numbers_may_be_written_as_text_or_with_a_point(value, expected):
    assert whole_number(value) == expected


def test_long_values_are_not_quoted_whole():
    assert json_text(list(range(13))) == "a list of 13 values"
    assert json_text([[1, 2]]) == "a list of 1 values"
    assert json_text([1, "ü"]) == '[1, "ü"]'


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_give_a_value_or_a_finding(tmp_path_factory, data):
    value, found = read(tmp_path_factory.getbasetemp(), data)
    if value is None:
        assert [severity for _, severity, *_ in found].count("error") == 1
    else:
        assert isinstance(value, dict | list)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.lists(VALUES) | st.dictionaries(st.text(), VALUES))
def test_what_json_writes_is_read_back(tmp_path_factory, value):
    data = json.dumps(value).encode()
    assert read(tmp_path_factory.getbasetemp(), data) == (value, [])
