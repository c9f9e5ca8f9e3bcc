"""The model card: everything that is known of a published model, as one JSON document."""

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

import cv2

import perdure
from perdure.artifacts.port import StoredObject
from perdure.datasets.cache import LocalDataset
from perdure.detection.deployment import MAX_DETECTIONS, NMS_IOU, Deployment
from perdure.detection.metrics import Score
from perdure.detection.pipeline import EVALUATION_CONFIDENCE
from perdure.training.config import TrainConfig
from perdure_publisher.job import PublishJob
from perdure_publisher.verifying import (
    MAX_BOX_DIFFERENCE_PX,
    MAX_CONFIDENCE_DIFFERENCE,
    Parity,
)

FORMAT: Final = 1  # raised when a field changes its meaning
_PACKAGES: Final = ("torch", "ultralytics", "onnx", "onnxruntime", "numpy")


def model_card(
    *,
    job: PublishJob,
    config: TrainConfig,
    dataset: LocalDataset,
    weights: str,
    deployment: Deployment,
    parity: Parity,
    score: Score,
    files: Sequence[StoredObject],
    created: str,
) -> dict[str, Any]:
    """Put the card together. `weights` is the digest of the weights that were exported, `files` are
    the model's other files, `created` is RFC 3339, UTC.
    """
    return {
        "format": FORMAT,
        "model_id": job.model_id,
        "name": job.name,
        "created": created,
        "task_id": job.task_id,
        "fence": job.fence,
        "dataset": {
            "version": job.dataset_version,
            "split_id": job.split_id,
            "train_images": len(dataset.train),
            "val_images": len(dataset.val),
        },
        "config": config.model_dump(mode="json"),
        "config_hash": job.config_hash,
        "checkpoint": {
            "digest": job.checkpoint.digest,
            "epoch": job.best_epoch,
            "weights_digest": weights,
        },
        "gate": job.gate.model_dump(),
        "metrics": metrics(score, deployment),
        "parity": {
            "images": parity.images,
            "chosen": f"{parity.images} of {len(dataset.val)} validation images, spread evenly "
            "over the split in its order",
            "compared": list(parity.compared),
            "max_confidence_difference": parity.max_confidence_difference,
            "max_confidence_allowed": MAX_CONFIDENCE_DIFFERENCE,
            "max_box_difference_px": parity.max_box_difference_px,
            "max_box_allowed_px": MAX_BOX_DIFFERENCE_PX,
            "worst_image": parity.worst_image,
        },
        "deployment": deployment.to_dict(),
        "files": {
            file.key.rsplit("/", 1)[-1]: {
                "key": file.key,
                "digest": file.digest,
                "size_bytes": file.size_bytes,
            }
            for file in files
        },
        "versions": {
            "perdure": perdure.__version__,
            "python": platform.python_version(),
            "opencv": cv2.__version__,  # several packages bring it
            **{package: version(package) for package in _PACKAGES},
        },
    }


def metrics(score: Score, deployment: Deployment) -> dict[str, Any]:
    """Describe a score, with the rules under which it was reached."""
    return {
        "split": "val",
        "images": score.images,
        "map50": score.map50,
        "map50_95": score.map50_95,
        "by_class": {
            name: {"labels": one.labels, "ap50": one.ap50, "ap50_95": one.ap50_95}
            for name, one in zip(deployment.classes, score.by_class, strict=True)
        },
        "rules": {
            "evaluated_file": "model.onnx",
            "min_confidence": EVALUATION_CONFIDENCE,
            "nms_iou": NMS_IOU,
            "max_detections": MAX_DETECTIONS,
            "interpolation": "101 points, trapezoidal",
        },
    }
