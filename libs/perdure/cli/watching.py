"""Following a task: a live picture on a terminal, plain lines elsewhere, silence for programs."""

import threading
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from perdure.cli.dataset_findings import complain_findings
from perdure.cli.events import watched_line
from perdure.cli.exit_codes import ExitCode
from perdure.cli.output import SHORT_ID, complain_line, console, duration, number, say, text
from perdure.client import Client, Task, Update
from perdure.domain.failures import Failure

SHOWN_EPOCHS: Final = 8
REFRESHES_PER_S: Final = 4
# A free worker is given work within a second or two; whoever waits longer waits for one.
QUEUE_PATIENCE_S: Final = 5.0
QUEUED: Final = "queued: waiting for a free worker"
AWAY: Final = "the server does not answer: waiting for it to come back"
BACK: Final = "the server is back"
# Below this, a detector finds next to nothing, whatever it was trained for.
USELESS_MAP50: Final = 0.05


def follow(client: Client, task: Task, *, quiet: bool = False, past: bool = False) -> Task:
    """Follow `task` until it has ended, and give its last state. Ctrl-C leaves it running and exits
    with 130. `past`: where lines are printed, begin with what happened so far.
    """
    try:
        updates = client.watch(task)
        if quiet:
            return _last(updates, task)
        if console().is_terminal:
            return _on_terminal(updates, task)
        return _as_lines(chain(_past(client, task), updates) if past else updates, task)
    except KeyboardInterrupt:
        complain_line(f"left task {task.id}: it goes on without you")
        complain_line(f"follow it again: perdure task watch {task.id}")
        complain_line(f"look at it:      perdure task show {task.id}")
        complain_line(f"its log:         perdure task logs {task.id} -f")
        complain_line(f"stop it with:    perdure task cancel {task.id}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _last(updates: Iterator[Update], task: Task) -> Task:
    for update in updates:
        task = update.task
    return task


# ---- plain lines ---------------------------------------------------------------------------------


def _as_lines(updates: Iterator[Update], task: Task) -> Task:
    lines = _Lines()
    try:
        for update in updates:
            task = update.task
            lines.add(update)
    finally:
        lines.end()
    if task.status == "succeeded":  # how it failed is said at length, once
        say(f"task {task.id}: {task.status}")
    return task


class _Lines:
    """Turns updates into lines, each said once."""

    def __init__(self) -> None:
        self._connected = True
        self._failed = ""  # a failure's line, until it is clear that the task does not end with it
        self._phases: set[tuple[int, str]] = set()
        self._in_queue: threading.Timer | None = None

    def add(self, update: Update) -> None:
        if update.connected != self._connected:
            self._connected = update.connected
            say(BACK if update.connected else AWAY)
        if update.event is not None:
            self._add_event(update.event)
        if update.progress is not None:
            self._add_progress(update.progress)
        self._mind_the_queue(queued=update.connected and update.task.status == "queued")

    def end(self) -> None:
        self._say_failed()
        self._mind_the_queue(queued=False)

    def _add_event(self, event: Mapping[str, Any]) -> None:
        if event["type"] == "TaskFailed":
            self._failed = ""
        self._say_failed()
        line = watched_line(event)
        if event["type"] == "AttemptFailed":
            self._failed = line
        elif line:
            say(line)

    def _say_failed(self) -> None:
        if self._failed:
            say(self._failed)
        self._failed = ""

    def _add_progress(self, progress: Mapping[str, Any]) -> None:
        phase = progress["fence"], progress["phase"]
        # Epochs tell of a training's way; a publication's would otherwise be silent for minutes.
        if progress["stage"] == "publish" and progress["phase"] and phase not in self._phases:
            self._phases.add(phase)
            say(f"publish: {progress['phase']}")

    def _mind_the_queue(self, *, queued: bool) -> None:
        if queued and self._in_queue is None:
            self._in_queue = threading.Timer(QUEUE_PATIENCE_S, say, (QUEUED,))
            self._in_queue.daemon = True
            self._in_queue.start()
        elif not queued and self._in_queue is not None:
            self._in_queue.cancel()
            self._in_queue = None


def _past(client: Client, task: Task) -> Iterator[Update]:
    for event in client.events(task.id):
        if event["version"] <= task.version:
            yield Update(task, event=event)


def conclude(task: Task, *, as_json: bool) -> None:
    """Say how a task ended; exit with 1 unless it succeeded."""
    if task.status != "succeeded":
        complain_failed(task)
        raise typer.Exit(ExitCode.NEGATIVE)
    if not task.model_id:
        if not as_json:
            say(f"data set version {task.dataset_version}")
            say(f"look at it with: perdure dataset show {task.dataset_version[:SHORT_ID]}")
        return
    map50 = task.json["map50"]
    if not as_json:
        map50_95 = number(task.json["map50_95"])
        say(f"model {task.model_id}: mAP50 {number(map50)}, mAP50-95 {map50_95}")
        say(f"fetch it with: perdure model pull {task.model_id} --out DIR")
    if map50 is not None and map50 < USELESS_MAP50:
        complain_line(
            f"WARNING: this model finds (almost) nothing (mAP50 {number(map50)}): train longer, "
            "or set a gate with --min-map50"
        )


def complain_failed(task: Task) -> None:
    """Say on standard error how a task ended without a result."""
    for line in task.why_no_result.splitlines():
        complain_line(line)
    if task.failure is not None:
        if task.failure["failure"] == Failure.DATASET_INVALID:
            complain_findings(task.id)
        complain_line(f"its log: perdure task logs {task.id}")


# ---- a live picture ------------------------------------------------------------------------------


def _on_terminal(updates: Iterator[Update], task: Task) -> Task:
    progress: Mapping[str, Any] | None = None
    last_line = ""
    connected = True
    with Live(
        picture(task, None, ""), console=console(), refresh_per_second=REFRESHES_PER_S
    ) as live:
        for update in updates:
            task = update.task
            if update.progress is not None:
                progress = update.progress
            if update.event is not None:
                last_line = watched_line(update.event) or last_line
                if update.event["type"] == "TaskFailed":  # said at length, once, below the picture
                    last_line = ""
            if update.connected and not connected:
                last_line = BACK
            connected = update.connected
            note = AWAY if not connected else QUEUED if task.status == "queued" else last_line
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
