"""Recorded events in words: all of them for a listing, those that move a task on for a watcher."""

from collections.abc import Mapping
from typing import Any, Final

from perdure.cli.output import SHORT_ID, duration, number

# Whoever watches a task wants to know how far it is; the rest is book-keeping, or is said elsewhere
# (how a task ended).
_WATCHED: Final = frozenset(
    {
        "AttemptAssigned",
        "EpochCompleted",
        "HeartbeatTimedOut",
        "AttemptFailed",
        "RetryScheduled",
        "AttemptSucceeded",
        "TaskCancelRequested",
    }
)


def watched_line(event: Mapping[str, Any]) -> str:
    """An event as a line for whoever watches its task; empty for one that says nothing to them."""
    if event["type"] == "AttemptStarted" and event["data"].get("resumed_from_epoch") is not None:
        return event_line(event)  # from scratch is what everybody expects
    return event_line(event) if event["type"] in _WATCHED else ""


def event_line(event: Mapping[str, Any]) -> str:
    """Any recorded event as a line for people."""
    kind, data = event["type"], event["data"]
    told = _of_task(kind, data) or _of_attempt(kind, data) or _of_others(kind, data)
    return told or "of a type that this version does not know: see it with --json"


def _of_task(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "TaskSubmitted":
            version = data.get("data", {}).get("dataset_version")
            source = f"data set version {version[:SHORT_ID]}" if version else "an upload"
            wanted = f"{data['goal']} {data['name']} from {source}"
            return f"submitted by {data['submitted_by']}: {wanted}"
        case "RetryScheduled":
            return f"{data['stage']}: retry {data['retry']} from {data['not_before'][:19]} on"
        case "TaskCancelRequested":
            return "cancel requested"
        case "TaskCancelled":
            return f"cancelled: {data['detail']}" if data["detail"] else "cancelled"
        case "TaskSucceeded":
            made = f"model {data['model_id']}" if data["model_id"] else _version(data)
            return f"succeeded: {made}"
        case "TaskFailed":
            return f"failed: {data['failure']}: {data['detail']}"
        case _:
            return ""


def _of_attempt(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "AttemptAssigned":
            return f"{data['stage']}: attempt {data['fence']} on {data['worker_id']}"
        case "AttemptStarted":
            epoch = data.get("resumed_from_epoch")
            began = "from scratch" if epoch is None else f"resumed from epoch {epoch}"
            return f"attempt {data['fence']} runs, {began}"
        case "EpochCompleted":
            return (
                f"epoch {data['epoch']}/{data['epochs']}: box {number(data['box_loss'])} "
                f"cls {number(data['cls_loss'])} dfl {number(data['dfl_loss'])} "
                f"mAP50 {number(data['map50'])} mAP50-95 {number(data['map50_95'])} "
                f"({duration(data['duration_s'])})"
            )
        case "CheckpointSaved":
            best = ", the best so far" if data["best"] else ""
            return f"checkpoint of epoch {data['epoch']}, step {data['step']} stored{best}"
        case "HeartbeatTimedOut":
            return f"attempt {data['fence']}: silent for {duration(data['silent_s'])}"
        case "AttemptFailed":
            return f"attempt {data['fence']} failed: {data['failure']}: {data['detail']}"
        case "AttemptSucceeded":
            return f"attempt {data['fence']} succeeded"
        case "StaleReportRecorded":
            return (
                f"{data['report']} of attempt {data['fence']} came late, from {data['worker_id']}: "
                f"attempt {data['current_fence']} is the current one, so nothing changed"
            )
        case _:
            return ""


def _of_others(kind: str, data: Mapping[str, Any]) -> str:
    match kind:
        case "DatasetImported":
            return f"imported {data['name']}: {_version(data)}, {data['images']} images"
        case "DatasetRejected":
            return f"refused {data['name']}: {data['errors']} errors"
        case "DatasetProbed":
            told = ", ".join(data["warnings"]) or "nothing stands out"
            return f"probed {_version(data)}: {told}"
        case "ModelExported":
            return f"model {data['model_id']} exported, opset {data['opset']}"
        case "ModelVerified":
            return f"compared with PyTorch on {data['images']} images"
        case "ModelEvaluated":
            measured = f"mAP50 {number(data['map50'])} mAP50-95 {number(data['map50_95'])}"
            return f"evaluated on {data['images']} images: {measured}"
        case "ModelRegistered":
            return f"model {data['model_id']} registered as {data['name']}"
        case "ModelRejected":
            return f"model {data['model_id']} rejected: {data['failure']}: {data['detail']}"
        case "WorkerRegistered":
            return f"worker {data['worker_id']} started on {data['host']}"
        case "WorkerLost":
            return f"worker {data['worker_id']} lost: {data['detail']}"
        case "MessageDeadLettered":
            why = data["error"] or data["reason"]
            return f"{data['message_type']} given up in queue {data['queue']}: {why}"
        case "MessageReplayed":
            return f"put back by {data['requested_by']}, replay {data['replay']}"
        case _:
            return ""


def _version(data: Mapping[str, Any]) -> str:
    version = data.get("dataset_version") or data.get("version", "")
    return f"data set version {version[:SHORT_ID]}"
