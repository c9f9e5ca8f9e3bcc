"""A training attempt: the data set and the checkpoint to go on from are fetched, new checkpoints
are stored.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.attempts.supervisor import Line
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.datasets.cache import LocalDataset, materialise
from perdure.domain.failures import Failure
from perdure.domain.task import KEPT_CHECKPOINTS
from perdure.errors import AttemptError, DamagedObject, NotFound, StoreUnavailable
from perdure.runtime.attempt import CheckStop, Craft
from perdure.runtime.worker import AttemptContext

log = logging.getLogger(__name__)

CHILD_MODULE: Final = "perdure_trainer_agent.child"
# Between two tries to store a checkpoint: the training goes on meanwhile.
STORE_RETRY_S: Final = 5.0


class Training:
    """What the trainer-agent does for its child processes."""

    def __init__(
        self,
        store: ObjectStore,
        cache_root: Path,
        threads: int | None = None,
        *,
        cache_max_bytes: int | None = None,
    ) -> None:
        self._store = store
        self._cache_root = cache_root
        self._threads = threads
        self._cache_max_bytes = cache_max_bytes
        # What running attempts use. The child keeps it as well, once it has begun.
        self._in_use: dict[tuple[str, int], LocalDataset] = {}

    def craft(self) -> Craft:
        """The train stage, for the worker kit."""
        return Craft(CHILD_MODULE, self.job, self.result, self.checkpoint, ended=self.ended)

    def job(
        self, assignment: work_pb2.Assignment, job_dir: Path, check: CheckStop
    ) -> dict[str, Any]:
        """Fetch what the child needs, and describe its job (blocking)."""
        work = assignment.train
        local = materialise(
            self._store,
            work.dataset_version,
            work.split_id,
            self._cache_root / "datasets",
            progress=lambda _done, _total: check(),
            max_bytes=self._cache_max_bytes,
        )
        self._in_use[assignment.task_id, assignment.fence] = local
        check()
        checkpoint = self._fetch_checkpoint(work, assignment.task_id, job_dir)
        return {
            "task_id": assignment.task_id,
            "fence": assignment.fence,
            "stage": assignment.stage,
            "dataset_dir": str(local.root),
            "config_json": work.config_json,
            "checkpoint_path": str(checkpoint) if checkpoint else None,
            "checkpoint_dir": str(job_dir / "checkpoints"),
            "samples_dir": str(self._cache_root / "samples"),
            "threads": self._threads,
        }

    def ended(self, assignment: work_pb2.Assignment) -> None:
        """Let go of the attempt's data set (blocking)."""
        local = self._in_use.pop((assignment.task_id, assignment.fence), None)
        if local is not None and local.pin is not None:
            local.pin.release()

    def _fetch_checkpoint(
        self, work: work_pb2.TrainWork, task_id: str, job_dir: Path
    ) -> Path | None:
        """The newest checkpoint that is whole; None when there is none yet.

        Those that the log names come first, then what lies in the store: the report of a
        checkpoint may be lost with the server that should have recorded it. Raises AttemptError
        when there are some and none can be read: starting over is for a person to decide.
        """
        named = [(saved.blob.key, saved.blob.digest) for saved in work.checkpoints]
        stored = [(key, _digest_in(key)) for key, _ in self._store.sizes(_prefix(task_id))]
        found = [*named, *(entry for entry in reversed(stored) if entry not in named)]
        path = job_dir / "resume.pt"
        for key, digest in found:
            try:
                self._store.get_file(key, path, digest=digest)
            except (DamagedObject, NotFound) as error:
                log.warning("checkpoint passed over: %s", error, extra={"task": task_id})
            else:
                return path
        if found:
            raise AttemptError(
                Failure.CHECKPOINT_DAMAGED,
                f"none of the task's {len(found)} checkpoints can be read back from the store",
            )
        return None

    def result(
        self, assignment: work_pb2.Assignment, result: Mapping[str, Any]
    ) -> events_pb2.AttemptSucceeded:
        """Store the best weights, and report them (blocking)."""
        digest = result["best_digest"]
        key = f"checkpoints/{assignment.task_id}-best/{digest}.pt"
        stored = self._put(key, Path(result["best_path"]), digest)
        trained = events_pb2.TrainedModel(
            best_checkpoint=_blob(stored),
            best_epoch=result["best_epoch"],
            weights_digest=result["weights_digest"],
            epochs=result["epochs"],
            map50=result["map50"],
            map50_95=result["map50_95"],
        )
        return events_pb2.AttemptSucceeded(trained=trained)

    async def checkpoint(self, context: AttemptContext, line: Line) -> None:
        """Store a checkpoint and report it.

        While the store is away, try again; the training goes on.
        """
        task_id = context.assignment.task_id
        path, digest = Path(line["path"]), line["digest"]
        key = f"{_prefix(task_id)}{line['step']:010d}-{line['epoch']:06d}-{digest}.pt"
        while True:
            try:
                stored = await asyncio.to_thread(self._put, key, path, digest)
                break
            except StoreUnavailable as error:
                log.warning("checkpoint waits for the store: %s", error, extra={"task": task_id})
                await asyncio.sleep(STORE_RETRY_S)
            except FileNotFoundError as error:  # epochs of a second: the next one is there already
                log.info("checkpoint not stored: %s", error, extra={"task": task_id})
                return
            except DamagedObject as error:
                log.warning("checkpoint not stored: %s", error, extra={"task": task_id})
                return
        context.report(
            events_pb2.CheckpointSaved(
                epoch=line["epoch"], step=line["step"], blob=_blob(stored), best=line["best"]
            )
        )
        await asyncio.to_thread(self._prune, task_id)

    def _put(self, key: str, path: Path, digest: str) -> StoredObject:
        if not path.exists():
            raise FileNotFoundError(f"{path.name} is gone: a newer checkpoint has replaced it")
        stored = self._store.put_file(key, path)
        if stored.digest != digest:
            self._store.delete(stored.key)
            raise DamagedObject(f"{path.name} changed between writing and storing it")
        return stored

    def _prune(self, task_id: str) -> None:
        """Keep the newest of the task's checkpoints. Keys sort by step and epoch."""
        try:
            keys = [key for key, _ in self._store.sizes(_prefix(task_id))]
            for key in keys[:-KEPT_CHECKPOINTS]:
                self._store.delete(key)
        except StoreUnavailable as error:
            log.warning("old checkpoints not removed: %s", error, extra={"task": task_id})


def _prefix(task_id: str) -> str:
    return f"checkpoints/{task_id}/"


def _digest_in(key: str) -> str:
    return key.rsplit("-", 1)[-1].removesuffix(".pt")


def _blob(stored: StoredObject) -> events_pb2.Blob:
    return events_pb2.Blob(key=stored.key, digest=stored.digest, size_bytes=stored.size_bytes)
