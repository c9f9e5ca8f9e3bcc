"""perdure audit dead-letters: ls, show, replay."""

from typing import Annotated, Any, Final

import typer

from perdure.cli.output import (
    AsJson,
    Limit,
    complain_line,
    print_fields,
    print_json,
    print_table,
    say,
)
from perdure.cli.server import connect
from perdure.client import Client, DeadLetter
from perdure.domain.dead_letter import LetterStatus
from perdure.errors import Conflict, InvalidInput

app = typer.Typer(
    help="Look at messages that failed for good, and put them back.", no_args_is_help=True
)
DeadLetterId = Annotated[
    str, typer.Argument(metavar="ID", help="A dead letter's id, or the beginning of one.")
]

_REASONS: Final = {
    "failed": "its handler failed each time",
    "delivery_limit": "its consumers died on it",
}


@app.command("ls")
def list_dead_letters(
    limit: Limit = 50,
    status: Annotated[
        LetterStatus | None, typer.Option("--status", help="Only dead letters of this status.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List messages that failed as often as their queue allows."""
    with connect() as client:
        letters = list(client.dead_letters(status=status and status.value, limit=limit))
    if as_json:
        print_json([letter.json for letter in letters])
        return
    print_table(
        ("ID", "MESSAGE", "QUEUE", "STATUS", "DIED", "TASK", "WHY"),
        (
            (
                letter.id,
                letter.message_type,
                ", ".join(letter.queues),
                letter.status,
                _last(letter)["at"][:19],
                letter.task_id,
                _why(letter),
            )
            for letter in letters
        ),
        empty="there are no dead letters",
    )


@app.command()
def show(dead_letter_id: DeadLetterId, as_json: AsJson = False) -> None:
    """Show one dead letter: where it failed and why, what it is about, and what to do.

    --json shows its body, too.
    """
    with connect() as client:
        letter = client.dead_letter(client.find_dead_letter_id(dead_letter_id))
    if as_json:
        print_json(letter.json)
        return
    print_fields(_fields(letter))
    if len(letter.json["deaths"]) > 1:
        say("")
        print_table(
            ("DIED", "QUEUE", "REPLAY", "DELIVERIES", "WHY"),
            (
                (d["at"][:19], d["queue"], d["replay"] or "", d["deliveries"], d["error"])
                for d in letter.json["deaths"]
            ),
            empty="",
        )
    say("")
    for line in _next_steps(letter):
        say(line)


@app.command()
def replay(
    dead_letter_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="A dead letter's id, or the beginning of one."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that are parked.")] = False,
    queue: Annotated[
        str | None, typer.Option("--queue", help="With --all: only those parked in this queue.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put a dead letter back into the queue where it failed, or all that are parked.

    Exit code 1: one was refused.
    """
    if every == (dead_letter_id is not None):
        raise InvalidInput("name either one dead letter, or --all")
    if queue is not None and not every:
        raise InvalidInput("--queue goes with --all only")
    with connect() as client:
        if dead_letter_id is not None:
            letter = client.replay_dead_letter(client.find_dead_letter_id(dead_letter_id))
            _print_replayed(letter, as_json=as_json)
        else:
            _replay_all(client, queue, as_json=as_json)


def _print_replayed(letter: DeadLetter, *, as_json: bool) -> None:
    if as_json:
        print_json(letter.json)
        return
    say(f"dead letter {letter.id}: put back into {', '.join(letter.queues)}")
    say(f"see whether it dies again: perdure audit dead-letters show {letter.id}")


def _replay_all(client: Client, queue: str | None, *, as_json: bool) -> None:
    # All of them before the first replay: a list whose members leave it loses its place.
    parked = list(client.dead_letters(status=LetterStatus.PARKED.value))
    chosen = [letter for letter in parked if queue is None or queue in letter.queues]
    replayed: list[Any] = []
    refused: list[Any] = []
    for letter in chosen:
        try:
            replayed.append(client.replay_dead_letter(letter.id).json)
        except Conflict as error:
            refused.append({"id": letter.id, "message": error.message})
            complain_line(f"error: {error.message}")
    if as_json:
        print_json({"replayed": replayed, "refused": refused})
    else:
        say(f"{len(replayed)} of {len(chosen)} dead letters put back into their queues")
    if refused:
        raise typer.Exit(1)


def _last(letter: DeadLetter) -> dict[str, Any]:
    """The last death."""
    last: dict[str, Any] = letter.json["deaths"][-1]
    return last


def _why(letter: DeadLetter) -> str:
    last = _last(letter)
    return str(last["error"]) or _reason(last)


def _reason(death: dict[str, Any]) -> str:
    reason = str(death["reason"])
    return _REASONS.get(reason, reason)


def _fields(letter: DeadLetter) -> dict[str, Any]:
    form, last = letter.json, _last(letter)
    sent = form["replays"][-1] if form["replays"] else None
    exchange = f"exchange {last['exchange']}, " if last["exchange"] else ""
    return {
        "dead letter": letter.id,
        "message": f"{letter.message_type}, {form['body_bytes']:,} bytes, from {form['source']}",
        "about": f"task {letter.task_id}" if letter.task_id else form["subject"],
        "status": letter.status,
        "where": f"queue {last['queue']} ({exchange}routing key {last['routing_key']})",
        "why": _reason(last),
        "how often": f"{last['deliveries']} deliveries",
        "last error": last["error"],
        "died": last["at"],
        "replayed": sent and f"{len(form['replays'])} times, last by {_by(sent)}",
        "effect": _effect(form["effect"]),
    }


def _by(sent: dict[str, Any]) -> str:
    return f"{sent['requested_by']} at {sent['at']}"


def _effect(effect: list[dict[str, Any]] | None) -> str:
    match effect:
        case None:
            return "cannot be told from the log"
        case []:
            return "none in the log"
        case events:
            told = ", ".join(f"{event['type']} at position {event['position']}" for event in events)
            return f"already recorded: {told}"


def _next_steps(letter: DeadLetter) -> list[str]:
    """What a person can do about a dead letter, a line each."""
    form = letter.json
    look = [f"its task: perdure task show {letter.task_id}"] if letter.task_id else []
    if letter.status == LetterStatus.REPLAYED:
        return ["it was put back into its queue, and has not died again: nothing to do", *look]
    if not form["kept"]:
        return [
            "its body was too large to be kept, so it cannot be replayed: "
            "its sender has to send it again",
            *look,
        ]
    again = f"perdure audit dead-letters replay {letter.id}"
    if form["effect"]:
        return [
            "its effect is in the log, so that nothing is owed; put back, it changes nothing more",
            f"to settle it: {again}",
            *look,
        ]
    return [f"mend what the error names, then put it back: {again}", *look]
