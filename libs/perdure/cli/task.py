"""perdure task: ls, show, watch, logs, cancel."""

import sys
from typing import Annotated, Any

import typer

from perdure.cli.output import (
    AsJson,
    Limit,
    duration,
    number,
    print_fields,
    print_json,
    print_table,
    say,
)
from perdure.cli.server import connect
from perdure.cli.watching import conclude
from perdure.cli.watching import follow as follow_task
from perdure.client import Task
from perdure.domain.task import Status
from perdure.errors import InvalidInput

app = typer.Typer(help="Look at tasks, and stop them.", no_args_is_help=True)
TaskId = Annotated[
    str, typer.Argument(metavar="TASK_ID", help="A task's id, or the beginning of one.")
]


@app.command("ls")
def list_tasks(
    limit: Limit = 50,
    status: Annotated[
        Status | None, typer.Option("--status", help="Only tasks of this status.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List tasks."""
    with connect() as client:
        tasks = list(client.tasks(status=status and status.value, limit=limit))
    if as_json:
        print_json([task.json for task in tasks])
        return
    print_table(
        ("ID", "NAME", "GOAL", "STATUS", "STAGE", "RETRIES", "MAP50", "MODEL", "SUBMITTED"),
        (
            (
                task.id,
                task.name,
                task.goal,
                task.status,
                task.stage,
                task.json["retry_count"],
                number(task.json["map50"]),
                task.model_id,
                task.json["submitted_at"][:19],
            )
            for task in tasks
        ),
        empty="there are no tasks yet: submit one with: perdure train --data PATH",
    )


@app.command()
def show(task_id: TaskId, as_json: AsJson = False) -> None:
    """Show one task: where it stands, its attempts and its epochs."""
    with connect() as client:
        task = client.task(client.find_task_id(task_id))
    if as_json:
        print_json(task.json)
    else:
        print_task(task)


def print_task(task: Task) -> None:
    """Print a task for people: its fields, its attempts and its epochs."""
    print_fields(task_fields(task))
    if task.json["attempts"]:
        say("")
        print_table(("ATTEMPT", "STAGE", "OUTCOME", "WORKER", "WHAT"), _attempts(task), empty="")
    if task.json["epochs"]:
        say("")
        print_table(
            ("EPOCH", "BOX", "CLS", "DFL", "MAP50", "MAP50-95", "IMAGES", "TIME"),
            _epochs(task),
            empty="",
        )


def task_fields(task: Task) -> dict[str, Any]:
    """A task's fields, for people."""
    form = task.json
    failure, retry = task.failure, form["retry"]
    return {
        "task": task.id,
        "name": task.name,
        "goal": task.goal,
        "status": task.status,
        "stage": task.stage,
        "version": task.version,
        "data set": task.dataset_version,
        "config": form["config_hash"],
        "gate": "" if form["min_map50"] is None else f"mAP50 >= {form['min_map50']}",
        "model": task.model_id,
        "mAP50": number(form["map50"]),
        "mAP50-95": number(form["map50_95"]),
        "weights": (form["trained"] or {}).get("weights_digest", ""),
        "retry": f"{retry['number']} at {retry['not_before']}" if retry else "",
        "failure": f"{failure['failure']}: {failure['detail']}" if failure else "",
        "advice": failure["advice"] if failure else "",
        "submitted": form["submitted_at"],
        "ended": form["ended_at"],
    }


def _attempts(task: Task) -> list[tuple[Any, ...]]:
    rows = []
    for attempt in task.json["attempts"]:
        resumed = attempt["resumed_from_epoch"]
        what = [
            "" if resumed is None else f"resumed from epoch {resumed}",
            f"{attempt['failure']}: {attempt['detail']}" if attempt["failure"] else "",
        ]
        rows.append(
            (
                attempt["fence"],
                attempt["stage"],
                # Its worker was stopped, which is no fault of the attempt.
                "stopped" if attempt["failure"] == "worker_stopped" else attempt["outcome"],
                attempt["worker_id"],
                "; ".join(filter(None, what)),
            )
        )
    return rows


def _epochs(task: Task) -> list[tuple[Any, ...]]:
    return [
        (
            epoch["epoch"],
            number(epoch["box_loss"]),
            number(epoch["cls_loss"]),
            number(epoch["dfl_loss"]),
            number(epoch["map50"]),
            number(epoch["map50_95"]),
            epoch["images"],
            duration(epoch["duration_s"]),
        )
        for epoch in task.json["epochs"]
    ]


@app.command()
def watch(task_id: TaskId, as_json: AsJson = False) -> None:
    """Follow a task until it has ended, as `perdure train --wait` does, and exit as that does."""
    with connect() as client:
        task = client.task(client.find_task_id(task_id))
        task = follow_task(client, task, quiet=as_json, past=True)
    if as_json:
        print_json(task.json)
    conclude(task, as_json=as_json)


@app.command()
def logs(
    task_id: TaskId,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Go on as the log grows, until the task ends.")
    ] = False,
    offset: Annotated[
        int, typer.Option("--offset", min=0, help="Begin at this byte: an earlier next_offset.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Print what a task's attempts wrote."""
    if follow and (as_json or offset):
        raise InvalidInput("-f goes with neither --json nor --offset: leave one of them out")
    with connect() as client:
        full_id = client.find_task_id(task_id)
        if follow:
            for piece in client.follow_logs(full_id):
                _write(piece)
            return
        pieces = []
        while (page := client.logs(full_id, offset)).text:
            offset = page.next_offset
            if as_json:
                pieces.append(page.text)
            else:
                _write(page.text)
    if as_json:
        print_json({"text": "".join(pieces), "next_offset": offset})


def _write(piece: str) -> None:
    sys.stdout.write(piece)
    sys.stdout.flush()


@app.command()
def cancel(task_id: TaskId, as_json: AsJson = False) -> None:
    """Ask for a task to be stopped."""
    with connect() as client:
        task = client.cancel(client.find_task_id(task_id))
    if as_json:
        print_json(task.json)
    elif task.ended:
        say(f"task {task.id} is {task.status}")
    else:
        say(f"task {task.id}: cancel requested; it ends when its attempt has stopped")
        say(f"see it end with: perdure task watch {task.id}")
