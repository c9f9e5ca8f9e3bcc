"""GET /v1/audit/reconcile: the log, the relay, the dead letters and the read models, held against
each other.
"""

import asyncio
from typing import Any, Final

from fastapi import APIRouter

from perdure.contracts.v1 import events_pb2
from perdure.domain.dead_letter import dead_letter_stream, is_kept
from perdure.domain.log_audit import LogAudit
from perdure.domain.reconciliation import MAX_LISTED, Findings, Kind
from perdure.domain.task import task_stream, to_json
from perdure.domain.task_audit import Standing, digest
from perdure.domain.task_evolution import replay
from perdure.errors import BusUnavailable, DamagedLog, NotFound
from perdure.eventlog.leadership import RELAY
from perdure.eventlog.port import Document
from perdure.messaging import topology
from perdure_gateway.answering import NEEDS_DATABASE
from perdure_gateway.context import TASKS, Gateway, GatewayOf
from perdure_gateway.dead_letters import effect_of
from perdure_gateway.projections import PROJECTIONS

router = APIRouter()
PAGE_EVENTS: Final = 1000
PAGE_DOCUMENTS: Final = 200  # of tasks, each with all its epochs


@router.get("/v1/audit/reconcile", dependencies=[NEEDS_DATABASE])
async def reconcile(gateway: GatewayOf) -> dict[str, Any]:
    """Name every event and message that is lost, duplicated or parked, and what is owed.

    It walks the whole log, up to where that ends when it begins. `ok` is true when all could be
    looked at, and there is nothing but what is owed.
    """
    findings = Findings()
    # In this order: the checkpoint is never beyond the head that is read after it.
    published = await gateway.read_models.position(RELAY)
    head = (await gateway.log.head()).position
    audit = LogAudit(findings, published=published)
    await _verify(gateway, findings)
    if await _walk(gateway, audit, findings, head):
        audit.end(head=head, now=gateway.clock.now())
        await _compare_read_models(gateway, audit, findings, head)
    await _name_parked(gateway, audit, findings)
    await _look_into_queue(gateway, findings)
    return {"head": head, **findings.to_json(), "log": audit.counts}


async def _verify(gateway: Gateway, findings: Findings) -> None:
    try:
        await gateway.log.verify()
    except DamagedLog as damage:
        findings.add(Kind.LOG_DAMAGED, f"{damage.details.get('position', '')}", damage.message)


async def _walk(gateway: Gateway, audit: LogAudit, findings: Findings, head: int) -> bool:
    """Hand all events to `audit`. False when one of them cannot be read: then it ends there."""
    while audit.position < head:
        try:
            events = await gateway.log.read_all(after=audit.position, limit=PAGE_EVENTS)
        except DamagedLog as damage:
            told = f"in the {PAGE_EVENTS} events after position {audit.position}: {damage.message}"
            findings.add(Kind.LOG_DAMAGED, str(audit.position), told)
            return False
        if not events:
            break
        await asyncio.to_thread(audit.take, [e for e in events if e.position <= head])
        if events[-1].position > head:
            break
    return True


async def _name_parked(gateway: Gateway, audit: LogAudit, findings: Findings) -> None:
    for number, letter_id in enumerate(audit.parked()):
        told = await _parked(gateway, letter_id) if number < MAX_LISTED else ""
        findings.add(Kind.DEAD_LETTER, letter_id, told)


async def _parked(gateway: Gateway, letter_id: str) -> str:
    """A parked dead letter in words: what, where, why, and whether it took effect all the same."""
    events = await gateway.log.read_stream(dead_letter_stream(letter_id))
    last = next(
        event.data
        for event in reversed(events)
        if isinstance(event.data, events_pb2.MessageDeadLettered)
    )
    effect = await effect_of(gateway.log, last)
    match effect:
        case _ if not is_kept(last):
            outcome = "its body was too large to be kept"
        case None:
            outcome = "whether it took effect cannot be told from the log"
        case []:
            outcome = "no effect of it is in the log"
        case [*_, newest]:
            outcome = f"its effect is in the log: {newest['type']} at {newest['position']}"
    of_task = f" of task {last.task_id}" if last.task_id else ""
    why = last.error or last.reason
    return f"{last.message_type}{of_task}, in queue {last.queue}: {why}; {outcome}"


async def _compare_read_models(
    gateway: Gateway, audit: LogAudit, findings: Findings, head: int
) -> None:
    reached: dict[str, int] = {}
    for name in PROJECTIONS:
        await gateway.settle(name)
        reached[name] = await gateway.read_models.position(name)
        end = (await gateway.log.head()).position
        if reached[name] > end:
            told = f"read model {name} knows positions {end + 1} to {reached[name]}"
            findings.add(Kind.READ_MODEL_AHEAD, name, f"{told}: the log does not")
        elif reached[name] < head:
            told = f"read model {name} is at position {reached[name]} of {head}"
            findings.add(Kind.READ_MODEL_BEHIND, name, told)
    standings = dict(await asyncio.to_thread(lambda: list(audit.tasks.standings())))
    before: int | None = None
    while documents := await gateway.read_models.find(TASKS, before=before, limit=PAGE_DOCUMENTS):
        for document in documents:
            standing = standings.pop(document.key, None)
            # A task that nobody can replay is a finding of its own; one that came since is not
            # looked at.
            if audit.tasks.is_unreadable(document.key) or document.created > head:
                continue
            wrong = await _difference(gateway, document, standing)
            if wrong:
                findings.add(Kind.READ_MODEL_DIFFERS, document.key, wrong)
        before = documents[-1].created
    if reached[TASKS] >= head:
        for task_id in standings:
            told = f"task {task_id} is not in the read model {TASKS}"
            findings.add(Kind.READ_MODEL_DIFFERS, task_id, told)


async def _difference(gateway: Gateway, document: Document, standing: Standing | None) -> str:
    """How a task's document is another than the log gives; "" when it is not."""
    task_id, version = document.key, document.body.get("version")
    if standing is not None and (version, digest(document.body)) == (
        standing.version,
        standing.digest,
    ):
        return ""
    # The task moved on since, or the document stands still: held against the log at its version.
    known = version if isinstance(version, int) else None
    state = replay(await gateway.log.read_stream(task_stream(task_id), to_version=known))
    if state is None:
        return f"task {task_id} is in the read model {TASKS}, and not in the log"
    if state.version != version:
        return (
            f"task {task_id} is at version {version} in the read model, {state.version} in the log"
        )
    names = [name for name, value in to_json(state).items() if document.body.get(name) != value]
    if not names:
        return ""
    return f"task {task_id} differs in the read model {TASKS}: {', '.join(names)}"


async def _look_into_queue(gateway: Gateway, findings: Findings) -> None:
    """Dead letters that nobody has moved into the log yet."""
    queue = topology.DEAD_LETTERS
    try:
        waiting = (await gateway.bus.inspect(queue)).messages
    except NotFound:
        return
    except BusUnavailable as error:
        findings.add(
            Kind.BROKER_AWAY, queue.name, f"the broker's queue {queue.name}: {error.message}"
        )
        return
    if waiting:
        findings.add(Kind.NOT_KEPT, queue.name, f"messages in queue {queue.name}: {waiting}")
