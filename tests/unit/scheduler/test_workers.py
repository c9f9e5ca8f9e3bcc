"""What the scheduler makes of heartbeats."""

from perdure.contracts.v1 import events_pb2, work_pb2
from perdure_scheduler.workers import LEASE_S, Workers


def heartbeat(incarnation: str, second: int) -> work_pb2.Heartbeat:
    worker = events_pb2.WorkerRegistered(worker_id="node-1", incarnation=incarnation)
    return work_pb2.Heartbeat(worker=worker, time=f"2026-01-01T00:00:{second:02}.000000+00:00")


def test_a_heartbeat_that_comes_late_does_not_bring_an_earlier_start_back() -> None:
    workers = Workers(started_at=0.0)
    assert workers.heard(heartbeat("first", 1), 1.0)[1]
    assert workers.heard(heartbeat("second", 11), 11.0)[1]
    view, fresh = workers.heard(heartbeat("first", 6), 12.0)
    assert (view.incarnation, fresh) == ("second", False)
    assert workers.silent_s("node-1", 15.0) == 4.0  # an old one is no sign of life


def test_a_worker_whose_clock_was_set_back_is_heard_again_after_a_lease() -> None:
    workers = Workers(started_at=0.0)
    workers.heard(heartbeat("first", 50), 0.0)
    assert not workers.heard(heartbeat("second", 10), LEASE_S)[1]
    view, fresh = workers.heard(heartbeat("second", 15), LEASE_S + 5)
    assert (view.incarnation, fresh) == ("second", True)


def test_a_worker_whose_clock_was_set_back_loses_nothing_while_it_is_heard() -> None:
    workers = Workers(started_at=0.0)
    workers.heard(heartbeat("first", 50), 0.0)
    for second in range(5, 45, 5):
        assert not workers.heard(heartbeat("first", second), float(second))[1]
        assert workers.silent_s("node-1", second + 2.0) == 2.0
