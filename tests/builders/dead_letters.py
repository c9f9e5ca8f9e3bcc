"""Messages that died, and the events that tell of it."""

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.dead_letter import REPLAY_HEADER
from perdure.messaging.port import Death, Message
from perdure_scheduler.dead_letters import dead_lettered

TASK = "0123456789abcdef"
QUEUE = "scheduler.reports"
REPORT = work_pb2.Report(
    id="report-7",
    task_id=TASK,
    stage="train",
    fence=2,
    worker_id="node-1",
    seq=3,
    epoch=events_pb2.EpochCompleted(fence=2, epoch=1, epochs=3),
)


def report_message(replay: int = 0, message_id: str = REPORT.id) -> Message:
    headers = {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"}
    if replay:
        headers[REPLAY_HEADER] = str(replay)
    body = REPORT.SerializeToString()
    return Message(
        message_id, "Report", body, headers, "trainer-agent", TASK, "2026-01-02T03:04:05Z"
    )


def death(queue: str = QUEUE, error: str = "KeyError: 'epoch'") -> Death:
    return Death(queue, "perdure.reports", "train", "failed", error, 5)


def died(replay: int = 0, queue: str = QUEUE) -> events_pb2.MessageDeadLettered:
    return dead_lettered(report_message(replay), death(queue))


def replayed(number: int = 1) -> events_pb2.MessageReplayed:
    return events_pb2.MessageReplayed(requested_by="ann", replay=number)
