"""data.yaml: class names and where the splits lie.

The file is parsed to YAML nodes and never turned into objects, so that names keep their spelling
(`no` is a name, not False), each fault has its line, and nothing in it is ever run.
"""

import re
from dataclasses import dataclass, field
from typing import Final

import yaml

from perdure.datasets.annotation import MAX_CLASSES
from perdure.datasets.findings import Fault, Findings, Severity

# Real files have some hundred bytes; one with 10,000 class names has about 200 KB.
MAX_CONFIG_BYTES: Final = 1 << 20
# A list of names in a mapping is depth 2. Deep nesting and many aliases only occur in attacks.
_MAX_DEPTH: Final = 10
_MAX_ALIASES: Final = 16
_MAX_NAME_CHARACTERS: Final = 200
_INTEGER: Final = re.compile(r"\d{1,9}", re.ASCII)

_SPLIT_KEYS: Final = ("train", "val", "test")
GROUPS_KEY: Final = "perdure_groups"  # no other tool uses it


@dataclass(frozen=True)
class Place:
    """A folder or list file as data.yaml names it, and the line in which it does."""

    text: str
    line: int


@dataclass(frozen=True)
class YoloConfig:
    """What data.yaml says. `classes` is None when its names are missing or wrong."""

    classes: tuple[str, ...] | None = None
    path: str = ""
    splits: dict[str, tuple[Place, ...]] = field(default_factory=dict)
    keypoint_fields: int = 0  # fields that kpt_shape of a pose data set adds to each row
    groups: Place | None = None  # the file that says which images stay in one split


def parse_config(text: str, file: str, findings: Findings) -> YoloConfig:
    """Read the text of data.yaml; faults go to `findings` under the name `file`."""
    root = _compose(text, file, findings)
    if root is None:
        return YoloConfig()
    entries: dict[str, yaml.Node] = {}
    for key, value in root.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else ""
        if name in entries:
            _fault(
                findings, file, key, "yaml.invalid", "a key must occur once", "remove one of them"
            )
        entries[name] = value
    classes = _classes(entries, file, root, findings)
    if download := entries.get("download"):
        rule = "a data set must bring its images along: nothing in it is ever run"
        advice = "the entry was ignored: download the images yourself"
        fault = Fault(Severity.WARNING, "yaml.download-ignored", _text(download), rule, advice)
        findings.add(fault, file, _line(download))
    return YoloConfig(
        classes=classes,
        path=_path(entries.get("path"), file, findings),
        splits={
            name: _places(entries[name], file, findings)
            for name in _SPLIT_KEYS
            if name in entries and _text(entries[name])
        },
        keypoint_fields=_keypoint_fields(entries.get("kpt_shape"), file, findings),
        groups=_groups(entries.get(GROUPS_KEY), file, findings),
    )


def _compose(text: str, file: str, findings: Findings) -> yaml.MappingNode | None:
    rule, advice = "data.yaml must be a YAML mapping", "correct the file, or remove it"
    try:
        if not _bounded(text):
            findings.error(
                "yaml.invalid", file, "", "data.yaml must be flat and have few aliases", advice
            )
            return None
        node = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        # A key without its space (`1:bear`) is noticed on the line after it.
        mark = error.context_mark or error.problem_mark
        in_names = mark is not None and re.match(r"\s*\d+:\S", _source_line(text, mark.line))
        code = "yaml.names" if in_names else "yaml.invalid"
        value = _source_line(text, mark.line).strip() if mark else ""
        advice = "write a space after the colon" if in_names else advice
        problem = f"data.yaml is not valid YAML: {error.problem}" if error.problem else ""
        fault = Fault(Severity.ERROR, code, value, rule, advice, problem)
        findings.add(fault, file, mark.line + 1 if mark else None)
        return None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        value = f"U+{ord(text[error.position]):04X}"
        rule, advice = "data.yaml must not hold control characters", "remove the character"
        findings.add(Fault(Severity.ERROR, "yaml.invalid", value, rule, advice), file, line)
        return None
    except yaml.YAMLError as error:
        findings.error("yaml.invalid", file, str(error), rule, advice)
        return None
    if not isinstance(node, yaml.MappingNode):
        findings.error("yaml.invalid", file, "", rule, advice)
        return None
    return node


def _bounded(text: str) -> bool:
    depth = aliases = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > _MAX_DEPTH or aliases > _MAX_ALIASES:
            return False
    return True


def _classes(
    entries: dict[str, yaml.Node], file: str, root: yaml.Node, findings: Findings
) -> tuple[str, ...] | None:
    names = entries.get("names")
    count = entries.get("nc")
    if names is None:
        advice = "add names: [first, second, ...]"
        _fault(findings, file, count or root, "yaml.names", "data.yaml must have names", advice)
        return None
    found = _names(names, file, findings)
    if found is None:
        return None
    if count is not None and _text(count) != str(len(found)):
        rule = f"nc must equal the number of names, {len(found)}"
        _fault(findings, file, count, "yaml.nc-mismatch", rule, "correct nc, or remove it")
    return found


