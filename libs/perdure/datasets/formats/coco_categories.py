"""The categories of a COCO file: classes by id, with holes, in any order, and sometimes twice."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import name_fault
from perdure.datasets.formats.coco_ids import Id, IdTypes, canonical_id, id_order, invalid_id
from perdure.datasets.json_file import json_fault, pointer

_KEY: Final = "categories"

# Class names by id, None for a category that cannot be used, in the order of the ids.
Categories = dict[Id, str | None]


def read_categories(
    value: dict[str, Any], file: str, types: IdTypes, findings: Findings
) -> Categories | None:
    """The categories in `value`; None, with an error, where there is no list of them."""
    entries = value.get(_KEY)
    if not isinstance(entries, list):
        rule, advice = "categories must be a list of {id, name}", "add the list, or export again"
        findings.add(json_fault(entries, rule, advice), file, pointer=pointer(_KEY))
        return None
    found: Categories = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            fault = json_fault(entry, "a category must be an object", "correct it or remove it")
            findings.add(fault, file, pointer=pointer(_KEY, number))
            continue
        id_ = canonical_id(entry.get("id"))
        if id_ is None:
            findings.add(invalid_id(entry.get("id")), file, pointer=pointer(_KEY, number, "id"))
            continue
        types.see(entry["id"], _KEY, number, "id")
        name = _name(entry, number, file, findings)
        if id_ in found and name != found[id_]:
            findings.add(_repeated_id(entry["id"]), file, pointer=pointer(_KEY, number, "id"))
            name = None  # what its boxes show nobody knows
        found[id_] = name
    in_order = {id_: found[id_] for id_ in sorted(found, key=id_order)}
    _report_repeated_names(in_order, file, findings)
    return in_order


def report_remapped(
    categories: Categories, classes: Mapping[str, int], file: str, findings: Findings
) -> None:
    """Record which ids became which class indices, where one is not the other."""
    new = {id_: classes[name] for id_, name in categories.items() if name is not None}
    if any(id_ != index for id_, index in new.items()):
        rule = "class ids must be 0, 1, 2, ..."
        advice = "classes were numbered anew by their names: old ids and new ones"
        fault = Fault(Severity.INFO, "classes.remapped", ", ".join(_runs(new)), rule, advice)
        findings.add(fault, file, pointer=pointer(_KEY))


def _name(entry: dict[str, Any], number: int, file: str, findings: Findings) -> str | None:
    name = entry.get("name")
    if isinstance(name, str):
        fault = name_fault(name)
    else:
        fault = json_fault(name, "a category must have a name, which is text", "add the name")
    if fault is None:
        return str(name)
    findings.add(fault, file, pointer=pointer(_KEY, number, "name"))
    return None


def _repeated_id(value: object) -> Fault:
    return Fault(
        Severity.ERROR,
        "coco.category-id-duplicate",
        str(value),
        "an id must be that of one category",
        "give one of the categories an id of its own, to its annotations too",
    )


def _report_repeated_names(categories: Categories, file: str, findings: Findings) -> None:
    first: dict[str, Id] = {}
    for id_, name in categories.items():
        if name is not None and first.setdefault(name, id_) != id_:
            findings.add(
                Fault(
                    Severity.WARNING,
                    "coco.category-name-duplicate",
                    name,
                    "a name must be that of one category",
                    f"the categories {first[name]} and {id_} were read as one class",
                ),
                file,
                pointer=pointer(_KEY),
            )


def _runs(new: Mapping[Id, int]) -> Iterator[str]:
    """The mapping, with neighbours that move alike in one piece: "1-11:0-10", "13:11"."""

    def moved(pair: tuple[Id, int]) -> Id:
        return pair[0] - pair[1] if isinstance(pair[0], int) else pair[0]

    for _, alike in groupby(new.items(), key=moved):
        (first, index), *rest = alike
        if rest:
            last, last_index = rest[-1]
            yield f"{first}-{last}:{index}-{last_index}"
        else:
            yield f"{first}:{index}"
