"""perdure audit dead-letters and reconcile, against a gateway on a real port."""

from dataclasses import replace

from perdure.client import Client
from perdure.contracts.v1 import events_pb2
from perdure.domain.dead_letter import MAX_BODY_BYTES
from perdure.errors import BusUnavailable
from perdure.eventlog.leadership import RELAY
from perdure.messaging.port import Queue, QueueView
from perdure_scheduler.dead_letters import dead_lettered
from tests.builders.dead_letters import (
    QUEUE,
    REPORT,
    TASK,
    death,
    died,
    replayed,
    report_message,
)
from tests.builders.gateway import NOW, assigned, epoch
from tests.builders.tasks import submission

STREAM = "dead-letter-report-7"


def dead(server, message_id: str, queue: str) -> None:
    data = dead_lettered(report_message(message_id=message_id), death(queue))
    server.run(server.world.append(f"dead-letter-{message_id}", data))


def test_dead_letters_are_listed(perdure, server):
    empty = perdure("audit", "dead-letters", "ls")
    assert (empty.code, empty.out, empty.err) == (0, "", "there are no dead letters\n")
    server.run(server.world.append(STREAM, died()))
    dead(server, "abc", "other")
    head, first, second = perdure("audit", "dead-letters", "ls").out.splitlines()
    assert head.split() == ["ID", "MESSAGE", "QUEUE", "STATUS", "DIED", "TASK", "WHY"]
    assert first.split()[:4] == ["abc", "Report", "other", "parked"]
    for words in (
        "report-7",
        "scheduler.reports",
        "2026-01-02T03:04:05",
        TASK,
        "KeyError: 'epoch'",
    ):
        assert words in second
    assert len(perdure("audit", "dead-letters", "ls", "--limit", "1", "--json").json) == 1
    assert perdure("audit", "dead-letters", "ls", "--status", "replayed", "--json").json == []


def test_a_dead_letter_is_shown_in_words_with_the_next_step(perdure, server):
    server.run(server.world.append(STREAM, died()))
    shown = perdure("audit", "dead-letters", "show", "rep")
    assert shown.code == 0
    for words in (
        f"task {TASK}",
        "queue scheduler.reports (exchange perdure.reports, routing key train)",
        "its handler failed each time",
        "5 deliveries",
        "KeyError: 'epoch'",
        "none in the log",
        "perdure audit dead-letters replay report-7",
        f"perdure task show {TASK}",
    ):
        assert words in shown.out
    form = perdure("audit", "dead-letters", "show", "report-7", "--json").json
    assert form["message"]["fence"] == 2
    assert perdure("audit", "dead-letters", "show", "x").code == 1
    dead(server, "report-8", "other")
    assert perdure("audit", "dead-letters", "show", "report").code == 2


def test_one_that_took_effect_all_the_same_says_where(perdure, server):
    world = server.world
    server.run(world.append(f"task-{TASK}", submission(task_id=TASK), assigned(2, "train")))
    server.run(world.append(f"task-{TASK}", REPORT.epoch, cause=REPORT.id))
    server.run(world.append(STREAM, died()))
    shown = perdure("audit", "dead-letters", "show", "report-7").out
    assert "already recorded: EpochCompleted at position 3" in shown
    assert "nothing is owed" in shown


def test_one_that_was_replayed_and_died_again_tells_of_each_death(perdure, server):
    server.run(server.world.append(STREAM, died(), replayed()))
    shown = perdure("audit", "dead-letters", "show", "report-7").out
    assert f"1 times, last by ann at {NOW}" in shown
    assert "has not died again: nothing to do" in shown
    server.run(server.world.append(STREAM, died(1)))
    lines = perdure("audit", "dead-letters", "show", "report-7").out.splitlines()
    table = [line.split() for line in lines if line.startswith("2026-")]
    assert [row[2] for row in table] == ["5", "1"]  # the first has no replay before its deliveries


def test_one_that_is_too_large_cannot_be_replayed(perdure, server):
    message = replace(report_message(), body=b"x" * (MAX_BODY_BYTES + 1))
    server.run(server.world.append(STREAM, dead_lettered(message, death())))
    assert "has to send it again" in perdure("audit", "dead-letters", "show", "report-7").out
    ran = perdure("audit", "dead-letters", "replay", "report-7")
    assert (ran.code, "too large to be kept" in ran.err) == (1, True)


def test_a_dead_letter_is_replayed_by_the_beginning_of_its_id(perdure, server):
    server.run(server.world.bus.declare(Queue(QUEUE, "x", ())))
    server.run(server.world.append(STREAM, died()))
    ran = perdure("audit", "dead-letters", "replay", "rep")
    assert ran.code == 0
    assert "put back into scheduler.reports" in ran.out
    again = perdure("audit", "dead-letters", "replay", "rep", "--json")
    assert (again.code, again.json["error"]["code"]) == (1, "conflict")
    assert "is not parked" in again.err


def test_all_of_a_queue_are_replayed_and_those_refused_are_named(perdure, server):
    world = server.world
    for queue in (QUEUE, "other"):
        server.run(world.bus.declare(Queue(queue, "x", ())))
    dead(server, "a1", QUEUE)
    dead(server, "a2", QUEUE)
    dead(server, "b1", "other")
    dead(server, "c1", "gone")
    ran = perdure("audit", "dead-letters", "replay", "--all", "--queue", QUEUE)
    assert (ran.code, ran.out) == (0, "2 of 2 dead letters put back into their queues\n")
    assert server.run(world.bus.inspect(Queue("other", "x", ()))).messages == 0
    rest = perdure("audit", "dead-letters", "replay", "--all", "--json")
    assert rest.code == 1
    assert [letter["id"] for letter in rest.json["replayed"]] == ["b1"]
    assert [letter["id"] for letter in rest.json["refused"]] == ["c1"]
    assert "gone is no queue any more" in rest.err


