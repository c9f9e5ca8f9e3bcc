"""Does the ONNX file compute what PyTorch computes? Compared anchor by anchor, on real images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from perdure.datasets.cache import LocalImage
from perdure.datasets.imaging import decode
from perdure.detection.onnx_session import OnnxDetector
from perdure.detection.pipeline import preprocess
from perdure.domain.failures import Failure
from perdure.errors import AttemptError
from perdure_publisher.exporting import raw_output

# A sound export differs by about 1e-6 and 1e-4 px (order of additions), a wrong one by far more.
MAX_CONFIDENCE_DIFFERENCE: Final = 1e-3
MAX_BOX_DIFFERENCE_PX: Final = 0.1
PARITY_IMAGES: Final = 64  # each compares thousands of anchors; more only costs time


@dataclass(frozen=True)
class Parity:
    """How far the ONNX file is from PyTorch, at the worst anchor of all images compared."""

    compared: tuple[str, ...]  # sample ids of the images
    max_confidence_difference: float
    max_box_difference_px: float
    worst_image: str  # its sample id

    @property
    def images(self) -> int:
        """How many images were compared."""
        return len(self.compared)


def evenly(images: Sequence[LocalImage], count: int) -> list[LocalImage]:
    """Choose up to `count` of `images`, spread over the whole list, always the same ones."""
    taken = min(count, len(images))
    return [images[index * len(images) // taken] for index in range(taken)]


def differences(
    reference: NDArray[np.float32], exported: NDArray[np.float32]
) -> tuple[float, float]:
    """The largest difference in confidence and, in pixels, in boxes between two raw outputs (4 +
    classes, anchors).

    Infinite where a value is not a finite number or the shapes differ.
    """
    if reference.shape != exported.shape:
        return float("inf"), float("inf")
    with np.errstate(invalid="ignore"):
        apart = np.abs(reference.astype(np.float64) - exported.astype(np.float64))
    apart[~np.isfinite(apart)] = np.inf
    return float(apart[4:].max()), float(apart[:4].max())


def verify(
    model: torch.nn.Module,
    detector: OnnxDetector,
    images: Sequence[LocalImage],
    on_image: Callable[[int], None],
) -> Parity:
    """Compare raw outputs on `images` (at least one), calling `on_image` before each with its
    number, from 0.

    Raises AttemptError(export_mismatch), naming the worst image, when a difference is above its
    limit.
    """
    assert images, "parity needs at least one image"
    worst, worst_image = 0.0, images[0].sample_id
    confidence = box_px = 0.0
    size, pad_value = detector.deployment.image_size, detector.deployment.pad_value
    for index, image in enumerate(images):
        on_image(index)
        batch = preprocess(decode(image.path), size, pad_value=pad_value).tensor[None]
        reference = raw_output(model, torch.from_numpy(batch)).numpy()[0]
        in_confidence, in_boxes = differences(reference, detector.raw(batch)[0])
        excess = max(in_confidence / MAX_CONFIDENCE_DIFFERENCE, in_boxes / MAX_BOX_DIFFERENCE_PX)
        if excess > worst:
            worst, worst_image = excess, image.sample_id
        confidence, box_px = max(confidence, in_confidence), max(box_px, in_boxes)
    parity = Parity(
        compared=tuple(image.sample_id for image in images),
        max_confidence_difference=confidence,
        max_box_difference_px=box_px,
        worst_image=worst_image,
    )
    if worst > 1:
        raise AttemptError(Failure.EXPORT_MISMATCH, _mismatch(parity))
    return parity


def _mismatch(parity: Parity) -> str:
    return (
        f"the ONNX file differs from PyTorch by {parity.max_confidence_difference:.3g} in "
        f"confidence (limit {MAX_CONFIDENCE_DIFFERENCE:g}) and "
        f"{parity.max_box_difference_px:.3g} px in boxes (limit {MAX_BOX_DIFFERENCE_PX:g}), "
        f"most on {parity.worst_image}, of {parity.images} images: it must not be used"
    )
