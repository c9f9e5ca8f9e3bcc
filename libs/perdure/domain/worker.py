"""Workers: their streams, and their registrations."""

from perdure.contracts.v1 import events_pb2


def worker_stream(worker_id: str) -> str:
    """The stream of a worker."""
    return f"worker-{worker_id}"


def is_same(one: events_pb2.WorkerRegistered, other: events_pb2.WorkerRegistered) -> bool:
    """Whether both are the same start of the same worker."""
    return one.worker_id == other.worker_id and one.incarnation == other.incarnation
