"""Groups of images that labels name, as an export writes them: they come back with the images.

In COCO's files a group is the text `perdure_group` of an image; of YOLO's, `perdure_groups` in
data.yaml names a JSON file with an object from names of images to groups. Other tools pass them
over, and no other tool means something else by these keys.
"""

from typing import Final

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.yolo_config import GROUPS_KEY, Place
from perdure.datasets.json_file import json_fault, pointer, read_json
from perdure.datasets.tree import Tree

GROUP_KEY: Final = "perdure_group"  # of an image in COCO's files
GROUPS_FILE: Final = "groups.json"

# A group is a part of a path as a rule: so long may they be on the systems that we know.
_MAX_GROUP_CHARACTERS: Final = 4096
# Of 500,000 images, the most that a data set has, with 250 bytes each.
_MAX_GROUPS_BYTES: Final = 128 << 20


def group_fault(value: object) -> Fault | None:
    """Why `value` cannot be the group of an image, or None where it can."""
    if isinstance(value, str) and len(value) <= _MAX_GROUP_CHARACTERS and _is_text(value):
        return None
    rule = f"a group must be text of at most {_MAX_GROUP_CHARACTERS} characters"
    return json_fault(value, rule, "correct it, or leave it out")


def read_groups(tree: Tree, place: Place, config_file: str, findings: Findings) -> dict[str, str]:
    """The groups by the names of images, from the file that data.yaml names."""
    name = tree.inside(place.text)
    if name is None or name not in tree.files:
        rule = f"{GROUPS_KEY} must name a JSON file of the data set"
        advice = "add the file, or remove the entry"
        problem = "data.yaml names a file of groups that does not exist"
        fault = Fault(Severity.ERROR, "yaml.path", place.text, rule, advice, problem)
        findings.add(fault, config_file, place.line)
        return {}
    value = read_json(tree.files[name], name, findings, max_bytes=_MAX_GROUPS_BYTES)
    if isinstance(value, list):
        rule = "the file must hold an object from names of images to groups"
        findings.add(json_fault(value, rule, "correct it"), name, pointer="")
    if not isinstance(value, dict):
        return {}
    groups: dict[str, str] = {}
    for image, group in value.items():
        if fault_of_group := group_fault(group):
            findings.add(fault_of_group, name, pointer=pointer(image))
        elif image not in tree.files:
            rule, advice = "groups must be of images that exist", "remove the entry, or add it"
            missing = Fault(Severity.WARNING, "files.missing-image", image, rule, advice)
            findings.add(missing, name, pointer=pointer(image))
        else:
            groups[image] = group
    return groups


def _is_text(value: str) -> bool:
    """Whether it can be written: JSON may name halves of characters alone."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
