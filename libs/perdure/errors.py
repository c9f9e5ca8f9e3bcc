"""Every error that Perdure raises on purpose.

PerdureError
├── InvalidInput                    400  the request or the file is wrong; nothing was done
│   ├── InvalidConfig               422  a training configuration with unknown keys or bad values
│   ├── InvalidDataset              422  a data set with error findings
│   ├── InvalidModel                422  a model file that is not one of Perdure's, or not whole
│   ├── UnsafeArchive               422  an archive that would write outside its folder, or a bomb
│   ├── InputTooLarge               413  a request body above its limit
│   ├── UnsupportedMediaType        415  a request body of a kind that is not read there
│   └── InvalidSetting              400  a setting of a service or command that is missing or wrong
├── NotFound                        404  no task, data set version, model or object of that name
├── Conflict                        409  the state does not allow it
│   ├── VersionConflict             409  another writer appended to the stream first
│   ├── EventIdReused               409  an event id that is in the log with other content
│   ├── AlreadyRunning              409  another server holds the data folder
│   └── SchemaMismatch              409  the database's schema is not this version's
├── Unavailable                     503  something Perdure needs does not answer; try again
│   ├── ServerUnreachable           503  the SDK cannot reach a gateway
│   │   └── ForeignServer           503  what answers at its address is something else
│   ├── LogUnavailable              503  the event log
│   ├── BusUnavailable              503  the message broker
│   └── StoreUnavailable            503  the object store
│       └── StoreDenied             503  the object store refuses our keys, or what they ask for
├── Damaged                         500  something that was stored is not what was written
│   ├── DamagedObject               500  an object whose bytes do not match their digest
│   ├── DamagedLog                  500  a hole in the log, or a hash that does not follow
│   └── DamagedCheckpoint           500  a checkpoint that cannot be read back
├── TaskFailed                      409  a task ended without its result
└── AttemptError                    500  an attempt cannot go on; carries its failure class
"""

from typing import Any, ClassVar


class PerdureError(Exception):
    """Something went wrong in Perdure."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "perdure.error"

    def __init__(self, message: str | None = None, **details: Any) -> None:
        """`message` says what was wrong, where, and what to do; `details` goes into the error's
        JSON form.
        """
        self.message = message or (type(self).__doc__ or "").strip()
        self.details = details
        super().__init__(self.message)


class InvalidInput(PerdureError):
    """The request or the file is wrong; nothing was done."""

    status = 400
    code = "input.invalid"


class InvalidConfig(InvalidInput):
    """The training configuration has unknown keys or bad values."""

    status = 422
    code = "config.invalid"


class InvalidDataset(InvalidInput):
    """The data set has errors."""

    status = 422
    code = "dataset.invalid"


class InvalidModel(InvalidInput):
    """The model file is not one of Perdure's, or not whole."""

    status = 422
    code = "model.invalid"


class UnsafeArchive(InvalidInput):
    """The archive is not safe to unpack."""

    status = 422
    code = "archive.unsafe"


class InputTooLarge(InvalidInput):
    """The request body is above its limit."""

    status = 413
    code = "input.too-large"


class UnsupportedMediaType(InvalidInput):
    """The request body is of a kind that is not read here."""

    status = 415
    code = "input.media-type"


class InvalidSetting(InvalidInput):
    """A setting is missing or wrong."""

    code = "setting.invalid"


class NotFound(PerdureError):
    """There is nothing of that name."""

    status = 404
    code = "not-found"


class Conflict(PerdureError):
    """The state does not allow it."""

    status = 409
    code = "conflict"


class VersionConflict(Conflict):
    """Another writer appended to the stream first: read it again and decide anew."""

    code = "log.version-conflict"


class EventIdReused(Conflict):
    """An event with this id is in the log with other content."""

    code = "log.event-id-reused"


class AlreadyRunning(Conflict):
    """Another server holds the data folder."""

    code = "server.already-running"


class SchemaMismatch(Conflict):
    """The database's schema is not the one of this version of Perdure."""

    code = "log.schema-mismatch"


class Unavailable(PerdureError):
    """Something that Perdure needs does not answer."""

    status = 503
    code = "unavailable"


class ServerUnreachable(Unavailable):
    """No Perdure server answers."""

    code = "server.unreachable"


class ForeignServer(ServerUnreachable):
    """What answers is no Perdure server."""

    code = "server.foreign"


class LogUnavailable(Unavailable):
    """The event log does not answer."""

    code = "log.unavailable"


class BusUnavailable(Unavailable):
    """The message broker does not answer."""

    code = "bus.unavailable"


class StoreUnavailable(Unavailable):
    """The object store does not answer."""

    code = "store.unavailable"


class StoreDenied(StoreUnavailable):
    """The object store refuses our keys, or what they ask for."""

    code = "store.denied"


class Damaged(PerdureError):
    """Something that was stored is not what was written."""

    code = "damaged"


class DamagedObject(Damaged):
    """An object's bytes do not match their digest."""

    code = "store.object-damaged"


class DamagedLog(Damaged):
    """The event log has a hole, or a hash that does not follow from the one before."""

    code = "log.damaged"


class DamagedCheckpoint(Damaged):
    """A checkpoint cannot be read back."""

    code = "checkpoint.damaged"


class TaskFailed(PerdureError):
    """The task ended without its result."""

    status = 409
    code = "task.failed"


class AttemptError(PerdureError):
    """An attempt cannot go on."""

    code = "attempt.failed"

    def __init__(self, failure: str, message: str) -> None:
        """`failure` is a failure class of perdure.domain.failures."""
        super().__init__(message, failure=failure)
        self.failure = failure


def described(error: BaseException) -> str:
    """An error in one line: its kind and its text, or words for one that has no text."""
    match error:
        case PerdureError():
            return error.message
        case TimeoutError() if not str(error):
            text = "no answer in time"
        case _:
            text = str(error).strip() or "it gives no reason"
    return f"{type(error).__name__}: {text}"