def _names(node: yaml.Node, file: str, findings: Findings) -> tuple[str, ...] | None:
    before = len(findings)
    items: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        items = node.value
    elif isinstance(node, yaml.MappingNode):
        items = _by_index(node, file, findings)
    else:
        rule = "names must be a list, or a mapping from 0, 1, 2, ... to names"
        advice = "write a space after each colon: `1: bear`"
        _fault(findings, file, node, "yaml.names", rule, advice)
        return None
    if not 0 < len(items) <= MAX_CLASSES and len(findings) == before:
        rule = f"there must be 1 to {MAX_CLASSES} names"
        _fault(findings, file, node, "yaml.names", rule, "list the classes under names")
    seen: set[str] = set()
    for item in items:
        name = _text(item)
        if not name or len(name) > _MAX_NAME_CHARACTERS or not name.isprintable():
            rule = f"a name must be text of 1 to {_MAX_NAME_CHARACTERS} printable characters"
            _fault(findings, file, item, "yaml.names", rule, "correct the name")
        elif name in seen:
            rule = "names must differ from each other"
            _fault(findings, file, item, "yaml.names", rule, "rename one of them")
        seen.add(name)
    if len(findings) > before:
        return None
    return tuple(_text(item) for item in items)


def _by_index(node: yaml.MappingNode, file: str, findings: Findings) -> list[yaml.Node]:
    by_index: dict[int, yaml.Node] = {}
    for key, value in node.value:
        if not _INTEGER.fullmatch(_text(key)):
            rule = "a mapping of names must have the keys 0, 1, 2, ..."
            _fault(findings, file, key, "yaml.names", rule, "number the classes from 0")
        elif int(_text(key)) in by_index:
            _fault(
                findings, file, key, "yaml.names", "a class id must occur once", "correct the ids"
            )
        else:
            by_index[int(_text(key))] = value
    missing = next((index for index in range(len(by_index)) if index not in by_index), None)
    if missing is not None:
        rule = f"class ids must have no hole; {missing} is missing"
        _fault(findings, file, node, "yaml.names", rule, "name every class id from 0 on")
    return [by_index[index] for index in sorted(by_index)]


def _path(node: yaml.Node | None, file: str, findings: Findings) -> str:
    if node is None or isinstance(node, yaml.ScalarNode):
        return _text(node)
    _fault(findings, file, node, "yaml.path", "path must be text", "write the folder's name")
    return ""


def _places(node: yaml.Node, file: str, findings: Findings) -> tuple[Place, ...]:
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if items and all(isinstance(item, yaml.ScalarNode) for item in items):
        return tuple(Place(_text(item), _line(item)) for item in items)
    rule = "a split must be a folder, a list file, or a list of those"
    _fault(findings, file, node, "yaml.path", rule, "write train: images/train")
    return ()


def _groups(node: yaml.Node | None, file: str, findings: Findings) -> Place | None:
    if node is None or not _text(node):
        return None
    if isinstance(node, yaml.ScalarNode):
        return Place(_text(node), _line(node))
    rule = f"{GROUPS_KEY} must name a JSON file"
    _fault(findings, file, node, "yaml.path", rule, f"write {GROUPS_KEY}: groups.json")
    return None


def _keypoint_fields(node: yaml.Node | None, file: str, findings: Findings) -> int:
    """The fields of a row's keypoints: their number times 2 (x, y) or 3 (and a visibility)."""
    if node is None or not _text(node):
        return 0
    items = [_text(item) for item in node.value] if isinstance(node, yaml.SequenceNode) else []
    if len(items) == 2 and _INTEGER.fullmatch(items[0]) and items[1] in ("2", "3"):
        return int(items[0]) * int(items[1])
    rule, advice = "kpt_shape must be [keypoints, 2] or [keypoints, 3]", "correct it, or remove it"
    _fault(findings, file, node, "yaml.invalid", rule, advice)
    return 0


def _fault(
    findings: Findings, file: str, node: yaml.Node, code: str, rule: str, advice: str
) -> None:
    value = node.value if isinstance(node, yaml.ScalarNode) else ""
    findings.add(Fault(Severity.ERROR, code, value, rule, advice), file, _line(node))


def _text(node: yaml.Node | None) -> str:
    """A scalar as it is written, "" for null; a collection gives a text that no rule accepts."""
    if node is None:
        return ""
    if not isinstance(node, yaml.ScalarNode):
        return "\n"
    empty = node.tag == "tag:yaml.org,2002:null" and node.style is None
    return "" if empty else str(node.value).strip()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _source_line(text: str, index: int) -> str:
    found = text.splitlines()
    return found[index] if index < len(found) else ""