def test_while_the_broker_is_away_a_replay_ends_with_3(perdure, server):
    server.run(server.world.append(STREAM, died()))
    server.run(server.world.bus.close())
    ran = perdure("audit", "dead-letters", "replay", "report-7")
    assert (ran.code, "bus is closed" in ran.err) == (3, True)


NOTHING = dict.fromkeys(("lost", "duplicated", "differs", "parked", "owed", "unchecked"), 0)


def counted(lines: list[str]) -> dict[str, int]:
    """The lines of what was found, each of which says what it means, too."""
    assert all(len(line.split()) > 5 for line in lines)
    return {line.split()[0]: int(line.split()[1]) for line in lines}


def relayed(server) -> None:
    async def move() -> None:
        world = server.world
        known, head = await world.read_models.position(RELAY), await world.log.head()
        assert await world.read_models.commit(RELAY, expected=known, position=head.position)

    server.run(move())


def test_a_log_in_order_is_reconciled_with_0(perdure, server):
    server.run(server.world.append(f"task-{TASK}", submission(task_id=TASK), assigned()))
    owed = perdure("audit", "reconcile")
    assert owed.code == 0
    first, *counts, last = owed.out.splitlines()
    assert first == "events 2, published up to 0; tasks 1, ended 0; dead letters 0"
    assert counted(counts) == {**NOTHING, "owed": 1}
    assert last.startswith("owed: events not published yet: 2")
    assert "perdure relay status" in last
    relayed(server)
    found = perdure("audit", "reconcile", "--json")
    assert (found.code, found.json["ok"], found.json["findings"]) == (0, True, [])


def test_what_is_parked_or_counts_twice_ends_with_1_and_a_line_each(perdure, server):
    world = server.world
    server.run(world.append(f"task-{TASK}", submission(task_id=TASK), assigned(1, "train")))
    server.run(world.append(f"task-{TASK}", epoch(1, 1)))
    server.run(world.append(f"task-{TASK}", epoch(1, 1)))
    error = "ValueError: one\nline\nand another"
    letter = dead_lettered(report_message(), death(error=error))
    server.run(world.append(STREAM, letter))
    relayed(server)
    ran = perdure("audit", "reconcile")
    assert ran.code == 1
    _, *counts, twice, parked = ran.out.splitlines()
    assert counted(counts) == {**NOTHING, "duplicated": 1, "parked": 1}
    assert twice.startswith(f"duplicated: task {TASK}: EpochCompleted at position 4")
    assert f"perdure audit events {TASK}" in twice
    assert "ValueError: one line and another; no effect of it is in the log" in parked
    assert "perdure audit dead-letters show report-7" in parked
    assert perdure("audit", "reconcile", "--json").code == 1


def test_findings_beyond_those_listed_are_counted(perdure, server):
    world = server.world
    twice = [epoch(1, 1) for _ in range(103)]
    task = (submission(task_id=TASK), assigned(1, "train"))
    server.run(world.append(f"task-{TASK}", *task))
    for event in twice:
        server.run(world.append(f"task-{TASK}", event))
    relayed(server)
    lines = perdure("audit", "reconcile").out.splitlines()
    assert counted(lines[1:7])["duplicated"] == 102
    assert (len(lines), lines[-1]) == (7 + 100 + 1, "and 2 more of the same kinds")


def test_without_a_broker_the_log_cannot_be_reconciled_which_is_no_finding(
    perdure, server, monkeypatch
):
    server.run(server.world.append(f"task-{TASK}", submission(task_id=TASK)))
    relayed(server)

    async def inspect(queue: Queue) -> QueueView:
        raise BusUnavailable("the broker does not answer")

    monkeypatch.setattr(server.world.bus, "inspect", inspect)
    ran = perdure("audit", "reconcile")
    assert ran.code == 3
    told = ran.out.splitlines()[-1]
    assert told.startswith("could not check: the broker's queue dead-letters: ")
    assert told.endswith("see that the broker runs, then reconcile again")
    as_json = perdure("audit", "reconcile", "--json")
    assert (as_json.code, as_json.json["ok"]) == (3, False)
    server.run(server.world.append(STREAM, died()))
    relayed(server)
    assert perdure("audit", "reconcile").code == 1  # a finding weighs more


def test_the_help_of_reconcile_explains_what_it_finds(perdure):
    shown = perdure("audit", "reconcile", "--help").out
    for category in NOTHING:
        (line,) = (line for line in shown.splitlines() if line.split()[:1] == [category])
        assert len(line.split()) > 4


def test_the_sdk_gives_records(server):
    server.run(server.world.append(STREAM, died()))
    server.run(server.world.append("task-broken", events_pb2.TaskCancelRequested()))
    with Client(server.url) as client:
        (letter,) = client.dead_letters(status="parked")
        assert (letter.id, letter.status, letter.queues) == ("report-7", "parked", (QUEUE,))
        found = client.reconcile()
    assert (found.ok, found.head, found.counts["parked"]) == (False, 2, 1)
    assert [finding.category for finding in found.findings] == [
        "differs",
        "parked",
        "owed",  # the relay
        "owed",  # the read model that stands still
    ]
