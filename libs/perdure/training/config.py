"""The training configuration: every hyper-parameter with its type, range and default.

Nothing here needs torch, so that the gateway can refuse a bad configuration at the door.
"""

import difflib
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import rfc8785
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from perdure.errors import InvalidConfig

STRIDE_PX: Final = 32  # the coarsest feature map of every supported model
# At 32 px the coarsest map is one pixel, and batch normalisation of a batch of one has no variance.
MIN_IMGSZ_PX: Final = 64
MAX_IMGSZ_PX: Final = 2048
FAMILIES: Final = ("yolo11", "yolo12", "yolov8")
SCALES: Final = ("n", "s", "m", "l", "x")
MODELS: Final = tuple(f"{family}{scale}.yaml" for family in FAMILIES for scale in SCALES)
LR0_BY_OPTIMIZER: Final = {"AdamW": 0.002, "SGD": 0.01}
MOMENTUM_BY_OPTIMIZER: Final = {"AdamW": 0.9, "SGD": 0.937}
MAX_ADAMW_LR0: Final = (
    0.1  # AdamW's steps are about lr0 long whatever the gradient: above, it diverges
)
DEFAULT_NBS: Final = 16
DEFAULT_CLOSE_MOSAIC: Final = 10
DEFAULT_WARMUP_EPOCHS: Final = 3.0
# A training that is all warm-up never trains at its learning rate: short ones found nothing.
MAX_WARMUP_SHARE: Final = 1 / 3
# Younger than the first recorded configurations, whose hashes must stay what they are.
NAMED_IF_SET: Final = ("cache_samples",)
# What a value has to be, where its type says that badly.
KINDS: Final = {
    "device": "is none of auto, cpu and cuda:N, with the number N of a GPU from 0 to 99",
    "workers": "is neither auto nor a whole number from 0 to 64",
    "optimizer": "is neither AdamW nor SGD",
}
NEAREST_CUTOFF: Final = 0.5  # below this likeness a suggestion confuses more than it helps


def _known_model(name: str) -> str:
    if name not in MODELS:
        raise ValueError(
            "is not a known detector; weights files and paths are not taken, training starts from "
            f"one of {', '.join(map(_family, FAMILIES))}"
        )
    return name


def _whole_strides(pixels: int) -> int:
    if pixels % STRIDE_PX:
        raise ValueError(f"is not a multiple of {STRIDE_PX}, the coarsest stride of the detectors")
    return pixels


Share = Annotated[float, Field(ge=0, le=1)]
Gain = Annotated[float, Field(ge=0, le=100)]


