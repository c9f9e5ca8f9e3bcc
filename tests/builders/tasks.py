"""Tasks, reports and recorded events for tests."""

from itertools import count

from google.protobuf.message import Message

from perdure.contracts.envelope import RecordedEvent
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.task import TaskState, task_stream
from perdure.domain.task_decisions import Command, decide
from perdure.domain.task_evolution import evolve

NOW = "2026-01-01T00:00:00.000000+00:00"
TASK_ID = "0123456789abcdef"
WORKER_ID = "node-1"
INCARNATION = "inc-1"

_ids = count(1)


def submission(goal: str = "model", task_id: str = TASK_ID) -> events_pb2.TaskSubmitted:
    return events_pb2.TaskSubmitted(
        task_id=task_id,
        goal=goal,
        name="birds",
        data=events_pb2.DataSource(name="birds", dataset_version="v1"),
        config_json='{"epochs":3}',
        config_hash="c0",
        gate=events_pb2.Gate(),
    )


def recorded(
    data: Message, version: int, *, time: str = NOW, cause: str = "", task_id: str = TASK_ID
) -> RecordedEvent:
    return RecordedEvent(
        id=f"event-{version}",
        stream=task_stream(task_id),
        version=version,
        position=version,
        type=data.DESCRIPTOR.name,
        data=data,
        time=time,
        correlation_id=task_id,
        causation_id=cause,
        source="test",
        hash="0" * 64,
    )


def report(
    fence: int, body: Message, *, seq: int = 1, incarnation: str = INCARNATION
) -> work_pb2.Report:
    fields = {
        "AttemptStarted": "started",
        "EpochCompleted": "epoch",
        "CheckpointSaved": "checkpoint",
        "AttemptFailed": "failed",
        "AttemptSucceeded": "succeeded",
    }
    made = work_pb2.Report(
        id=f"report-{next(_ids)}",
        task_id=TASK_ID,
        fence=fence,
        worker_id=WORKER_ID,
        incarnation=incarnation,
        seq=seq,
    )
    copy = type(body)()
    copy.CopyFrom(body)
    copy.fence = fence  # type: ignore[attr-defined]
    getattr(made, fields[body.DESCRIPTOR.name]).CopyFrom(copy)
    return made


def succeeded(stage: str) -> events_pb2.AttemptSucceeded:
    match stage:
        case "prepare":
            prepared = events_pb2.PreparedData(dataset_version="v1", split_id="s1")
            return events_pb2.AttemptSucceeded(prepared=prepared)
        case "train":
            trained = events_pb2.TrainedModel(
                best_checkpoint=events_pb2.Blob(key="k", digest="d", size_bytes=1), best_epoch=2
            )
            return events_pb2.AttemptSucceeded(trained=trained)
        case _:
            published = events_pb2.PublishedModel(model_id="m1", map50=0.6)
            return events_pb2.AttemptSucceeded(published=published)


def checkpoint(step: int, epoch: int = 1) -> events_pb2.CheckpointSaved:
    blob = events_pb2.Blob(key=f"c{step}", digest=f"d{step}", size_bytes=1)
    return events_pb2.CheckpointSaved(epoch=epoch, step=step, blob=blob)


class History:
    """A task's events and its state, command by command."""

    def __init__(self, goal: str = "model") -> None:
        self.events: list[RecordedEvent] = [recorded(submission(goal), 1)]
        self.state: TaskState = evolve(None, self.events[0])

    def do(self, command: Command, *, cause: str = "", time: str = NOW) -> list[str]:
        """Decide on a command, take in what follows, and give the names of the events."""
        decided = decide(self.state, command)
        for data in decided:
            event = recorded(data, self.state.version + 1, time=time, cause=cause)
            self.events.append(event)
            self.state = evolve(self.state, event)
        return [data.DESCRIPTOR.name for data in decided]
