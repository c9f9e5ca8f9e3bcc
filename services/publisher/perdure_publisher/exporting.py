"""From a trained detector to one ONNX file: static shape, standard operators only."""

import copy
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnx
import torch
from torch.jit._trace import TracerWarning
from ultralytics.nn.modules.head import Detect

from perdure.detection.deployment import Deployment
from perdure.domain.failures import Failure
from perdure.errors import AttemptError

# Of 2022: old enough for the runtimes in use, new enough for every detection head.
OPSET: Final = 17
_STANDARD_DOMAINS: Final = ("", "ai.onnx")


def raw_head(model: torch.nn.Module) -> Detect:
    """Return the detection head, set to give every anchor's boxes and scores. Raises AttemptError
    for another kind of model.

    Heads that can do without suppression have a second branch for it; the first one is used, as for
    all others.
    """
    layers: Any = model.model
    head = layers[-1]
    if not isinstance(head, Detect):
        raise AttemptError(
            Failure.CONFIG_INVALID,
            f"the model ends in {type(head).__name__}, but only detectors (a Detect head) "
            "can be published: train with a detection model such as yolo11n.yaml",
        )
    if getattr(head, "one2one_cv2", None) is not None:
        head.end2end = False
    return head


def raw_output(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Compute what PyTorch makes of letterboxed images (n, 3, size, size).

    Gives the raw output, (n, 4 + classes, anchors).
    """
    raw_head(model)
    with torch.inference_mode():
        output = model.eval()(batch)
    result: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return result


def export_onnx(
    model: torch.nn.Module, *, image_size: int, classes: Sequence[str], path: Path
) -> Deployment:
    """Write `model` (float32, on the CPU) to `path` as ONNX for one image of `image_size` pixels a
    side.

    The same weights give the same bytes. The file carries the returned Deployment in its metadata.
    `model` itself stays as it was. Raises AttemptError when the model and `classes` or `image_size`
    do not fit together.
    """
    exported = copy.deepcopy(model).eval().requires_grad_(False)
    head = raw_head(exported)
    stride = int(max(head.stride))
    _check(head, image_size, stride, classes)
    deployment = Deployment(
        image_size=image_size, stride=stride, opset=OPSET, classes=tuple(classes)
    )
    head.export = True
    example = torch.zeros(1, 3, image_size, image_size)
    with torch.no_grad():
        exported(example)  # lays out the anchors, so that the graph holds them as constants
    with warnings.catch_warnings():
        # The newer exporter needs a further package, and has no opset below 18.
        warnings.simplefilter("ignore", DeprecationWarning)
        # The shape is fixed on purpose: what depends on it may be a constant of the graph.
        warnings.simplefilter("ignore", TracerWarning)
        torch.onnx.export(
            exported,
            (example,),
            path,
            opset_version=OPSET,
            input_names=[deployment.input_name],
            output_names=[deployment.output_name],
            dynamo=False,
        )
    graph = onnx.load(path)
    onnx.helper.set_model_props(graph, deployment.to_metadata())
    _check_graph(graph)
    path.write_bytes(graph.SerializeToString(deterministic=True))
    return deployment


def _check(head: Detect, image_size: int, stride: int, classes: Sequence[str]) -> None:
    if image_size <= 0 or image_size % stride:
        raise AttemptError(
            Failure.CONFIG_INVALID,
            f"imgsz {image_size} is not a multiple of the model's stride {stride}: "
            f"use {max(round(image_size / stride), 1) * stride}",
        )
    if head.nc != len(classes):
        raise AttemptError(
            Failure.EXPORT_MISMATCH,
            f"the checkpoint knows {head.nc} classes, the data set {len(classes)}: they do not "
            "belong together. Train again on this data set version",
        )


def _check_graph(graph: onnx.ModelProto) -> None:
    """Raise AttemptError unless the graph is valid, fully typed, and free of custom operators."""
    try:
        onnx.checker.check_model(graph, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise AttemptError(
            Failure.EXPORT_MISMATCH, f"the exported ONNX graph is not valid: {error}"
        ) from error
    custom = sorted(
        {node.op_type for node in graph.graph.node if node.domain not in _STANDARD_DOMAINS}
    )
    if custom:
        raise AttemptError(
            Failure.EXPORT_MISMATCH,
            f"the exported ONNX graph uses operators outside the standard: {', '.join(custom)}",
        )