class TrainConfig(BaseModel):
    """What a task trains with. Immutable; two equal configurations have equal hashes.

    Defaults that depend on other fields (lr0, momentum, nbs, ...) are filled in at once: the
    canonical form says everything.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    model: Annotated[str, AfterValidator(_known_model)] = Field(
        "yolo11n.yaml",
        description="architecture: yolo11, yolo12 or yolov8, then n, s, m, l or x for its size, "
        "then .yaml; training starts from random weights, pretrained ones are not used",
    )
    epochs: int = Field(
        50, ge=1, le=10_000, description="passes over the training images, at most; 1 to 10000"
    )
    imgsz: Annotated[int, AfterValidator(_whole_strides)] = Field(
        320,
        ge=MIN_IMGSZ_PX,
        le=MAX_IMGSZ_PX,
        description="side of the square input in pixels; 64 to 2048, a multiple of 32",
    )
    batch: int = Field(16, ge=1, le=1024, description="images per training step; 1 to 1024")
    seed: int = Field(
        0,
        ge=0,
        le=2**31 - 1,
        description="of the first weights, the order of images, their augmentation and the split; "
        "0 to 2147483647",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda:\d{1,2})$",
        description="where to train: auto (the first GPU if there is one), cpu, or cuda:N for GPU "
        "number N from 0",
    )
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] = Field(
        "auto",
        description="image loading processes: auto or 0 to 64; the result does not depend on it",
    )
    val_ratio: float = Field(
        0.2,
        gt=0,
        le=0.9,
        description="validation share of a data set that comes without a split; above 0, to 0.9",
    )

    optimizer: Literal["AdamW", "SGD"] = Field(
        "AdamW", description="AdamW, or SGD with Nesterov momentum"
    )
    lr0: float = Field(
        default_factory=lambda data: LR0_BY_OPTIMIZER[data.get("optimizer", "AdamW")],
        gt=0,
        le=1,
        description="learning rate after the warm-up; above 0, to 1 (SGD) or 0.1 (AdamW)",
    )
    lrf: float = Field(
        0.01, gt=0, le=1, description="last learning rate as a share of lr0; above 0, to 1"
    )
    momentum: float = Field(
        default_factory=lambda data: MOMENTUM_BY_OPTIMIZER[data.get("optimizer", "AdamW")],
        ge=0,
        lt=1,
        description="momentum of SGD, or beta1 of AdamW; 0 to below 1",
    )
    weight_decay: float = Field(
        0.0005, ge=0, le=1, description="pull of the weights towards 0; 0 (none) to 1"
    )
    warmup_epochs: float = Field(
        default_factory=lambda data: min(
            DEFAULT_WARMUP_EPOCHS, data.get("epochs", 50) * MAX_WARMUP_SHARE
        ),
        ge=0,
        le=1000,
        description="epochs in which the learning rate rises to lr0; 0 (none) to 1000, of which a "
        "third of all epochs takes effect at most",
    )
    cos_lr: bool = Field(
        False, description="learning rate falls as a cosine (true) or in a straight line (false)"
    )
    nbs: int = Field(
        default_factory=lambda data: max(DEFAULT_NBS, data.get("batch", DEFAULT_NBS)),
        ge=1,
        le=4096,
        description="images per optimizer step: gradients of round(nbs / batch) batches are "
        "summed; 1 to 4096",
    )
    patience: int = Field(
        20,
        ge=0,
        le=10_000,
        description="epochs without a better mAP50-95 before training ends early; 0 (never) to "
        "10000",
    )

    box: Gain = Field(7.5, description="weight of the box overlap loss; 0 to 100")
    cls: Gain = Field(0.5, description="weight of the class loss; 0 to 100")
    dfl: Gain = Field(1.5, description="weight of the box edge (focal) loss; 0 to 100")

    hsv_h: Share = Field(
        0.015,
        description="largest random shift of the hue, as a share of the colour circle; 0 to 1",
    )
    hsv_s: Share = Field(0.7, description="largest random change of saturation, a share; 0 to 1")
    hsv_v: Share = Field(0.4, description="largest random change of brightness, a share; 0 to 1")
    degrees: float = Field(
        0.0, ge=0, le=180, description="largest random rotation either way, in degrees; 0 to 180"
    )
    translate: Share = Field(
        0.1, description="largest random shift, as a share of the image's side; 0 to 1"
    )
    scale: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="largest random change of size: 0.5 is from half to one and a half; 0 to "
        "below 1",
    )
    shear: float = Field(
        0.0, ge=0, le=45, description="largest random shear either way, in degrees; 0 to 45"
    )
    perspective: float = Field(
        0.0, ge=0, le=0.001, description="strength of random perspective; 0 (none) to 0.001"
    )
    flipud: Share = Field(
        0.0, description="chance that an image is turned upside down, as a mirror does; 0 to 1"
    )
    fliplr: Share = Field(0.5, description="chance that left and right are swapped; 0 to 1")
    mosaic: Share = Field(
        1.0, description="chance that an image is joined with three others; 0 to 1"
    )
    mixup: Share = Field(0.0, description="chance that an image is blended with another; 0 to 1")
    close_mosaic: int = Field(
        default_factory=lambda data: min(DEFAULT_CLOSE_MOSAIC, data.get("epochs", 50)),
        ge=0,
        le=10_000,
        description="last epochs, without mosaic and mixup; 0 to 10000, and to all epochs at most",
    )

    cache_samples: bool = Field(
        False,
        description="keep augmented images on the node's disk: the same training later sees the "
        "same ones, whatever libraries are there then",
    )

    @property
    def effective_warmup_epochs(self) -> float:
        """The warm-up that takes place: `warmup_epochs`, and a third of all epochs at most."""
        return min(self.warmup_epochs, self.epochs * MAX_WARMUP_SHARE)

    @classmethod
    def keys(cls) -> list[str]:
        """All valid names, in the order of their declaration."""
        return list(cls.model_fields)

    @classmethod
    def from_pairs(cls, pairs: Mapping[str, Any]) -> Self:
        """Build a configuration from names and values; text, as a command line gives it, is read.

        Raises InvalidConfig, whose details["problems"] lists every problem: key, value, problem and
        the nearest valid name or value, or None.
        """
        problems: list[dict[str, Any]] = []
        config: Self | None = None
        good = {_as_text(key): value for key, value in pairs.items()}
        pairs = dict(good)
        try:
            config = cls.model_validate(good)
        except ValidationError as error:
            problems = _problems(error, pairs)
            good = {key: value for key, value in pairs.items() if key not in _keys_of(problems)}
            config = cls.model_validate(good)
        problems += [item for item in _contradictions(config) if item["key"] in good]
        if problems:
            listed = "; ".join(_sentence(problem) for problem in problems)
            raise InvalidConfig(f"the configuration is not valid: {listed}", problems=problems)
        return config

    @classmethod
    def from_canonical(cls, text: str) -> Self:
        """Read back what `canonical` gave. Raises InvalidConfig."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise InvalidConfig(f"not a canonical training configuration: {error}") from error

    def canonical(self) -> str:
        """All fields as canonical JSON (RFC 8785), but for NAMED_IF_SET at their defaults."""
        fields = self.model_dump(mode="json")
        for name in NAMED_IF_SET:
            if fields[name] == type(self).model_fields[name].default:
                del fields[name]
        return rfc8785.dumps(fields).decode("utf-8")

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical form, 64 hex digits."""
        return hashlib.sha256(self.canonical().encode("utf-8")).hexdigest()


def _contradictions(config: TrainConfig) -> list[dict[str, Any]]:
    """Values that are valid alone and not together."""
    found = []
    if config.optimizer == "AdamW" and config.lr0 > MAX_ADAMW_LR0:
        text = f"is too high for AdamW, which takes at most {MAX_ADAMW_LR0}"
        found.append(_described("lr0", config.lr0, text, str(LR0_BY_OPTIMIZER["AdamW"])))
    if config.warmup_epochs > config.epochs:
        text = f"is longer than the training of {config.epochs} epochs"
        found.append(_described("warmup_epochs", config.warmup_epochs, text, str(config.epochs)))
    if config.close_mosaic > config.epochs:
        text = f"is longer than the training of {config.epochs} epochs"
        found.append(_described("close_mosaic", config.close_mosaic, text, str(config.epochs)))
    return found


def _described(key: str, value: Any, problem: str, nearest: str | None) -> dict[str, Any]:
    return {"key": key, "value": value, "problem": problem, "nearest": nearest}


def _keys_of(problems: list[dict[str, Any]]) -> set[str]:
    return {problem["key"] for problem in problems}


def _as_text(key: str) -> str:
    """The key as UTF-8 can hold it: JSON allows half a surrogate pair, and no setting has one."""
    return key.encode("utf-8", "backslashreplace").decode()


def _problems(error: ValidationError, pairs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One problem per key, in words for people."""
    problems: dict[str, dict[str, Any]] = {}
    for item in error.errors():
        key = str(item["loc"][0])
        if key not in pairs:
            continue  # a default that could not be derived from a field that has its own problem
        problems[key] = _problem(item, pairs)  # a field of two types has two, with the same words
    return list(problems.values())


