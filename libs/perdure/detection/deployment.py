"""What one must know to run a detector: written into the ONNX file and onto the model card."""

from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from perdure.contracts.codec import canonical_json
from perdure.errors import InvalidModel

METADATA_KEY: Final = "perdure.deployment"
PAD_VALUE: Final = 114  # the grey that Ultralytics pads with; the models have seen it in training
DISPLAY_CONFIDENCE: Final = 0.25  # below it most detections are wrong: for showing, not evaluation
# A detector is evaluated under the rules of `yolo val`, so that figures can be compared.
NMS_IOU: Final = 0.7
MAX_DETECTIONS: Final = 300  # per image, after suppression

# What holds for every detector of ours, for those who run one without Perdure.
CONVENTIONS: Final[dict[str, Any]] = {
    "input": "float32; one image at a time, of exactly input_shape",
    "resize": "scale = min(image_size / height, image_size / width), up or down; each side becomes "
    "max(round(side * scale), 1); OpenCV INTER_LINEAR, no antialiasing",
    "padding": "left = round((image_size - resized width) / 2 - 0.1), top likewise with the "
    "height; an odd pixel goes to the right and the bottom",
    "output": "float32, (1, 4 + classes, anchors): rows 0 to 3 are the box, then one score for "
    "each class",
    "scores": "0..1, after the sigmoid; each class on its own, no separate objectness",
    "coordinates": "centre x, centre y, width, height in pixels of the padded image; in the "
    "source image it is (x - left) / scale, (y - top) / scale, clipped to the image",
    "suppression": {
        "needed": True,
        "kind": "greedy NMS, class by class",
        "iou": NMS_IOU,
        "max_detections": MAX_DETECTIONS,
    },
    "suggested_confidence": DISPLAY_CONFIDENCE,
}


@dataclass(frozen=True)
class Deployment:
    """How a detector takes its image and what comes out.

    Input: float32, shape (1, 3, image_size, image_size), planes in `channel_order`. An image is
    letterboxed (see `pipeline.letterbox`), padded with `pad_value`, and each 8-bit value v becomes
    (v / 255 - mean) / std. Output: float32, shape (1, 4 + classes, anchors): centre x, centre y,
    width, height in pixels of the letterboxed image, then one score in 0..1 per class. Overlaps are
    not suppressed yet: that is `pipeline.suppress`.
    """

    image_size: int  # pixels, both sides; a multiple of stride
    stride: int  # pixels, of the coarsest level
    opset: int
    classes: tuple[str, ...]  # in the order of the score rows
    pad_value: int = PAD_VALUE  # 0..255, the same in every channel
    normalisation: Literal["divide by 255"] = "divide by 255"
    channel_order: Literal["RGB"] = "RGB"
    layout: Literal["NCHW"] = "NCHW"
    letterbox: Literal["scale to fit, centred, bilinear"] = "scale to fit, centred, bilinear"
    boxes: Literal["cxcywh, letterboxed pixels"] = "cxcywh, letterboxed pixels"
    input_name: str = "images"
    output_name: str = "output0"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, and what holds for every detector, as JSON values."""
        return {
            **asdict(self),
            "classes": list(self.classes),
            "input_shape": [1, 3, self.image_size, self.image_size],
            **CONVENTIONS,
        }

    def to_metadata(self) -> dict[str, str]:
        """Return the entries of an ONNX file's `metadata_props`."""
        return {METADATA_KEY: canonical_json(self.to_dict())}

    @staticmethod
    def from_metadata(metadata: dict[str, str]) -> "Deployment":
        """Read what `to_metadata` gave. Raises InvalidModel when it is not there or incomplete."""
        text = metadata.get(METADATA_KEY)
        if text is None:
            raise InvalidModel(
                f"the ONNX file has no {METADATA_KEY!r}: Perdure did not publish it. "
                "Use a file that `perdure model pull` gave"
            )
        try:
            return _DEPLOYMENT.validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise InvalidModel(
                f"{METADATA_KEY!r} in the ONNX file's metadata is wrong at {field}: "
                f"{first['msg']}. Pull the model anew with `perdure model pull`"
            ) from error


_DEPLOYMENT: Final = TypeAdapter(Deployment)
