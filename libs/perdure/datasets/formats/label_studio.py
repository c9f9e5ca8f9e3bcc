"""Label Studio's exports: JSON and JSON-MIN, lists of tasks with an image and results each.

Old versions call annotations completions. A storage that Label Studio writes to has one file for
each annotation, which names its task.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from perdure.datasets.annotation import Annotations
from perdure.datasets.findings import Fault, Findings, Severity
from perdure.datasets.formats.by_name import LabelsByName, NamedLabels
from perdure.datasets.formats.label_studio_names import shown, spellings
from perdure.datasets.formats.label_studio_shapes import Result, ShapeReader, Way
from perdure.datasets.image_names import ImageNames
from perdure.datasets.json_file import json_fault, json_text, pointer, read_json
from perdure.datasets.rules import ImportRules
from perdure.datasets.signatures import format_of
from perdure.datasets.tree import Tree, is_image

FORMAT: Final = "label-studio"

# A task with twenty boxes takes about 10 kB: some twenty-five thousand of them.
MAX_EXPORT_BYTES: Final = 256 << 20

_ANNOTATIONS: Final = ("annotations", "completions")
_IMAGE: Final = "image"  # the key that the templates use; others are as good


class _Task(NamedTuple):
    """A task: what it is about, the ways to that and to its results, and how they were chosen."""

    data: dict[str, Any]
    data_way: Way
    results: list[Result] | None  # None where nobody has labelled it
    several: str = ""  # what there was, where results had to be chosen


def read_label_studio(tree: Tree, rules: ImportRules, findings: Findings) -> Annotations:
    """Read an export of Label Studio; what is wrong goes to `findings`, with file and pointer.

    Predictions and cancelled annotations are left out. Of several annotations of a task the first
    that is marked as ground truth counts, and otherwise the last.
    """
    files = _export_files(tree, findings)
    if not files:
        rule, advice = "a data set must have an export of Label Studio", "add the .json file"
        problem = "there is no export of Label Studio"
        findings.error("label.none", "", "", rule, advice, problem=problem)
    export = _Export(tree, findings)
    for file in files:
        export.read(file)
    return export.annotations()


class _Export:
    """Takes one file after the other, and gives what all of them hold."""

    def __init__(self, tree: Tree, findings: Findings) -> None:
        self._tree = tree
        self._findings = findings
        self._names = ImageNames(tree)
        self._labels = LabelsByName(tree, findings)
        self._owners: dict[str, str] = {}  # where the task of an image is
        self._unheard = Findings()  # of images that are left out in any case
        self._all_read = True

    def read(self, file: str) -> None:
        """Read all tasks of a file."""
        path = self._tree.files[file]
        value = read_json(path, file, self._findings, max_bytes=MAX_EXPORT_BYTES)
        if value is None:
            self._all_read = False
            return
        shapes = ShapeReader(file, self._findings)
        unlabelled: list[str] = []
        for task in _Tasks(file, self._findings).of(value):
            if task.results is None:
                unlabelled.append(pointer(*task.data_way))
                if image := self._image(task, file, self._unheard):
                    self._labels.leave_out(image)
                continue
            image = self._image(task, file, self._findings)
            if task.several:
                self._report_several(task, file)
            size, boxes = shapes.read(task.results)
            if image is not None and self._is_first(image, task, file):
                self._labels.add(image, NamedLabels(file, size, boxes))
        if unlabelled:
            self._report_unlabelled(unlabelled, file)

    def annotations(self) -> Annotations:
        """All images with their boxes."""
        return self._labels.annotations(FORMAT, listed_only=True, report_unlabelled=self._all_read)

    def _image(self, task: _Task, file: str, findings: Findings) -> str | None:
        """The image of a task; None, with an error, where there is none to be found."""
        keys = [_IMAGE] if isinstance(task.data.get(_IMAGE), str) else _image_keys(task.data)
        if len(keys) != 1:
            rule = "a task must name one image"
            advice = "export it again; several images for one task cannot be read"
            value = ", ".join(keys) or json_text(task.data)
            findings.add(json_fault(value, rule, advice), file, pointer=pointer(*task.data_way))
            return None
        name = task.data[keys[0]]
        return self._names.find(
            shown(name),
            file,
            findings,
            pointer=pointer(*task.data_way, keys[0]),
            spellings=spellings(name),
        )

    def _is_first(self, image: str, task: _Task, file: str) -> bool:
        place = pointer(*task.data_way)
        owner = self._owners.setdefault(image, file + place)
        if owner == file + place:
            return True
        fault = Fault(
            Severity.ERROR,
            "label-studio.image-twice",
            image,
            "an image must have one task with annotations",
            "remove one of the two tasks, or put the boxes into one",
        )
        self._findings.add(fault, file, pointer=place)
        return False

    def _report_several(self, task: _Task, file: str) -> None:
        rule, advice = (
            "a task must have one annotation",
            "the first that is ground truth was read, or else the last",
        )
        code = "label-studio.several-annotations"
        fault = Fault(Severity.INFO, code, task.several, rule, advice)
        self._findings.add(fault, file, pointer=pointer(*task.data_way))

    def _report_unlabelled(self, places: list[str], file: str) -> None:
        rule = "a task must have an annotation, an empty one when nothing is on the image"
        advice = "they were left out: label or submit them in Label Studio"
        code, value = "label-studio.unlabelled", f"{len(places)} tasks"
        fault = Fault(Severity.WARNING, code, value, rule, advice)
        self._findings.add(fault, file, pointer=places[0])


class _Tasks:
    """Finds the tasks in a file, in whichever of the forms it has them."""

    def __init__(self, file: str, findings: Findings) -> None:
        self._file = file
        self._findings = findings

    def of(self, value: dict[str, Any] | list[Any]) -> Iterator[_Task]:
        """The tasks of a file, those of JSON-MIN that were labelled several times once."""
        entries: list[tuple[Any, Way]] = (
            [(value, ())] if isinstance(value, dict) else [(e, (i,)) for i, e in enumerate(value)]
        )
        short: dict[str, list[_Task]] = {}
        for entry, way in entries:
            if not isinstance(entry, dict):
                fault = json_fault(entry, "a task must be an object", "export the file again")
                self._add(fault, way)
            elif isinstance(entry.get("task"), dict) and "result" in entry:
                data, data_way = self._data(entry["task"], (*way, "task"))
                yield _Task(data, data_way, *self._chosen([entry], [way]))
            elif "data" in entry:
                data, data_way = self._data(entry, way)
                key = next((key for key in _ANNOTATIONS if key in entry), _ANNOTATIONS[0])
                yield _Task(data, data_way, *self._of_task(entry.get(key), (*way, key)))
            else:
                task = _Task(entry, way, self._short_results(entry, way))
                short.setdefault(json_text(entry.get("id", pointer(*way))), []).append(task)
        for tasks in short.values():
            several = f"{len(tasks)} annotations" if len(tasks) > 1 else ""
            yield tasks[-1]._replace(several=several)

    def _data(self, task: dict[str, Any], way: Way) -> tuple[dict[str, Any], Way]:
        """What a task is about; nothing where that is no object, which its image then lacks."""
        data = task.get("data")
        return (data if isinstance(data, dict) else {}), (*way, "data")

    def _of_task(self, annotations: object, way: Way) -> tuple[list[Result] | None, str]:
        if annotations is None:
            return None, ""
        if not isinstance(annotations, list):
            rule = "the annotations of a task must be a list"
            self._add(json_fault(annotations, rule, "export the file again"), way)
            return [], ""
        entries, ways = [], []
        for number, annotation in enumerate(annotations):
            if isinstance(annotation, dict):
                entries.append(annotation)
                ways.append((*way, number))
            else:
                rule = "an annotation must be an object"
                self._add(json_fault(annotation, rule, "export the file again"), (*way, number))
        return self._chosen(entries, ways) if entries or not annotations else ([], "")

    def _chosen(
        self, annotations: list[dict[str, Any]], ways: list[Way]
    ) -> tuple[list[Result] | None, str]:
        """The results of the annotation that counts, and what there was where others did not."""
        valid = [
            (annotation, way)
            for annotation, way in zip(annotations, ways, strict=True)
            if not annotation.get("was_cancelled")
        ]
        if not valid:
            return None, ""
        truths = [pair for pair in valid if pair[0].get("ground_truth")]
        annotation, way = truths[0] if truths else valid[-1]
        several = f"{len(valid)} annotations" if len(valid) > 1 else ""
        return self._results(annotation.get("result"), (*way, "result")), several

    def _results(self, results: object, way: Way) -> list[Result]:
        found = []
        if not isinstance(results, list):
            fault = json_fault(results, "the result must be a list", "export the file again")
            self._add(fault, way)
            return []
        for number, item in enumerate(results):
            if isinstance(item, dict):
                found.append(Result(item, (*way, number)))
            else:
                fault = json_fault(item, "a result must be an object", "export the file again")
                self._add(fault, (*way, number))
        return found

    def _short_results(self, entry: dict[str, Any], way: Way) -> list[Result]:
        """The results in a task of JSON-MIN: they lie beside the image, under the tag's name."""
        return [
            Result(item, (*way, key, number))
            for key, items in entry.items()
            if isinstance(items, list)
            for number, item in enumerate(items)
            if isinstance(item, dict)
        ]

    def _add(self, fault: Fault, way: Way) -> None:
        self._findings.add(fault, self._file, pointer=pointer(*way))


def _export_files(tree: Tree, findings: Findings) -> list[str]:
    """The exports; where none is recognised, all files that could be one."""
    files = sorted(name for name in tree.files if name.lower().endswith(".json"))
    formats = {name: format_of(tree.files[name]) for name in files}
    found = [name for name in files if formats[name] == FORMAT]
    for name in files if found else ():
        if formats[name] != FORMAT:
            rule = "an export of Label Studio must have results"
            advice = "it was left out: remove it, or see what wrote it"
            findings.warning("files.not-labels", name, formats[name] or "", rule, advice)
    return found or files


def _image_keys(data: dict[str, Any]) -> list[str]:
    """The keys of a task's data that name an image file."""
    return [
        key
        for key, value in data.items()
        if isinstance(value, str) and any(map(is_image, spellings(value)[:1]))
    ]
