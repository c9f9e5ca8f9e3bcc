import pytest

from perdure.datasets.findings import Findings
from perdure.datasets.formats.yolo_config import Place, YoloConfig, parse_config


def parse(text: str) -> tuple[YoloConfig, list[tuple[str, int | None]]]:
    findings = Findings()
    config = parse_config(text, "data.yaml", findings)
    return config, [(found.code, found.line) for found in findings]


@pytest.mark.parametrize(
    "names",
    [
        "[bird, fox]",
        "{0: bird, 1: fox}",
        "{1: fox, 0: bird}",
        "\n- bird\n- fox",
        "\n  0: bird\n  1: 'fox'",
    ],
)
def test_names_are_a_list_or_a_mapping(names):
    config, faults = parse(f"names: {names}\n")
    assert (config.classes, faults) == (("bird", "fox"), [])


def test_names_keep_their_spelling():
    # To YAML 1.1 these are False, 1, 8 and a float.
    assert parse("names: [no, 1, 010, 1.0]")[0].classes == ("no", "1", "010", "1.0")


def test_a_split_may_be_a_folder_or_a_list():
    config, faults = parse("path: ../set\ntrain: [a, b]\nval: c\ntest:\nnames: [x]\n")

    assert config.path == "../set"
    assert config.splits == {"train": (Place("a", 2), Place("b", 2)), "val": (Place("c", 3),)}
    assert faults == []


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("train: a\nnames: {0: bird, 2: fox}", "yaml.names", 2),
        ("train: a\nnames:\n  0: bird\n  1:bear\n  2: fox\n", "yaml.names", 4),
        ("names:\n  0:bird\n  1:bear\n", "yaml.names", 2),
        ("names: [bird, bird]", "yaml.names", 1),
        ("names: [bird, '']", "yaml.names", 1),
        ("names:\n- bird\n- [fox]", "yaml.names", 3),
        ('names: ["a\\u0007"]', "yaml.names", 1),
        ("names: {zero: bird}", "yaml.names", 1),
        ("names: {0: bird, 0: fox}", "yaml.names", 1),
        ("names: []", "yaml.names", 1),
        ("names: bird", "yaml.names", 1),
        ("nc: 2\ntrain: a", "yaml.names", 1),
        ("names: [bird]\nnc: 2", "yaml.nc-mismatch", 2),
        ("names: [bird]\nnames: [fox]", "yaml.invalid", 2),
        ("names: [bird]\ntrain: {a: b}", "yaml.path", 2),
        ("names: [bird]\npath: [a]", "yaml.path", 2),
        ("names: [bird]\ntrain: []", "yaml.path", 2),
        ("names: [bird]\nkpt_shape: 17", "yaml.invalid", 2),
        ("names: [bird]\nkpt_shape: [17, 4]", "yaml.invalid", 2),
        ("nc: 1\nnames: [bi\x01rd]", "yaml.invalid", 2),
        ("names: [bird", "yaml.invalid", 1),
        ("- names", "yaml.invalid", None),
        ("", "yaml.invalid", None),
        ("a: 1\n---\nb: 2", "yaml.invalid", 1),
        ("names: [bird]\ndownload: rm -rf ~", "yaml.download-ignored", 2),
    ],
)
def test_faults_are_found_with_their_line(text, code, line):
    assert parse(text)[1] == [(code, line)]


def test_the_shape_of_keypoints_gives_the_fields_that_they_take():
    assert parse("names: [bird]\nkpt_shape: [17, 3]\n")[0].keypoint_fields == 51
    assert parse("names: [bird]\nkpt_shape:\n- 4\n- 2\n")[0].keypoint_fields == 8
    assert parse("names: [bird]\n")[0].keypoint_fields == 0


def test_nothing_is_built_from_tags():
    config, faults = parse("names: !!python/object/apply:os.system ['touch pwned']\n")
    assert config.classes == ("touch pwned",)  # a list of text with a tag that means nothing here
    assert faults == []


def test_alias_bombs_and_deep_nesting_are_refused_at_once():
    laughs = "a0: &a0 [x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
    )
    assert parse(laughs + "names: [bird]")[1] == [("yaml.invalid", None)]
    assert parse("names: " + "[" * 100_000)[1] == [("yaml.invalid", None)]
