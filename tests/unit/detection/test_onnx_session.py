"""A detector is opened from its file alone; a file that cannot be trusted is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from perdure.contracts.codec import canonical_json
from perdure.detection.deployment import METADATA_KEY, Deployment
from perdure.detection.onnx_session import OnnxDetector
from perdure.errors import InvalidInput, InvalidModel

SIZE = 64
DEPLOYMENT = Deployment(image_size=SIZE, stride=32, opset=17, classes=("heron", "kingfisher"))


def write_network(path: Path, raw: np.ndarray, metadata: dict[str, str]) -> Path:
    """A network that gives `raw` (4 + classes, anchors) for any image."""
    image = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, SIZE, SIZE])
    output = helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, *raw.shape])
    zero = numpy_helper.from_array(np.zeros(1, np.float32), "zero")
    constant = numpy_helper.from_array(raw[None].astype(np.float32), "constant")
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["constant", "nothing"], ["output0"]),
    ]
    graph = helper.make_graph(nodes, "constant", [image], [output], [zero, constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


# One kingfisher, 16 x 8 px around (32, 32) of the letterboxed image; the second anchor is weak.
RAW = np.array([[32, 10], [32, 10], [16, 4], [8, 4], [0.1, 0.01], [0.8, 0.02]], dtype=np.float32)


def test_boxes_are_given_in_pixels_of_the_source_image(tmp_path):
    detector = OnnxDetector.open(
        write_network(tmp_path / "model.onnx", RAW, DEPLOYMENT.to_metadata()), threads=1
    )

    found = detector.detect(np.zeros((64, 128, 3), dtype=np.uint8))

    # 128 x 64 shrinks to 64 x 32, with 16 px above: (24..40, 28..36) becomes (48..80, 24..40).
    assert found.boxes.tolist() == [[48, 24, 80, 40]]
    assert found.scores.tolist() == pytest.approx([0.8])
    assert found.classes.tolist() == [1]


def test_with_every_class_one_place_counts_for_each(tmp_path):
    detector = OnnxDetector.open(
        write_network(tmp_path / "model.onnx", RAW, DEPLOYMENT.to_metadata()), threads=1
    )

    found = detector.detect(np.zeros((64, 64, 3), dtype=np.uint8), conf=0.05, every_class=True)

    assert found.classes.tolist() == [1, 0]
    assert found.scores.tolist() == pytest.approx([0.8, 0.1])


def test_a_batch_is_run_image_by_image(tmp_path):
    detector = OnnxDetector.open(
        write_network(tmp_path / "model.onnx", RAW, DEPLOYMENT.to_metadata()), threads=1
    )

    raw = detector.raw(np.zeros((3, 3, SIZE, SIZE), dtype=np.float32))

    assert raw.shape == (3, 6, 2)
    assert np.array_equal(raw[2], RAW)


@pytest.mark.parametrize("shape", [(3, 64, 64), (1, 3, 32, 32), (1, 1, 64, 64), (0, 3, 64, 64)])
def test_a_batch_of_another_shape_is_refused(tmp_path, shape):
    detector = OnnxDetector.open(
        write_network(tmp_path / "model.onnx", RAW, DEPLOYMENT.to_metadata()), threads=1
    )

    with pytest.raises(InvalidInput, match="the network takes"):
        detector.raw(np.zeros(shape, dtype=np.float32))


def test_the_deployment_is_read_from_the_file(tmp_path):
    path = write_network(tmp_path / "model.onnx", RAW, DEPLOYMENT.to_metadata())

    assert OnnxDetector.open(path, threads=1).deployment == DEPLOYMENT


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, "Perdure did not publish it"),
        ({METADATA_KEY: "{}"}, "wrong at image_size"),
        ({METADATA_KEY: "no json"}, "wrong at the whole"),
        (
            {METADATA_KEY: canonical_json(DEPLOYMENT.to_dict() | {"channel_order": "BGR"})},
            "wrong at channel_order",
        ),
        (replace(DEPLOYMENT, image_size=96).to_metadata(), "its metadata says image size 96"),
        (replace(DEPLOYMENT, classes=("heron",)).to_metadata(), "and 1 classes"),
    ],
    ids=["none", "empty", "no json", "other channel order", "other size", "other classes"],
)
def test_a_file_whose_metadata_is_missing_or_wrong_is_refused(tmp_path, metadata, message):
    path = write_network(tmp_path / "model.onnx", RAW, metadata)

    with pytest.raises(InvalidModel, match=message):
        OnnxDetector.open(path, threads=1)


@pytest.mark.parametrize("kept", [0, 20, 200], ids=["empty", "cut early", "cut late"])
def test_a_truncated_file_is_refused(tmp_path, kept):
    path = write_network(tmp_path / "model.onnx", RAW, DEPLOYMENT.to_metadata())
    path.write_bytes(path.read_bytes()[:kept])

    with pytest.raises(InvalidModel):
        OnnxDetector.open(path, threads=1)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InvalidModel, match=r"nowhere\.onnx"):
        OnnxDetector.open(tmp_path / "nowhere.onnx", threads=1)
