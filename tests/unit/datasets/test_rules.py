"""The rules of an import: what they may be, and their way through JSON."""

import json
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.datasets.rules import FORMATS, ImportRules, import_rules
from perdure.errors import InvalidInput


def test_without_a_choice_what_is_doubtful_is_refused():
    rules = ImportRules()
    assert (rules.format, rules.box_format, rules.sixth_field, rules.group_by) == (
        None,
        None,
        None,
        "",
    )
    assert (rules.drop_degenerate, rules.allow_leakage, rules.max_skipped) == (False, False, 0.01)
    assert rules.to_json() == {}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"format": "tfrecord"}, "--format is 'tfrecord': give yolo, coco, voc, csv, labelme"),
        ({"box_format": "cxcywh"}, "--box-format is 'cxcywh': give xywh, xyxy"),
        ({"sixth_field": "area"}, "--sixth-field is 'area': give confidence, track"),
        ({"max_skipped": -0.1}, "--max-skipped is -0.1: give a share"),
        ({"max_skipped": 1.1}, "--max-skipped is 1.1: give a share"),
        ({"max_skipped": float("nan")}, "--max-skipped is nan: give a share"),
        ({"group_by": "(a"}, "--group-by is no regular expression"),
        ({"group_by": r"(.)\1"}, "--group-by is no regular expression that can be used (invalid"),
        ({"group_by": "a(?=b)"}, "look-around and back-references cannot be used"),
        ({"group_by": "a{2000}"}, "--group-by is no regular expression"),
        ({"group_by": r"[\pL\pN]{1,900}"}, "(pattern too large - compile failed)"),
        ({"group_by": "\ud800"}, "--group-by is no text (surrogates not allowed)"),
        ({"group_by": "a" * 201}, "--group-by has 201 characters: give at most 200"),
    ],
)
def test_a_value_that_is_none_is_refused_with_the_option_and_what_it_takes(values, said):
    with pytest.raises(InvalidInput) as raised:
        ImportRules(**values)
    assert said in str(raised.value)
    with pytest.raises(InvalidInput, match=r"--"):
        import_rules(values)


@pytest.mark.parametrize(
    "values",
    [
        {"fromat": "csv"},
        {"format": 1},
        {"format": None},
        {"format": True},
        {"box_format": ["xyxy"]},
        {"drop_degenerate": 1},
        {"drop_degenerate": "true"},
        {"allow_leakage": None},
        {"max_skipped": True},
        {"max_skipped": "0.1"},
        {"max_skipped": 10**400},
        {"group_by": 3},
    ],
)
def test_json_values_of_another_kind_are_refused_by_name(values):
    with pytest.raises(InvalidInput) as raised:
        import_rules(values)
    assert next(iter(values)).replace("_", "-") in str(raised.value).replace("_", "-")


@pytest.mark.parametrize(
    ("pattern", "path", "group"),
    [
        ("", "a/b.jpg", ""),
        ("^[^_]+", "site1_001.jpg", "site1"),
        (r"(p\d+)_", "images/p12_3.jpg", "p12"),
        (r"(?P<site>s\d)|(x)", "images/x1.jpg", ""),  # only the first group counts
        ("^scene", "images/scene.jpg", ""),
        ("(é+)", "images/caféé_1.jpg", "éé"),
        ("(?i)IMG", "a/img.jpg", "img"),
    ],
)
def test_the_group_is_the_first_group_of_the_match_or_all_of_it(pattern, path, group):
    assert ImportRules(group_by=pattern).group_of(path) == group


# Python's own engine would take more than 2^60 steps for each of them, and not listen meanwhile.
CATASTROPHIC = ("(a+)+$", "(a|aa)+$", "(a|a)*$", "([a-z]+)*$", "(x+x+)+y", "(.*a){30}$", "(a*)*b")
OF_EACH = """
import sys
from perdure.datasets.rules import ImportRules
for pattern in sys.argv[1:]:
    for letter in "ax":
        print(repr(ImportRules(group_by=pattern).group_of("images/" + letter * 4000 + "!")))
"""


def test_no_pattern_takes_longer_than_the_name_is_long():
    # In a process of its own, which can be ended in the middle of a match.
    ran = subprocess.run(
        [sys.executable, "-c", OF_EACH, *CATASTROPHIC], capture_output=True, timeout=20, check=True
    )
    assert ran.stdout.split() == [b"''"] * 2 * len(CATASTROPHIC)


@settings(deadline=timedelta(seconds=2))
@given(st.text("ab(|)*+?{1,9}[^]$.\\", max_size=40), st.text("ab.", max_size=200))
def test_any_pattern_finds_something_in_the_name_or_nothing(pattern, path):
    with suppress(InvalidInput):
        assert ImportRules(group_by=pattern).group_of(path) in path


RULES = st.builds(
    ImportRules,
    format=st.none() | st.sampled_from(FORMATS),
    box_format=st.none() | st.sampled_from(["xywh", "xyxy"]),
    sixth_field=st.none() | st.sampled_from(["confidence", "track"]),
    drop_degenerate=st.booleans(),
    max_skipped=st.floats(0, 1),
    allow_leakage=st.booleans(),
    group_by=st.sampled_from(["", "^[a-z]+_", "(.*)-"]),
)


@given(RULES)
def test_rules_come_back_from_json_as_they_were(rules):
    values = json.loads(json.dumps(rules.to_json()))
    assert import_rules(values) == rules


ANY_VALUE = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
)


@given(
    st.dictionaries(
        st.sampled_from([*ImportRules.__dataclass_fields__, "other"]) | st.text(), ANY_VALUE
    )
)
@example({"group_by": "(" * 200})
@example({"group_by": "(?P<" * 40})
def test_any_json_gives_rules_or_is_refused(values):
    with suppress(InvalidInput):
        assert import_rules(values) == ImportRules(**values)


@given(st.text(max_size=40))
def test_any_pattern_is_a_regular_expression_or_refused(pattern):
    with suppress(InvalidInput):
        assert ImportRules(group_by=pattern).group_by == pattern
