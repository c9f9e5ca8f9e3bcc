"""A published detector: an ONNX file that says itself how it wants to be run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as runtime_errors

from perdure.detection.deployment import DISPLAY_CONFIDENCE, NMS_IOU, Deployment
from perdure.detection.pipeline import (
    Detections,
    decode,
    preprocess,
    suppress,
    to_source,
)
from perdure.errors import InvalidInput, InvalidModel

_ERRORS_ONLY = 3  # ONNX Runtime's severity; its warnings concern its own optimiser

# What ONNX Runtime raises on a file that is damaged, empty, or not ONNX at all.
_LOAD_ERRORS = (
    runtime_errors.Fail,
    runtime_errors.InvalidArgument,
    runtime_errors.InvalidGraph,
    runtime_errors.InvalidProtobuf,
    runtime_errors.NoModel,
    runtime_errors.NoSuchFile,
    runtime_errors.NotImplemented,
    runtime_errors.RuntimeException,
)


@dataclass(frozen=True)
class OnnxDetector:
    """A detector that can be run. Needs no PyTorch and no Ultralytics. Threads may share it."""

    deployment: Deployment
    _session: Any

    @staticmethod
    def open(path: Path, *, threads: int | None = None) -> "OnnxDetector":
        """Load the file at `path`, to be run on the CPU with `threads` threads (None: one per
        core).

        Raises InvalidModel when it is not an ONNX file, not one of Perdure's, or contradicts its
        own metadata.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        options.log_severity_level = _ERRORS_ONLY
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except _LOAD_ERRORS as error:
            raise InvalidModel(
                f"{path} cannot be loaded: {error}. Pull the model anew with `perdure model pull`"
            ) from error
        deployment = Deployment.from_metadata(session.get_modelmeta().custom_metadata_map)
        _check_shapes(path, session, deployment)
        return OnnxDetector(deployment=deployment, _session=session)

    def raw(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the raw output (n, 4 + classes, anchors) for letterboxed images (n, 3, size,
        size). Raises InvalidInput.

        The file takes one image at a time, so they are run one after the other.
        """
        size = self.deployment.image_size
        if batch.ndim != 4 or batch.shape[1:] != (3, size, size) or not len(batch):
            raise InvalidInput(
                f"the network takes (n, 3, {size}, {size}) with n > 0, not {batch.shape}: "
                "use perdure.detection.pipeline.preprocess"
            )
        outputs = [
            self._session.run(
                [self.deployment.output_name],
                {self.deployment.input_name: batch[index : index + 1]},
            )[0]
            for index in range(len(batch))
        ]
        return np.concatenate(outputs)

    def detect(
        self,
        image: NDArray[np.uint8],
        *,
        conf: float = DISPLAY_CONFIDENCE,
        iou: float = NMS_IOU,
        every_class: bool = False,
    ) -> Detections:
        """Find what is in an upright RGB image (H x W x 3, uint8); boxes are in its pixels.

        `every_class` lets one place count for several classes, as evaluation needs it. Raises
        InvalidInput.
        """
        letterboxed = preprocess(
            image, self.deployment.image_size, pad_value=self.deployment.pad_value
        )
        raw = self.raw(letterboxed.tensor[None])[0]
        found = suppress(decode(raw, confidence=conf, every_class=every_class), iou=iou)
        height, width = image.shape[:2]
        return Detections(
            boxes=to_source(found.boxes, letterboxed, width=width, height=height),
            scores=found.scores,
            classes=found.classes,
        )


def _check_shapes(path: Path, session: Any, deployment: Deployment) -> None:
    """Raise InvalidModel unless the graph takes and gives what its metadata says."""
    size = deployment.image_size
    inputs = {node.name: node.shape for node in session.get_inputs()}
    outputs = {node.name: node.shape for node in session.get_outputs()}
    rows = 4 + len(deployment.classes)
    given = outputs.get(deployment.output_name, [])
    if inputs != {deployment.input_name: [1, 3, size, size]} or given[:2] != [1, rows]:
        raise InvalidModel(
            f"{path} takes {inputs} and gives {outputs}, but its metadata says image size {size} "
            f"and {len(deployment.classes)} classes. Pull the model anew with `perdure model pull`"
        )
