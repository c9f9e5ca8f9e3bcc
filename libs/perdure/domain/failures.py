"""Why attempts fail, and what follows from it. Each class names its policy once, here."""

import errno
import signal
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from perdure.errors import AttemptError, Unavailable


class Failure(StrEnum):
    """A failure class."""

    KILLED = "killed"
    HOST_OOM = "host_oom"
    DEVICE_OOM = "device_oom"
    HANG = "hang"
    LOST_WORKER = "lost_worker"
    WORKER_STOPPED = "worker_stopped"
    NON_FINITE_LOSS = "non_finite_loss"
    DRIVER_MISMATCH = "driver_mismatch"
    DEVICE_ECC = "device_ecc"
    DISK_FULL = "disk_full"
    UNREACHABLE = "unreachable"
    CHECKPOINT_DAMAGED = "checkpoint_damaged"
    STORE_DAMAGED = "store_damaged"
    DATASET_INVALID = "dataset_invalid"
    CONFIG_INVALID = "config_invalid"
    BELOW_GATE = "below_gate"
    EXPORT_MISMATCH = "export_mismatch"
    UNKNOWN = "unknown"


class Response(StrEnum):
    """What is done about a failure."""

    RETRY_AT_ONCE = "retry_at_once"  # the infrastructure failed, not the task
    RETRY_WITH_BACKOFF = "retry_with_backoff"
    GIVE_UP = "give_up"


@dataclass(frozen=True)
class Policy:
    """How a failure class is answered, and the next step for a person when it ends the task."""

    response: Response
    max_retries: int
    advice: str

    @property
    def infrastructure(self) -> bool:
        """Whether something failed that no task can help."""
        return self.max_retries >= MAX_INFRASTRUCTURE_RETRIES


# Three automatic retries: a fourth equal failure has never been seen to end well.
MAX_RETRIES: Final = 3
# Losses of nodes and outages are no fault of the task, but one that takes its node down each time
# must end some day. With backoff these bridge an outage of nine hours.
MAX_INFRASTRUCTURE_RETRIES: Final = 20
# The first retry is at once: most kills are single events, and the checkpoint is there. Then 5,
# 15, 30 minutes.
BACKOFF_S: Final = (0, 300, 900, 1800)


def _at_once(advice: str) -> Policy:
    return Policy(Response.RETRY_AT_ONCE, MAX_INFRASTRUCTURE_RETRIES, advice)


def _backoff(advice: str, max_retries: int = MAX_RETRIES) -> Policy:
    return Policy(Response.RETRY_WITH_BACKOFF, max_retries, advice)


def _give_up(advice: str) -> Policy:
    return Policy(Response.GIVE_UP, 0, advice)


POLICIES: Final[dict[Failure, Policy]] = {
    Failure.KILLED: _backoff(
        "Something ends the process from outside: look for an out-of-memory record in the host's "
        "kernel log and for a job limit, then submit the task again."
    ),
    Failure.HOST_OOM: _backoff("Give the node more memory, or lower batch, imgsz or workers."),
    Failure.DEVICE_OOM: _backoff("Lower batch or imgsz, or use a smaller model.", max_retries=1),
    Failure.HANG: _backoff("Read the log's end: the training made no step for too long."),
    Failure.LOST_WORKER: _at_once(
        "The worker was lost again and again: check the node, then submit again."
    ),
    Failure.WORKER_STOPPED: _at_once("The worker was stopped again and again: let it run."),
    Failure.NON_FINITE_LOSS: _backoff(
        "Lower lr0, and look at the labels of the images that the log names.", max_retries=1
    ),
    Failure.DRIVER_MISMATCH: _backoff("Make driver and CUDA version match on the node."),
    Failure.DEVICE_ECC: _backoff("The GPU reports memory errors: take it out of service."),
    Failure.DISK_FULL: _backoff("Free disk space on the node, then submit the task again."),
    Failure.UNREACHABLE: _backoff(
        "Check that the object store answers, then submit again.", MAX_INFRASTRUCTURE_RETRIES
    ),
    Failure.CHECKPOINT_DAMAGED: _give_up(
        "Look for a disk that fails under the object store, then submit the task again: it starts "
        "from the beginning."
    ),
    Failure.STORE_DAMAGED: _give_up(
        "The object store has lost or changed what was put into it: look for a disk that fails "
        "under it, then push the data set again (perdure dataset push PATH)."
    ),
    Failure.DATASET_INVALID: _give_up("Correct the findings, then submit the task again."),
    Failure.CONFIG_INVALID: _give_up("Correct the configuration, then submit the task again."),
    Failure.BELOW_GATE: _give_up(
        "Train longer, add or correct data, or lower the gate, then submit again."
    ),
    Failure.EXPORT_MISMATCH: _give_up(
        "The exported model does not compute what the trained one does: report it with the log."
    ),
    Failure.UNKNOWN: _backoff("Read the attempt's log: its end says what went wrong."),
}


def classify_exit(exit_code: int) -> tuple[Failure, str]:
    """The class and the words for a process that ended without saying why.

    `exit_code` is negative when a signal ended the process. Exit code 0 without a result is a
    failure too.
    """
    if exit_code < 0:
        try:
            name = signal.Signals(-exit_code).name
        except ValueError:
            name = f"signal {-exit_code}"
        return Failure.KILLED, f"the process was ended by {name}"
    if exit_code == 0:
        return Failure.UNKNOWN, "the process exited with code 0 but gave no result"
    return Failure.UNKNOWN, f"the process exited with code {exit_code} without saying why"


def failure_of(name: str) -> Failure:
    """The class called `name`; one that this version does not know counts as unknown."""
    try:
        return Failure(name)
    except ValueError:
        return Failure.UNKNOWN


def is_disk_full(error: OSError) -> bool:
    """Whether a disk, or what one may use of it, is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def failure_behind(error: Exception) -> Failure:
    """The class of an attempt that ended in `error`."""
    match error:
        case AttemptError():
            return failure_of(error.failure)
        case Unavailable():
            return Failure.UNREACHABLE
        case OSError() if is_disk_full(error):
            return Failure.DISK_FULL
        case _:
            return Failure.UNKNOWN
