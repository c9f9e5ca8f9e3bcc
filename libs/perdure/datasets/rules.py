"""The rules of an import that its user may choose; what is not chosen refuses what is doubtful."""

from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, get_args

from perdure.datasets.name_pattern import compile_pattern
from perdure.errors import InvalidInput

FormatName = Literal["yolo", "coco", "voc", "csv", "labelme", "cvat", "label-studio"]
BoxFormat = Literal["xywh", "xyxy"]
SixthField = Literal["confidence", "track"]

FORMATS: Final[tuple[FormatName, ...]] = get_args(FormatName)
# Of a large set, single broken files can be missed without harm; more points to a broken copy.
DEFAULT_MAX_SKIPPED: Final = 0.01


@dataclass(frozen=True)
class ImportRules:
    """What the user of an import has decided. The same rules and bytes give the same version."""

    format: FormatName | None = None  # None: it is recognised
    box_format: BoxFormat | None = None  # of COCO's boxes; None: xywh, and refused when suspect
    sixth_field: SixthField | None = None  # what a YOLO row's sixth field holds; it is dropped
    drop_degenerate: bool = False  # leave boxes without area out, instead of refusing
    max_skipped: float = DEFAULT_MAX_SKIPPED  # share of images that may be undecodable, 0..1
    allow_leakage: bool = False  # accept byte-identical images in train and in val
    group_by: str = ""  # an expression of RE2; images whose names match alike stay in one split

    def __post_init__(self) -> None:
        """Raises InvalidInput, which names the option and what it takes."""
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in allowed:
                raise InvalidInput(f"{_option(name)} is {value!r}: give {', '.join(allowed)}")
        if not 0 <= self.max_skipped <= 1:
            raise InvalidInput(
                f"{_option('max_skipped')} is {self.max_skipped}: give a share, 0 to 1, e.g. 0.01"
            )
        compile_pattern(self.group_by, _option("group_by"))

    def group_of(self, path: str) -> str:
        """What `group_by` matches in an image's path: its first group, or all; "" for no match."""
        if not self.group_by:
            return ""
        return compile_pattern(self.group_by, _option("group_by")).found_in(path)

    def to_json(self) -> dict[str, Any]:
        """The rules that differ from the default, as JSON values."""
        default = asdict(ImportRules())
        return {name: value for name, value in asdict(self).items() if value != default[name]}


def import_rules(values: dict[str, Any]) -> ImportRules:
    """The rules in JSON values. Raises InvalidInput for a name or a value that is none."""
    known = {field.name for field in fields(ImportRules)}
    for name, value in values.items():
        if name not in known:
            raise InvalidInput(f"there is no import rule {name!r}: {', '.join(sorted(known))}")
        is_flag = name in ("drop_degenerate", "allow_leakage")
        takes = bool if is_flag else (int, float) if name == "max_skipped" else str
        if not isinstance(value, takes) or isinstance(value, bool) != is_flag:
            raise InvalidInput(f"the import rule {name} has the value {value!r}: see the options")
    return ImportRules(**values)


_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "format": FORMATS,
    "box_format": get_args(BoxFormat),
    "sixth_field": get_args(SixthField),
}


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
