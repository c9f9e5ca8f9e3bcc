"""Models as the registry shows them."""

from typing import Any

from perdure.contracts.codec import to_dict
from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2


def model_stream(model_id: str) -> str:
    """The stream of a model."""
    return f"model-{model_id}"


def key_of(event: RecordedEvent) -> str | None:
    """The model that `event` is about, or None."""
    return event.stream.removeprefix("model-") if event.stream.startswith("model-") else None


def apply(body: dict[str, Any] | None, event: RecordedEvent) -> dict[str, Any]:
    """The model's entry after `event`. `status` is exported, registered or rejected."""
    entry = body or {"id": key_of(event), "status": "exported"}
    data = to_dict(event.data)
    match event.data:
        case events_pb2.ModelExported():
            facts = {"task_id": data["task_id"], "export": data}
            return entry | facts
        case events_pb2.ModelVerified():
            return entry | {"parity": data}
        case events_pb2.ModelEvaluated():
            return entry | {
                "evaluation": data,
                "map50": data["map50"],
                "map50_95": data["map50_95"],
            }
        case events_pb2.ModelRegistered():
            return entry | data | {"status": "registered", "registered_at": event.time}
        case events_pb2.ModelRejected():
            return entry | data | {"status": "rejected", "rejected_at": event.time}
        case _:
            return entry
