"""Following a task: a live picture on a terminal, plain lines elsewhere, silence for programs."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from perdure.cli.output import complain_line, console, duration, number, say, text
from perdure.client import Client, Task, Update

INTERRUPTED: Final = 130
SHOWN_EPOCHS: Final = 8
REFRESHES_PER_S: Final = 4


def follow(client: Client, task: Task, *, quiet: bool = False) -> Task:
    """Follow `task` until it has ended, and give its last state. Ctrl-C leaves it running and exits
    with 130.
    """
    try:
        updates = client.watch(task)
        if quiet:
            return _last(updates, task)
        if console().is_terminal:
            return _on_terminal(updates, task)
        return _as_lines(updates, task)
    except KeyboardInterrupt:
        complain_line(f"left task {task.id}: it goes on without you")
        complain_line(f"look again with: perdure task show {task.id}")
        complain_line(f"its log:         perdure task logs {task.id} -f")
        complain_line(f"stop it with:    perdure task cancel {task.id}")
        raise typer.Exit(INTERRUPTED) from None


def _last(updates: Iterator[Update], task: Task) -> Task:
    for update in updates:
        task = update.task
    return task


# ---- plain lines ---------------------------------------------------------------------------------


def _as_lines(updates: Iterator[Update], task: Task) -> Task:
    for update in updates:
        task = update.task
        if not update.connected:
            say("the server does not answer: waiting for it to come back")
        if update.event is not None:
            line = event_line(update.event)
            if line:
                say(line)
    say(f"task {task.id}: {task.status}")
    return task


def event_line(event: Mapping[str, Any]) -> str:
    """A recorded event as a line for people; empty for one that says nothing to them."""
    data = event["data"]
    match event["type"]:
        case "AttemptAssigned":
            return f"{data['stage']}: attempt {data['fence']} on {data['worker_id']}"
        case "AttemptStarted":
            epoch = data.get("resumed_from_epoch")
            resumed = "" if epoch is None else f", resumed from epoch {epoch}"
            return f"attempt {data['fence']} runs{resumed}"
        case "EpochCompleted":
            return (
                f"epoch {data['epoch']}/{data['epochs']}: box {number(data['box_loss'])} "
                f"cls {number(data['cls_loss'])} dfl {number(data['dfl_loss'])} "
                f"mAP50 {number(data['map50'])} mAP50-95 {number(data['map50_95'])} "
                f"({duration(data['duration_s'])})"
            )
        case "HeartbeatTimedOut":
            return f"attempt {data['fence']}: silent for {duration(data['silent_s'])}"
        case "AttemptFailed":
            return f"attempt {data['fence']} failed: {data['failure']}: {data['detail']}"
        case "RetryScheduled":
            return f"{data['stage']}: retry {data['retry']} from {data['not_before'][:19]} on"
        case "AttemptSucceeded":
            return f"attempt {data['fence']} succeeded"
        case "TaskCancelRequested":
            return "cancel requested"
        case _:
            return ""


# ---- a live picture ------------------------------------------------------------------------------


def _on_terminal(updates: Iterator[Update], task: Task) -> Task:
    progress: Mapping[str, Any] | None = None
    last_line = ""
    with Live(
        picture(task, None, ""), console=console(), refresh_per_second=REFRESHES_PER_S
    ) as live:
        for update in updates:
            task = update.task
            if update.progress is not None:
                progress = update.progress
            if update.event is not None:
                last_line = event_line(update.event) or last_line
            note = last_line if update.connected else "the server does not answer: waiting for it"
            live.update(picture(task, progress, note))
    return task


def picture(task: Task, progress: Mapping[str, Any] | None, note: str) -> Group:
    """A task for a terminal. `progress` counts only when it is of the task's current attempt."""
    parts: list[Any] = [text(f"task {task.id}  {task.name}  {task.status}  {task.stage}")]
    current = task.json["attempts"][-1]["fence"] if task.json["attempts"] else None
    if progress is not None and progress["fence"] == current and not task.ended:
        parts += [text(line) for line in progress_lines(progress)]
        parts.append(_bar(progress))
    if task.json["epochs"]:
        parts.append(_epochs(task))
    if note:
        parts.append(text(note))
    return Group(*parts)


def progress_lines(progress: Mapping[str, Any]) -> list[str]:
    """An attempt's telemetry: phase, place, speed and the time that is left; losses and mAP."""
    words = [progress["phase"]]
    if progress["epochs"]:
        words.append(f"epoch {progress['epoch']}/{progress['epochs']}")
    if progress["steps"]:
        words.append(f"step {progress['step']}/{progress['steps']}")
    if progress["samples_per_s"]:
        words.append(f"{progress['samples_per_s']:.1f} images/s")
    if progress["eta_s"]:
        words.append(f"{duration(progress['eta_s'])} left")
    measures = []
    if progress["box_loss"]:
        measures = [f"{name} {number(progress[f'{name}_loss'])}" for name in ("box", "cls", "dfl")]
    if progress["map50"]:
        measures.append(f"mAP50 {number(progress['map50'])}")
    return ["  ".join(line) for line in (words, measures) if line]


def _bar(progress: Mapping[str, Any]) -> Table:
    steps, epochs = max(progress["steps"], 1), max(progress["epochs"], 1)
    epochs_done = max(progress["epoch"] - 1, 0) + min(progress["step"] / steps, 1)
    line = Table.grid()  # a bar alone does not end its line
    line.add_row(ProgressBar(total=1.0, completed=min(epochs_done / epochs, 1.0), width=60))
    return line


def _epochs(task: Task) -> Table:
    table = Table("epoch", "box", "cls", "dfl", "mAP50", "mAP50-95", box=None)
    for epoch in task.json["epochs"][-SHOWN_EPOCHS:]:
        names = ("box_loss", "cls_loss", "dfl_loss", "map50", "map50_95")
        table.add_row(str(epoch["epoch"]), *(number(epoch[name]) for name in names))
    return table