def _problem(item: Any, pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Turn one of pydantic's errors into a problem in our words."""
    key = str(item["loc"][0])
    value = pairs.get(key)
    if item["type"] == "extra_forbidden":
        return _described(key, value, "is not a known name", _nearest(key, TrainConfig.keys()))
    text = KINDS.get(key) or _in_words(item)
    return _described(key, value, text, _nearest_value(key, value))


def _in_words(item: Any) -> str:
    """Say what is wrong with a value, without the words of programmers."""
    limits = item.get("ctx", {})
    match item["type"]:
        case "greater_than":
            return f"is not above {limits['gt']:g}"
        case "greater_than_equal":
            return f"is below {limits['ge']:g}, the least that is allowed"
        case "less_than":
            return f"is not below {limits['lt']:g}"
        case "less_than_equal":
            return f"is above {limits['le']:g}, the most that is allowed"
        case "float_parsing" | "float_type":
            return "is not a number"
        case "int_parsing" | "int_type" | "int_from_float" | "int_parsing_size":
            return "is not a whole number"
        case "finite_number":
            return "is not a finite number"
        case "bool_parsing" | "bool_type":
            return "is neither true nor false"
        case "string_type":
            return "is not text"
        case _:
            return str(item["msg"]).removeprefix("Value error, ")


def _nearest_value(key: str, value: Any) -> str | None:
    if key == "model":
        return _nearest_model(str(value))
    if key == "optimizer":
        return _nearest(str(value), tuple(LR0_BY_OPTIMIZER))
    if key == "imgsz" and str(value).isdigit():
        strides = max(MIN_IMGSZ_PX // STRIDE_PX, round(int(value) / STRIDE_PX))
        return str(min(strides * STRIDE_PX, MAX_IMGSZ_PX))
    return None


def _nearest_model(name: str) -> str | None:
    """Give the most similar detector, or its whole family when `name` does not say which size."""
    nearest = _nearest(name, MODELS)
    sized = re.search(rf"\d[{''.join(SCALES)}](?![a-z])", name.lower())
    if nearest is None or sized:
        return nearest
    return _family(nearest.removesuffix(".yaml")[:-1])


def _family(name: str) -> str:
    return f"{name}{{{','.join(SCALES)}}}.yaml"


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str | None:
    """Give the known name that is most like `name`, the first of equals, or None."""

    def likeness(item: str) -> float:
        return difflib.SequenceMatcher(a=name.lower(), b=item.lower()).ratio()

    best = max(known, key=likeness)
    return best if likeness(best) >= NEAREST_CUTOFF else None


def _sentence(problem: dict[str, Any]) -> str:
    hint = f" (did you mean {problem['nearest']}?)" if problem["nearest"] else ""
    return f"{problem['key']}={problem['value']}: {problem['problem']}{hint}"
