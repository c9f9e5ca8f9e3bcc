"""The exported file is static, standard, self-describing and the same each time."""

import numpy as np
import onnx
import pytest
import torch

from perdure.detection.deployment import CONVENTIONS
from perdure.detection.onnx_session import OnnxDetector
from perdure.errors import AttemptError
from perdure.training.model import new_model
from perdure_publisher.exporting import OPSET, export_onnx, raw_output
from perdure_publisher.verifying import differences

CLASSES = ("heron", "kingfisher", "dipper")
SIZE = 64


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def seeded_model(name: str = "yolo11n.yaml", seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return new_model(name, CLASSES).eval()


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return seeded_model()


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    return export_onnx(model, image_size=SIZE, classes=CLASSES, path=path), path


def test_the_graph_has_one_static_input_and_output_and_the_opset_written_down(exported):
    _, path = exported

    graph = onnx.load(path)

    shapes = {
        value.name: [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in (*graph.graph.input, *graph.graph.output)
    }
    # Anchors of a 64 px image at strides 8, 16 and 32: 8 * 8 + 4 * 4 + 2 * 2 = 84.
    assert shapes == {"images": [1, 3, 64, 64], "output0": [1, 7, 84]}
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", OPSET)]
    assert {node.domain for node in graph.graph.node} <= {"", "ai.onnx"}


def test_the_file_says_itself_how_to_run_it(exported):
    deployment, path = exported

    assert OnnxDetector.open(path, threads=1).deployment == deployment
    said = deployment.to_dict()
    assert said | CONVENTIONS == said
    assert {key: value for key, value in said.items() if key not in CONVENTIONS} == {
        "image_size": 64,
        "stride": 32,
        "opset": 17,
        "classes": ["heron", "kingfisher", "dipper"],
        "pad_value": 114,
        "normalisation": "divide by 255",
        "channel_order": "RGB",
        "layout": "NCHW",
        "letterbox": "scale to fit, centred, bilinear",
        "boxes": "cxcywh, letterboxed pixels",
        "input_name": "images",
        "output_name": "output0",
        "input_shape": [1, 3, 64, 64],
    }


@pytest.mark.parametrize("size", [SIZE, 96])
def test_the_same_weights_give_the_same_bytes_even_from_a_model_that_has_run(
    exported, tmp_path, size
):
    _, path = exported
    used = seeded_model()
    raw_output(used, torch.zeros(1, 3, size, size))  # the head keeps the anchors of this size

    export_onnx(used, image_size=SIZE, classes=CLASSES, path=tmp_path / "again.onnx")

    assert (tmp_path / "again.onnx").read_bytes() == path.read_bytes()


def test_other_weights_give_other_bytes(exported, tmp_path):
    export_onnx(seeded_model(seed=1), image_size=SIZE, classes=CLASSES, path=tmp_path / "b.onnx")

    assert (tmp_path / "b.onnx").read_bytes() != exported[1].read_bytes()


def test_nothing_is_written_beside_the_file_and_no_path_into_it(exported):
    _, path = exported

    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    assert b"site-packages" not in path.read_bytes()


def test_the_model_stays_as_it_was(exported, model):
    head = list(model.model)[-1]

    assert head.export is False
    assert any(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("name", ["yolo11n.yaml", "yolo12n.yaml", "yolov8n.yaml"])
def test_the_file_computes_what_pytorch_computes(name, tmp_path):
    model = seeded_model(name)
    export_onnx(model, image_size=SIZE, classes=CLASSES, path=tmp_path / "model.onnx")
    batch = np.random.default_rng(0).random((1, 3, SIZE, SIZE), dtype=np.float32)

    ours = OnnxDetector.open(tmp_path / "model.onnx", threads=1).raw(batch)[0]

    confidence, box_px = differences(raw_output(model, torch.from_numpy(batch)).numpy()[0], ours)
    assert confidence < 1e-4
    assert box_px < 1e-2


def test_an_image_size_that_is_no_multiple_of_the_stride_is_refused(model, tmp_path):
    with pytest.raises(AttemptError, match=r"imgsz 100 is not a multiple .* 32: use 96") as caught:
        export_onnx(model, image_size=100, classes=CLASSES, path=tmp_path / "model.onnx")

    assert caught.value.failure == "config_invalid"


def test_classes_that_are_not_as_many_as_the_heads_are_refused(model, tmp_path):
    with pytest.raises(AttemptError, match="knows 3 classes, the data set 2") as caught:
        export_onnx(model, image_size=SIZE, classes=CLASSES[:2], path=tmp_path / "model.onnx")

    assert caught.value.failure == "export_mismatch"


def test_a_model_without_a_detection_head_is_refused(tmp_path):
    classifier = torch.nn.Module()
    classifier.model = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1))

    with pytest.raises(AttemptError, match="ends in Conv2d"):
        export_onnx(classifier, image_size=SIZE, classes=CLASSES, path=tmp_path / "model.onnx")
