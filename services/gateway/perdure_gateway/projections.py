"""Read models as pure folds: what a document becomes after an event."""

from functools import partial
from typing import Any, Final

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2
from perdure.domain import dead_letter
from perdure.domain.dataset import dataset_stream
from perdure.domain.model import model_stream
from perdure.domain.task import from_json, task_stream, to_json
from perdure.domain.task_evolution import evolve
from perdure.eventlog.projector import Fold
from perdure_gateway.context import DATASETS, DEAD_LETTERS, MODELS, TASKS
from perdure_gateway.wire import to_plain

Body = dict[str, Any]
MODEL_STREAMS: Final = model_stream("")


def fold_task(body: Body | None, event: RecordedEvent) -> Body:
    """A task's public form."""
    return to_json(evolve(None if body is None else from_json(body), event))


def fold_dataset(body: Body | None, event: RecordedEvent) -> Body:
    """A data set version. Imported again, it keeps the name and time of the first import; `probe`
    is that of the newest.
    """
    if isinstance(event.data, events_pb2.DatasetProbed):
        probe = to_plain(event.data)
        del probe["version"]
        return {**(body or {}), "probe": probe}
    return {**to_plain(event.data), "imported_at": event.time} if body is None else body


def fold_model(body: Body | None, event: RecordedEvent) -> Body:
    """A model: export, parity, evaluation and verdict, as they came in. `status` is "pending"
    before a verdict.
    """
    model_id = event.stream.removeprefix(MODEL_STREAMS)
    model: Body = {"id": model_id, "status": "pending", "files": []} if body is None else dict(body)
    facts = to_plain(event.data)
    facts.pop("model_id", None)
    match event.data:
        case events_pb2.ModelExported():
            model["task_id"] = facts.pop("task_id")
            model["export"] = facts
        case events_pb2.ModelVerified():
            model["parity"] = facts
        case events_pb2.ModelEvaluated():
            model |= {"map50": facts["map50"], "map50_95": facts["map50_95"], "evaluation": facts}
        case events_pb2.ModelRegistered():
            files = [{"name": blob["key"].rpartition("/")[2], **blob} for blob in facts["files"]]
            model |= {**facts, "status": "registered", "files": files, "registered_at": event.time}
        case events_pb2.ModelRejected():
            model |= {**facts, "status": "rejected", "rejected_at": event.time}
    return model


def fold_dead_letter(body: Body | None, event: RecordedEvent) -> Body:
    """A dead letter's public form: all but its body."""
    before = None if body is None else dead_letter.from_json(body)
    return dead_letter.to_json(dead_letter.evolve(before, event))


def _key(prefix: str, event: RecordedEvent) -> str | None:
    return event.stream.removeprefix(prefix) if event.stream.startswith(prefix) else None


def _dataset_key(event: RecordedEvent) -> str | None:
    # A rejection says nothing about a version: there is none.
    is_of_version = isinstance(event.data, events_pb2.DatasetImported | events_pb2.DatasetProbed)
    return _key(dataset_stream(""), event) if is_of_version else None


PROJECTIONS: Final[dict[str, Fold]] = {
    TASKS: Fold(partial(_key, task_stream("")), fold_task),
    DATASETS: Fold(_dataset_key, fold_dataset),
    MODELS: Fold(partial(_key, MODEL_STREAMS), fold_model),
    DEAD_LETTERS: Fold(partial(_key, dead_letter.dead_letter_stream("")), fold_dead_letter),
}
