"""The publish stage from checkpoint to model card, one proven step after the other."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import torch

from perdure.artifacts.port import ObjectStore, StoredObject
from perdure.attempts.channel import Channel, Stopped
from perdure.contracts.codec import canonical_json
from perdure.datasets.cache import LocalDataset, materialise
from perdure.detection.deployment import Deployment
from perdure.detection.metrics import Score
from perdure.detection.onnx_session import OnnxDetector
from perdure.domain.failures import Failure
from perdure.errors import AttemptError, DamagedObject, InvalidModel, NotFound, StoreUnavailable
from perdure.training.checkpoint import load_detector, weights_digest
from perdure.training.config import TrainConfig
from perdure_publisher.card import model_card
from perdure_publisher.evaluating import evaluate
from perdure_publisher.exporting import export_onnx
from perdure_publisher.job import PublishJob
from perdure_publisher.preview import draw_preview, worth_showing
from perdure_publisher.verifying import (
    MAX_BOX_DIFFERENCE_PX,
    MAX_CONFIDENCE_DIFFERENCE,
    PARITY_IMAGES,
    Parity,
    evenly,
    verify,
)

log = logging.getLogger(__name__)

ONNX_FILE: Final = "model.onnx"
WEIGHTS_FILE: Final = "weights.pt"
PREVIEW_FILE: Final = "preview.jpg"
CARD_FILE: Final = "card.json"


@dataclass(frozen=True)
class Publication:
    """One attempt to publish a model, and all that it needs."""

    job: PublishJob
    folder: Path  # the attempt's own
    store: ObjectStore
    channel: Channel
    now: Callable[[], str]  # RFC 3339, UTC

    def run(self) -> dict[str, Any]:
        """Export, verify, evaluate, judge, register; return the attempt's result.

        What is established on the way goes out as facts. The card is stored last: a model without
        one is none. Raises AttemptError when the model must not be registered, and Stopped.
        """
        self.channel.started()
        self.channel.facts({"model_id": self.job.model_id})
        config = self.job.config()
        dataset, model = self._download()
        weights = weights_digest(model.state_dict())
        deployment, onnx = self._export(model, config, dataset)
        detector = self._open()
        parity = self._verify(model, detector, dataset)
        score = self._evaluate(detector, dataset)
        self._judge(score)
        files = self._upload(detector, dataset, onnx)
        card = model_card(
            job=self.job,
            config=config,
            dataset=dataset,
            weights=weights,
            deployment=deployment,
            parity=parity,
            score=score,
            files=files,
            created=self.now(),
        )
        self._register(card, files)
        self._remove_resume_checkpoints()
        log.info("registered as %s", self.job.model_id)
        return {
            "published": {
                "model_id": self.job.model_id,
                "map50": score.map50,
                "map50_95": score.map50_95,
            }
        }

    def _download(self) -> tuple[LocalDataset, torch.nn.Module]:
        job = self.job
        self._step("downloading", 0, 1)
        dataset = materialise(
            self.store,
            job.dataset_version,
            job.split_id,
            Path(job.cache_root),
            lambda done, total: self._step("downloading", done, total),
            max_bytes=job.cache_max_bytes,
        )
        if not dataset.val:
            raise AttemptError(
                Failure.DATASET_INVALID,
                f"split {job.split_id} has no validation images, so nothing can be shown of the "
                "model: give the data set a validation split, or a val_ratio above 0",
            )
        weights = self.folder / WEIGHTS_FILE
        self._fetch_checkpoint(weights)
        log.info(
            "downloaded: checkpoint %s of epoch %d, %.1f MB; data set %s, split %s, %d validation "
            "images",
            job.checkpoint.digest[:12],
            job.best_epoch,
            job.checkpoint.size_bytes / 1e6,
            job.dataset_version[:12],
            job.split_id[:12],
            len(dataset.val),
        )
        return dataset, load_detector(weights, device="cpu")

    def _fetch_checkpoint(self, target: Path) -> None:
        checkpoint = self.job.checkpoint
        try:
            self.store.get_file(checkpoint.key, target, digest=checkpoint.digest)
        except (NotFound, DamagedObject) as error:
            raise AttemptError(
                Failure.CHECKPOINT_DAMAGED,
                f"the checkpoint of epoch {self.job.best_epoch} cannot be read back from the "
                f"store: {error.message}",
            ) from error

    def _export(
        self, model: torch.nn.Module, config: TrainConfig, dataset: LocalDataset
    ) -> tuple[Deployment, StoredObject]:
        self._step("exporting", 0, 1)
        names = _class_names(model)
        if names != dataset.classes:
            self._reject(
                Failure.EXPORT_MISMATCH,
                f"the checkpoint's classes are {list(names)}, the data set's "
                f"{list(dataset.classes)}: they do not belong together. "
                "Train again on this data set version",
            )
        path = self.folder / ONNX_FILE
        deployment = export_onnx(model, image_size=config.imgsz, classes=names, path=path)
        stored = self.store.put_file(self.job.key(ONNX_FILE), path)
        log.info(
            "exported: %s, %.1f MB, opset %d, %d x %d px, %d classes",
            ONNX_FILE,
            stored.size_bytes / 1e6,
            deployment.opset,
            deployment.image_size,
            deployment.image_size,
            len(names),
        )
        self.channel.facts(
            {
                "exported": {
                    "model_id": self.job.model_id,
                    "task_id": self.job.task_id,
                    "onnx": _blob(stored),
                    "opset": deployment.opset,
                    "input_shape": [1, 3, deployment.image_size, deployment.image_size],
                }
            }
        )
        return deployment, stored

    def _open(self) -> OnnxDetector:
        """Load the exported file as any user would, from the file alone."""
        try:
            return OnnxDetector.open(self.folder / ONNX_FILE, threads=self.job.threads)
        except InvalidModel as error:
            self._reject(Failure.EXPORT_MISMATCH, error.message)

    def _verify(
        self, model: torch.nn.Module, detector: OnnxDetector, dataset: LocalDataset
    ) -> Parity:
        images = evenly(dataset.val, PARITY_IMAGES)
        try:
            parity = verify(model, detector, images, self._counter("verifying", len(images)))
        except AttemptError as error:
            self._reject(Failure(error.failure), error.message)
        log.info(
            "verified: ONNX and PyTorch differ by %.2g in confidence (limit %g) and %.2g px in "
            "boxes (limit %g) at most, on %d of %d validation images",
            parity.max_confidence_difference,
            MAX_CONFIDENCE_DIFFERENCE,
            parity.max_box_difference_px,
            MAX_BOX_DIFFERENCE_PX,
            parity.images,
            len(dataset.val),
        )
        self.channel.facts(
            {
                "verified": {
                    "images": parity.images,
                    "max_confidence_difference": parity.max_confidence_difference,
                    "max_box_difference_px": parity.max_box_difference_px,
                }
            }
        )
        return parity

    def _evaluate(self, detector: OnnxDetector, dataset: LocalDataset) -> Score:
        score = evaluate(detector, dataset.val, self._counter("evaluating", len(dataset.val)))
        log.info(
            "evaluated: mAP50 %.4f, mAP50-95 %.4f on %d validation images, from %s",
            score.map50,
            score.map50_95,
            score.images,
            ONNX_FILE,
        )
        by_class = zip(dataset.classes, score.by_class, strict=True)
        self.channel.facts(
            {
                "evaluated": {
                    "images": score.images,
                    "map50": score.map50,
                    "map50_95": score.map50_95,
                    "map50_by_class": {
                        name: one.ap50 for name, one in by_class if one.ap50 is not None
                    },
                }
            }
        )
        return score

    def _judge(self, score: Score) -> None:
        asked = self.job.gate.min_map50
        if asked is not None and not score.map50 >= asked:
            self._reject(
                Failure.BELOW_GATE,
                f"mAP50 is {score.map50:.4f} on {score.images} validation images, the gate asks "
                f"for {asked:.4f}: train longer, add or correct data, or lower the gate "
                "(--min-map50)",
            )
        if asked is None:
            log.info("gate: none was asked for")
        else:
            log.info("gate: passed, mAP50 %.4f is not below %.4f", score.map50, asked)

    def _upload(
        self, detector: OnnxDetector, dataset: LocalDataset, onnx: StoredObject
    ) -> list[StoredObject]:
        self._step("uploading", 0, 3)
        weights = self._store_weights()
        self._step("uploading", 1, 3)
        shown = worth_showing(dataset.val)
        preview = self.store.put_bytes(self.job.key(PREVIEW_FILE), draw_preview(detector, shown))
        return [onnx, weights, preview]

    def _store_weights(self) -> StoredObject:
        """Store the checkpoint with the model, without sending its bytes once more."""
        checkpoint = self.job.checkpoint
        # It was read whole and checked in _download; what is copied must still be that.
        weights = self.store.copy(checkpoint.key, self.job.key(WEIGHTS_FILE))
        if weights.digest != checkpoint.digest:
            raise DamagedObject(
                f"object {checkpoint.key} has digest {weights.digest} now, and had "
                f"{checkpoint.digest} before: it was replaced while it was being published"
            )
        return weights

    def _register(self, card: dict[str, Any], files: list[StoredObject]) -> None:
        self._step("uploading", 2, 3)
        stored = self.store.put_bytes(self.job.key(CARD_FILE), canonical_json(card).encode())
        for file in (*files, stored):
            log.info("uploaded: %s, %d bytes, blake3 %s", file.key, file.size_bytes, file.digest)
        self.channel.facts(
            {
                "registered": {
                    "model_id": self.job.model_id,
                    "task_id": self.job.task_id,
                    "name": self.job.name,
                    "dataset_version": self.job.dataset_version,
                    "config_hash": self.job.config_hash,
                    "card": _blob(stored),
                    "files": [_blob(file) for file in (*files, stored)],
                }
            }
        )

    def _remove_resume_checkpoints(self) -> None:
        """Remove what the training would have resumed from.

        This is safe: an accepted train stage never runs again, and further attempts to publish read
        the best weights, which lie elsewhere. What cannot be removed now only takes up room.
        """
        try:
            keys = [key for key, _ in self.store.sizes(f"checkpoints/{self.job.task_id}/")]
            for key in keys:
                self.store.delete(key)
        except StoreUnavailable as error:
            log.warning("the checkpoints to resume from were not removed: %s", error)
        else:
            log.info("removed %d checkpoints to resume from, of no more use", len(keys))

    def _reject(self, failure: Failure, detail: str) -> NoReturn:
        """Record that the model must not be registered, and end the attempt."""
        log.info("rejected (%s): %s", failure.value, detail)
        self.channel.facts(
            {
                "rejected": {
                    "model_id": self.job.model_id,
                    "task_id": self.job.task_id,
                    "failure": failure.value,
                    "detail": detail,
                }
            }
        )
        raise AttemptError(failure, detail)

    def _counter(self, phase: str, steps: int) -> Callable[[int], None]:
        return lambda index: self._step(phase, index, steps)

    def _step(self, phase: str, step: int, steps: int) -> None:
        """Say how far the attempt is. Raises Stopped when it was asked to stop."""
        if self.channel.stop_requested:
            raise Stopped
        self.channel.progress(phase, step=step, steps=steps)


def _class_names(model: torch.nn.Module) -> tuple[str, ...]:
    """Return the class names that a checkpoint carries, in the order of the network's outputs."""
    names: Any = model.names
    return tuple(names[index] for index in range(len(names)))


def _blob(stored: StoredObject) -> dict[str, Any]:
    return {"key": stored.key, "digest": stored.digest, "size_bytes": stored.size_bytes}
