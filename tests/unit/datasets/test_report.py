"""Findings as people read them: what is wrong comes first."""

import re
from pathlib import Path

import pytest

import perdure.datasets
from perdure.cli.findings import print_findings
from perdure.datasets.check import check
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.problems import PROBLEMS
from perdure.datasets.report import count_findings, describe_findings
from tests.builders.datasets import picture, write_files, yolo_files

SOURCE = Path(perdure.datasets.__file__).parent


def printed(capsys, folder: Path) -> list[str]:
    print_findings(check(folder))
    return capsys.readouterr().out.splitlines()


def test_every_code_has_words_for_its_problem_and_no_words_are_left_over():
    text = "".join(path.read_text() for path in SOURCE.rglob("*.py") if path.name != "problems.py")
    used = set(
        re.findall(
            r'"((?:classes|coco|csv|cvat|files|format|image|json|label|label-studio|split|text|voc|xml|yaml)'
            r'\.[a-z0-9-]+)"',
            text,
        )
    )
    no_codes = {"files.changed", "split.json"}  # an exception of the store, and a file
    assert {
        code for code in used if not code.endswith((".txt", ".yaml", ".yml"))
    } - no_codes == set(PROBLEMS)


def test_rules_are_worded_as_requirements(tmp_path):
    files = yolo_files(3) | {
        "data.yaml": "train: images\nval: nowhere\nnc: 3\nnames: [bird, fox]\ndownload: x\n",
        "labels/0.txt": "9 0.5 0.5 0.1 0.1\n0 nan 2 0.1 x\n0 1 1 1 0\n0 1\n0 1,0 1 1 1 1\n",
        "labels/9.txt": "",
        "images/1.jpg": picture(1)[:90],
    }
    found = check(write_files(tmp_path / "set", files)).findings
    assert len({finding.code for finding in found}) > 8
    for finding in found:
        assert re.search(r"\b(must|may)\b", finding.rule), finding


def test_the_terminal_says_what_is_wrong_and_has_no_empty_lines(tmp_path, capsys):
    lines = printed(
        capsys,
        write_files(tmp_path / "a", yolo_files(2) | {"labels/0.txt": "", "labels/1.txt": ""}),
    )
    assert lines[0] == "error label.none: no box was found in any label file"
    assert lines[1].startswith("  a data set must have at least one box; see that")
    assert lines[2:] == ["  data.yaml", "2 images, 0 boxes, 1 class: bird", "1 error"]

    lines = printed(capsys, write_files(tmp_path / "b", {"README.txt": ""}))
    assert lines[0] == "error files.no-images: no image was found"
    assert lines[2:] == ["1 error"]


def test_a_value_without_a_place_is_indented_like_the_others(tmp_path, capsys):
    files = yolo_files(3)
    del files["data.yaml"]
    lines = printed(capsys, write_files(tmp_path / "set", files))

    assert lines[0] == "warning classes.unnamed: no file names the classes"
    assert lines[2] == "  class0"
    assert lines[-2:] == ["3 images, 3 boxes, 1 class: class0", "1 warning"]


def test_with_errors_too_the_sizes_are_said(tmp_path, capsys):
    lines = printed(capsys, write_files(tmp_path / "set", yolo_files(3) | {"labels/0.txt": "0 1"}))
    assert lines[-2:] == ["3 images, 2 boxes, 1 class: bird", "1 error"]


def test_what_differs_within_a_group_is_said_with_each_place():
    findings = Findings()
    for line, count in ((1, 3), (2, 4)):
        rule = f"a row must have 5 fields; this one has {count}"
        fault = Fault(Severity.ERROR, "label.field-count", "x", rule, "correct it")
        findings.add(fault, "a.txt", line)

    assert describe_findings(findings, shown=1, more=".") == [
        "error label.field-count (2): a row has the wrong number of fields",
        "  a.txt:1 x - a row must have 5 fields; this one has 3; correct it",
        "  and 1 more.",
    ]


@pytest.mark.parametrize(
    ("severities", "text"),
    [
        ([], "no findings"),
        (["error", "warning", "warning"], "1 error, 2 warnings"),
        (["info", "error", "error"], "2 errors, 1 note"),
    ],
)
def test_counts_have_the_right_plural(severities, text):
    found = Findings()
    for severity in severities:
        found.add(Fault(Severity(severity), "label.none", "", "", ""), "")
    assert count_findings(found) == text
