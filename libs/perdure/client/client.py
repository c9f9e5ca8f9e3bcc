"""The SDK's client."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from perdure.client import downloads, following, uploads
from perdure.client.connection import LONG_REPLY_TIMEOUT_S, Connection
from perdure.client.identifiers import part, unique
from perdure.client.problems import form_of
from perdure.client.records import (
    Dataset,
    DeadLetter,
    Json,
    LogPage,
    Model,
    Reconciliation,
    RelayStatus,
    Task,
    Update,
    Verification,
)
from perdure.client.waiting import OnWait
from perdure.datasets.manifest import Manifest
from perdure.errors import NotFound, TaskFailed, Unavailable

LOG_POLL_S: Final = 1.0
# A broker that has just started confirms late, and asking again would put a message back twice.
CONFIRM_TIMEOUT_S: Final = 60.0


class Client:
    """A connection to a Perdure server. Thread-safe; close it, or use it in a `with` block.

    Every method raises ServerUnreachable when no server answers, and the error that the server
    answered with.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        on_wait: OnWait | None = None,
    ) -> None:
        """Without `base_url`: PERDURE_URL, else the local server's, else http://127.0.0.1:7412.

        `on_wait` is called with the server's URL, from a thread of its own, once in each request
        whose answer takes more than 3 s.
        """
        self._connection = Connection(base_url, transport, on_wait)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._connection.url

    def version(self) -> str:
        """The server's version."""
        return str(self._get("/v1/version")["version"])

    # ---- submitting ------------------------------------------------------------------------------

    def upload(self, path: Path, on_progress: uploads.OnProgress | None = None) -> Json:
        """Send a zip archive, or what the server does not have of a folder; gives `key`, `digest`,
        `size_bytes` for `submit`.
        """
        self.version()  # one that hangs is found out before much is packed and sent
        return uploads.send(self._connection, path, on_progress)

    def push_dataset(
        self,
        path: Path,
        name: str,
        *,
        rules: Mapping[str, Any] | None = None,
        on_progress: uploads.OnProgress | None = None,
    ) -> Task:
        """Upload a data set and submit the task that imports it.

        `rules` are import rules by name, e.g. {"format": "voc", "drop_degenerate": True}.
        """
        upload = self.upload(path, on_progress)
        return self.submit(goal="dataset", name=name, upload=upload, rules=rules)

    def submit(
        self,
        *,
        name: str,
        goal: str = "model",
        dataset_version: str | None = None,
        upload: Mapping[str, Any] | None = None,
        rules: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        min_map50: float | None = None,
        idempotency_key: str | None = None,
    ) -> Task:
        """Submit a task on a data set version or an upload.

        `idempotency_key`: submitting again with the same key gives the same task. Raises
        InvalidConfig, NotFound for an unknown version, Conflict for a key that was used for
        something else.
        """
        data = {"dataset_version": dataset_version, "upload": upload, "rules": rules or None}
        body: Json = {
            "goal": goal,
            "name": name,
            "data": {key: value for key, value in data.items() if value is not None},
            "config": dict(config or {}),
            "gate": {} if min_map50 is None else {"min_map50": min_map50},
        }
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        response = self._connection.request("POST", "/v1/tasks", json=body, headers=headers)
        return Task.of(form_of(response))

    # ---- tasks -----------------------------------------------------------------------------------

    def task(self, task_id: str) -> Task:
        """One task. Raises NotFound."""
        return Task.of(self._get(f"/v1/tasks/{part(task_id)}"))

    def tasks(
        self, *, status: str | None = None, prefix: str = "", limit: int | None = None
    ) -> Iterator[Task]:
        """Tasks, newest first, at most `limit`."""
        pages = self._pages("/v1/tasks", "tasks", limit, {"status": status, "prefix": prefix})
        return (Task.of(form) for form in pages)

    def cancel(self, task_id: str) -> Task:
        """Ask for a task to be stopped. Raises Conflict when it has ended."""
        path = f"/v1/tasks/{part(task_id)}/cancel"
        # Asked twice, it is asked once: a second request finds the task cancelling.
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        return Task.of(form_of(self._connection.request("POST", path, headers=headers)))

    def progress(self, task_id: str) -> Json | None:
        """The latest telemetry of the task's attempt, if there is any."""
        progress: Json | None = self._get(f"/v1/tasks/{part(task_id)}/progress")["progress"]
        return progress

    def watch(
        self, task: str | Task, *, max_outage_s: float = following.MAX_OUTAGE_S
    ) -> Iterator[Update]:
        """Updates of a task, the first at once, until it has ended. Outlives restarts of the
        server.

        Given a Task, it begins there: no event after that version is left out.
        """
        known = self.task(task) if isinstance(task, str) else task
        return following.watch(self._connection, known, max_outage_s=max_outage_s)

    def wait(self, task_id: str) -> Task:
        """Wait until the task has ended."""
        task = self.task(task_id)
        for update in following.watch(self._connection, task):
            task = update.task
        return task

    def result(self, task_id: str) -> Model:
        """Wait until the task has ended, and give its model.

        Raises TaskFailed when the task did not succeed, and NotFound for a task that only imports a
        data set.
        """
        task = self.wait(task_id)
        if task.status != "succeeded":
            failure = dict(task.failure or {})
            raise TaskFailed(task.why_no_result, task_id=task.id, status=task.status, **failure)
        return self.model(task.model_id)

    def events(self, task_id: str) -> Iterator[Json]:
        """The task's events as they stand in the log, oldest first. Raises NotFound."""
        after: int | None = 0
        while after is not None:
            page = self._get(f"/v1/tasks/{part(task_id)}/events", {"after": after, "limit": 500})
            yield from page["events"]
            after = page["next_after"]

    def findings(
        self, task_id: str, on_head: Callable[[Json], object] | None = None
    ) -> Iterator[Json]:
        """All findings of the task's data set, refused or imported, errors first.

        Before the first one `on_head` is given what else the check has said: format, counts,
        classes. Raises NotFound while it has not been checked.
        """
        return downloads.findings(self._connection, task_id, on_head)

    def logs(self, task_id: str, offset: int = 0) -> LogPage:
        """A piece of the task's log, over all its attempts, from byte `offset` on; empty at the
        end.
        """
        response = self._connection.request(
            "GET", f"/v1/tasks/{part(task_id)}/logs", params={"offset": offset}
        )
        text = response.content.decode("utf-8", errors="replace")
        return LogPage(text, int(response.headers["Perdure-Next-Offset"]))

    def follow_logs(
        self, task_id: str, *, max_outage_s: float = following.MAX_OUTAGE_S
    ) -> Iterator[str]:
        """The task's log from its beginning, as it grows, until the task has ended."""
        offset = 0
        answered_at = time.monotonic()
        while True:
            try:
                # Asked before the log is read, so that what was written last is not missed.
                ended = self.task(task_id).ended
                page = self.logs(task_id, offset)
                answered_at = time.monotonic()
            except Unavailable:
                if time.monotonic() - answered_at > max_outage_s:
                    raise
                page, ended = LogPage("", offset), False
            offset = page.next_offset
            if page.text:
                yield page.text
            elif ended:
                return
            else:
                time.sleep(LOG_POLL_S)

    # ---- data sets and models --------------------------------------------------------------------

    def datasets(self, *, prefix: str = "", limit: int | None = None) -> Iterator[Dataset]:
        """Data set versions, newest first."""
        pages = self._pages("/v1/datasets", "datasets", limit, {"prefix": prefix})
        return (Dataset.of(form) for form in pages)

    def dataset(self, version: str) -> Dataset:
        """One data set version. Raises NotFound."""
        return Dataset.of(self._get(f"/v1/datasets/{part(version)}"))

    def manifest(self, version: str) -> Manifest:
        """What a data set version consists of. Raises NotFound and DamagedObject."""
        return downloads.manifest(self._connection, version)

    def fetch_image(self, version: str, digest: str, size_bytes: int, target: Path) -> None:
        """Put the original bytes of an image of a version at `target`, which must not exist.

        Raises NotFound, DamagedObject and OSError.
        """
        downloads.image(self._connection, version, digest, size_bytes, target)

    def probe(self, version: str) -> Json:
        """What is odd in a data set version. Raises NotFound, also for one imported before there
        were probes.
        """
        return self._get(f"/v1/datasets/{part(version)}/probe")

    def report_url(self, version: str) -> str:
        """Where the probe of a data set version is shown as a page."""
        return f"{self.url}/v1/datasets/{part(version)}/report"

    def fetch_report(self, version: str, target: Path) -> None:
        """Put the probe of a version, as a page, at `target`. Raises as probe, and OSError."""
        downloads.report(self._connection, self.dataset(version), target)

    def models(self, *, prefix: str = "", limit: int | None = None) -> Iterator[Model]:
        """Models, rejected ones included, newest first."""
        pages = self._pages("/v1/models", "models", limit, {"prefix": prefix})
        return (Model.of(form) for form in pages)

    def model(self, model_id: str) -> Model:
        """One model. Raises NotFound."""
        if not model_id:
            raise NotFound(
                "the task has no model: it has not ended, did not succeed, or only imports a data "
                "set. Client.result(task_id) waits for the model, and says why there is none"
            )
        return Model.of(self._get(f"/v1/models/{part(model_id)}"))

    def model_card(self, model_id: str) -> Json:
        """A registered model's card. Raises NotFound for a model that was not registered."""
        model = self.model(model_id)
        card_key = model.json.get("card", {}).get("key", "")
        name = card_key.rpartition("/")[2]
        if not name:
            raise NotFound(f"model {model_id} has no card: it is {model.status}")
        return self._get(f"/v1/models/{part(model_id)}/files/{part(name)}")

    def pull_model(
        self, model_id: str, out: Path, *, on_progress: uploads.OnProgress | None = None
    ) -> list[Path]:
        """Fetch a model's files into the folder `out`, checked by digest: all of them, or none.

        Raises Conflict for a model that was not registered, and so has no files.
        """
        return downloads.pull(self._connection, self.model(model_id), out, on_progress)

    # ---- audit -----------------------------------------------------------------------------------

    def replay(self, task_id: str, at_version: int | None = None) -> Task:
        """The task as the log tells it, after its first `at_version` events. Raises NotFound."""
        path = f"/v1/audit/tasks/{part(task_id)}"
        return Task.of(self._get(path, {"at_version": at_version}))

    def verify(self) -> Verification:
        """Have the server walk its whole log. Raises DamagedLog, naming the first place that is
        wrong.
        """
        form = self._get_long("/v1/audit/verify")
        return Verification(form["from"], form["to"], form["head"], form)

    def relay_status(self) -> RelayStatus:
        """How far the relay is behind the log, and whether one is active."""
        return RelayStatus.of(self._get("/v1/audit/relay"))

    def reconcile(self) -> Reconciliation:
        """Have the server hold its log against the relay, the broker, the dead letters and the read
        models.
        """
        return Reconciliation.of(self._get_long("/v1/audit/reconcile"))

    def dead_letters(
        self, *, status: str | None = None, prefix: str = "", limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """Messages that were given up, newest first. `status`: parked or replayed."""
        params = {"status": status, "prefix": prefix}
        pages = self._pages("/v1/audit/dead-letters", "dead_letters", limit, params)
        return (DeadLetter.of(form) for form in pages)

    def dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """One dead letter, with its body and its effect. Raises NotFound."""
        return DeadLetter.of(self._get(f"/v1/audit/dead-letters/{part(dead_letter_id)}"))

    def replay_dead_letter(self, dead_letter_id: str) -> DeadLetter:
        """Put a dead letter back into its queue. Raises Conflict when it is not parked, and
        BusUnavailable when the broker is away.
        """
        path = f"/v1/audit/dead-letters/{part(dead_letter_id)}/replay"
        response = self._connection.request("POST", path, reply_timeout_s=CONFIRM_TIMEOUT_S)
        return DeadLetter.of(form_of(response))

    # ---- ids -------------------------------------------------------------------------------------

    def find_task_id(self, prefix: str) -> str:
        """The task id that begins with `prefix`. Raises NotFound, and InvalidInput when there are
        several.
        """
        return unique("task", prefix, [task.id for task in self.tasks(prefix=prefix, limit=2)])

    def find_dataset_version(self, prefix: str) -> str:
        """The data set version that begins with `prefix`. Raises as find_task_id."""
        versions = [dataset.version for dataset in self.datasets(prefix=prefix, limit=2)]
        return unique("data set version", prefix, versions)

    def find_model_id(self, prefix: str) -> str:
        """The model id that begins with `prefix`. Raises as find_task_id."""
        return unique("model", prefix, [model.id for model in self.models(prefix=prefix, limit=2)])

    def find_dead_letter_id(self, prefix: str) -> str:
        """The id of the dead letter that begins with `prefix`. Raises as find_task_id."""
        ids = [letter.id for letter in self.dead_letters(prefix=prefix, limit=2)]
        return unique("dead letter", prefix, ids)

    def _get(self, path: str, params: Mapping[str, Any] | None = None) -> Json:
        return form_of(self._connection.request("GET", path, params=params))

    def _get_long(self, path: str) -> Json:
        """What takes the server its time."""
        self.version()  # one that hangs is found out by a short question
        request = self._connection.request
        return form_of(request("GET", path, reply_timeout_s=LONG_REPLY_TIMEOUT_S))

    def _pages(
        self, path: str, name: str, limit: int | None, params: Mapping[str, Any]
    ) -> Iterator[Json]:
        left = limit
        before: int | None = None
        while left is None or left > 0:
            size = 100 if left is None else min(left, 100)
            page = self._get(path, {**params, "limit": size, "before": before})
            yield from page[name]
            before = page["next_before"]
            if before is None:
                return
            left = None if left is None else left - len(page[name])
