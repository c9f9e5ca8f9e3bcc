"""Findings: their order, their counts, and that any number of them fits into memory."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.datasets.findings import Fault, Findings, Severity, encodable, quoted
from perdure.datasets.problems import PROBLEMS

MILLION = 1_000_000
# A million findings in a process of its own: how much the largest memory it had grew, and what came
# out of it.
COUNT_A_MILLION = f"""
import json, resource
from perdure.datasets.findings import Fault, Findings, Severity

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

SEVERITIES = tuple(Severity)
findings = Findings()
before = peak()
for number in range({MILLION}):
    severity, value = SEVERITIES[number % 3], f"1 2 nan {{number}}"
    fault = Fault(severity, "label.not-finite", value, "rule", "advice")
    findings.add(fault, f"labels/{{number * 7919 % 50_000:06}}.txt", number % 97)
last, ordered, count = (0, "", 0), True, 0
for found in findings:
    key = (SEVERITIES.index(found.severity), found.file, found.line)
    ordered = ordered and last <= key
    last, count = key, count + 1
print(json.dumps({{
    "grown_kib": peak() - before,
    "ordered": ordered,
    "count": count,
    "errors": findings.number_of(Severity.ERROR),
    "groups": [(group.count, len(group.first)) for group in findings.groups(5)],
    "first": [(found.file, found.line) for found in findings[:2]],
}}))
"""
# Measured: 5 MiB. As objects in a list, a million findings take more than 500 MiB.
MOST_GROWTH_KIB = 32 << 10


def fault(severity: Severity = Severity.ERROR, code: str = "label.not-finite", **words) -> Fault:
    return Fault(severity, code, **({"value": "nan", "rule": "rule", "advice": "advice"} | words))


def places(findings) -> list[tuple[str, str, int | None]]:
    return [(str(found.severity), found.file, found.line) for found in findings]


def test_errors_come_first_then_files_and_lines_in_order():
    findings = Findings()
    findings.add(fault(Severity.INFO), "a.txt", 1)
    findings.add(fault(), "b.txt", 10)
    findings.add(fault(), "b.txt", 9)
    findings.add(fault(Severity.WARNING), "a.txt", 5)
    findings.add(fault(), "b.txt")
    findings.add(fault(), "a.txt", 11)

    assert places(findings) == [
        ("error", "a.txt", 11),
        ("error", "b.txt", None),
        ("error", "b.txt", 9),
        ("error", "b.txt", 10),
        ("warning", "a.txt", 5),
        ("info", "a.txt", 1),
    ]
    assert places(findings[1:3]) == places(findings)[1:3]
    assert findings[4].severity is Severity.WARNING


def test_findings_of_one_place_keep_the_order_in_which_they_were_met():
    findings = Findings()
    for value in ("3", "1", "2"):
        findings.add(fault(value=value), "a.txt", 7)
    assert [found.value for found in findings] == ["3", "1", "2"]


def test_counts_are_by_severity_and_code():
    findings = Findings()
    for _ in range(3):
        findings.add(fault(Severity.WARNING, "label.clipped"), "a.txt")
    findings.add(fault(Severity.INFO, "label.degenerate-box"), "a.txt")
    findings.add(fault(Severity.ERROR, "label.degenerate-box"), "a.txt")

    assert len(findings) == 5
    assert [findings.number_of(severity) for severity in Severity] == [1, 3, 1]
    assert findings.codes() == {"label.clipped": 3, "label.degenerate-box": 2}
    assert list(findings.codes()) == ["label.clipped", "label.degenerate-box"]
    assert findings.codes(Severity.ERROR) == {"label.degenerate-box": 1}


def test_groups_have_the_first_of_each_and_say_what_they_share():
    findings = Findings()
    for line in range(9, 0, -1):
        findings.add(fault(Severity.WARNING, "label.clipped"), "a.txt", line)
    findings.add(fault(advice="one"), "b.txt")
    findings.add(fault(advice="other"), "a.txt")
    findings.add(fault(problem="in words of its own"), "a.txt")

    first, second = findings.groups(shown=2)
    assert (first.severity, first.code, first.count) == (Severity.ERROR, "label.not-finite", 3)
    assert (first.same_problem, first.same_advice) == (False, False)
    assert places(first.first) == [("error", "a.txt", None)] * 2
    assert (second.severity, second.code, second.count) == (Severity.WARNING, "label.clipped", 9)
    assert (second.same_problem, second.same_advice) == (True, True)
    assert [found.line for found in second.first] == [1, 2]


def test_what_was_collected_apart_is_taken_over():
    findings, apart = Findings(), Findings()
    findings.add(fault(), "b.txt", 2)
    apart.add(fault(Severity.INFO), "a.txt", pointer="/x/0")
    apart.add(fault(), "b.txt", 1)
    findings.take_over(apart)

    assert places(findings) == [
        ("error", "b.txt", 1),
        ("error", "b.txt", 2),
        ("info", "a.txt", None),
    ]
    assert findings[2].pointer == "/x/0"
    assert len(apart) == 2


def test_findings_may_be_added_while_others_are_read():
    findings = Findings()
    findings.add(fault(), "a.txt")
    reading = iter(findings)
    findings.add(fault(), "b.txt")
    assert next(reading).file == "a.txt"
    assert len(list(findings)) == 2


@pytest.mark.parametrize("index", [2, -1])
def test_a_finding_that_there_is_none_of_is_an_index_error(index):
    findings = Findings()
    findings.add(fault(), "a.txt")
    findings.add(fault(), "a.txt")
    with pytest.raises(IndexError, match="there are 2 findings"):
        findings[index]


def test_a_finding_as_json_and_as_text():
    findings = Findings()
    findings.add(fault(value="1 nan"), "a.json", pointer="/boxes/0")
    [found] = findings
    assert json.loads(json.dumps(found.to_json())) == {
        "code": "label.not-finite",
        "severity": "error",
        "file": "a.json",
        "line": None,
        "pointer": "/boxes/0",
        "value": "1 nan",
        "problem": PROBLEMS["label.not-finite"],
        "rule": "rule",
        "advice": "advice",
    }
    assert found.text() == (
        "a.json/boxes/0: error: label.not-finite: '1 nan': "
        f"{PROBLEMS['label.not-finite']}; rule; advice"
    )


def test_a_value_is_quoted_and_not_reproduced():
    assert quoted("x" * 120) == "x" * 120
    assert quoted("x" * 121) == "x" * 119 + "…"
    findings = Findings()
    findings.add(fault(value="y" * 5_000_000), "a.txt")
    assert len(findings[0].value) == 120


@given(st.text(st.characters(), max_size=20), st.text(st.characters(), max_size=20))
def test_any_text_in_a_finding_comes_back_fit_for_utf_8(file, value):
    findings = Findings()
    findings.add(fault(value=value, problem=value or "problem"), file, 1, value)
    [found] = findings
    assert (found.file, found.value) == (encodable(file), quoted(value))
    json.dumps(found.to_json(), ensure_ascii=False).encode()


def test_a_million_findings_are_counted_and_in_order_and_need_little_memory():
    done = subprocess.run(
        [sys.executable, "-c", COUNT_A_MILLION],
        capture_output=True,
        timeout=240,
        text=True,
        check=True,
    )
    result = json.loads(done.stdout)

    assert result["count"] == MILLION
    assert result["ordered"]
    assert result["errors"] == 333_334
    assert result["groups"] == [[333_334, 5], [333_333, 5], [333_333, 5]]
    # Errors are the numbers that 3 divides, and those that 50,000 divides are in the first file.
    # Their lines are the remainders by 97: of 0, 150,000, 300,000, 450,000 they are 0, 38, 76, 17.
    assert result["first"] == [["labels/000000.txt", 0], ["labels/000000.txt", 17]]
    assert result["grown_kib"] < MOST_GROWTH_KIB
