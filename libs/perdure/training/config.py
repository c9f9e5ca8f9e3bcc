"""The training configuration: every hyper-parameter with its type, range and default.

Nothing here needs torch, so that the gateway can refuse a bad configuration at the door.
"""

import difflib
import hashlib
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
NEAREST_CUTOFF: Final = 0.5  # below this likeness a suggestion confuses more than it helps


def _known_model(name: str) -> str:
    if name not in MODELS:
        raise ValueError(
            "is not a known detector; weights files and paths are not taken, training starts from "
            f"one of {', '.join(f'{family}{{n,s,m,l,x}}.yaml' for family in FAMILIES)}"
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

    model: Annotated[str, AfterValidator(_known_model)] = "yolo11n.yaml"
    epochs: int = Field(50, ge=1, le=10_000)
    imgsz: Annotated[int, AfterValidator(_whole_strides)] = Field(
        320, ge=MIN_IMGSZ_PX, le=MAX_IMGSZ_PX, description="side of the square input, pixels"
    )
    batch: int = Field(16, ge=1, le=1024, description="images per step, all devices together")
    seed: int = Field(0, ge=0, le=2**31 - 1)
    device: str = Field("auto", pattern=r"^(auto|cpu|cuda:\d{1,2})$")
    workers: Literal["auto"] | Annotated[int, Field(ge=0, le=64)] = Field(
        "auto", description="image loading processes; the result does not depend on it"
    )
    val_ratio: float = Field(
        0.2, gt=0, le=0.9, description="validation share of a data set that comes without a split"
    )

    optimizer: Literal["AdamW", "SGD"] = "AdamW"
    lr0: float = Field(
        default_factory=lambda data: LR0_BY_OPTIMIZER[data.get("optimizer", "AdamW")], gt=0, le=1
    )
    lrf: float = Field(0.01, gt=0, le=1, description="last learning rate as a share of lr0")
    momentum: float = Field(
        default_factory=lambda data: MOMENTUM_BY_OPTIMIZER[data.get("optimizer", "AdamW")],
        ge=0,
        lt=1,
        description="of SGD, or beta1 of AdamW",
    )
    weight_decay: float = Field(0.0005, ge=0, le=1)
    warmup_epochs: float = Field(
        default_factory=lambda data: min(DEFAULT_WARMUP_EPOCHS, float(data.get("epochs", 50))),
        ge=0,
        le=1000,
    )
    cos_lr: bool = Field(False, description="cosine instead of linear decay")
    nbs: int = Field(
        default_factory=lambda data: max(DEFAULT_NBS, data.get("batch", DEFAULT_NBS)),
        ge=1,
        le=4096,
        description="images per optimizer step: gradients of round(nbs / batch) batches are summed",
    )
    patience: int = Field(
        20, ge=0, le=10_000, description="epochs without a better mAP50-95 before the end; 0: never"
    )

    box: Gain = 7.5
    cls: Gain = 0.5
    dfl: Gain = 1.5

    hsv_h: Share = 0.015
    hsv_s: Share = 0.7
    hsv_v: Share = 0.4
    degrees: float = Field(0.0, ge=0, le=180)
    translate: Share = 0.1
    scale: float = Field(0.5, ge=0, lt=1)
    shear: float = Field(0.0, ge=0, le=45)
    perspective: float = Field(0.0, ge=0, le=0.001)
    flipud: Share = 0.0
    fliplr: Share = 0.5
    mosaic: Share = 1.0
    mixup: Share = 0.0
    close_mosaic: int = Field(
        default_factory=lambda data: min(DEFAULT_CLOSE_MOSAIC, data.get("epochs", 50)),
        ge=0,
        le=10_000,
        description="last epochs without mosaic and mixup",
    )

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
        good = dict(pairs)
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
        """All fields as canonical JSON (RFC 8785)."""
        return rfc8785.dumps(self.model_dump(mode="json")).decode("utf-8")

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


def _problems(error: ValidationError, pairs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One problem per key, in words for people."""
    problems: dict[str, dict[str, Any]] = {}
    for item in error.errors():
        key = str(item["loc"][0])
        if key not in pairs:
            continue  # a default that could not be derived from a field that has its own problem
        problem = _problem(item, pairs)
        if key in problems:  # a field of two types: neither fits
            problem["problem"] = f"{problems[key]['problem']}, or {problem['problem']}"
        problems[key] = problem
    return list(problems.values())


def _problem(item: Any, pairs: Mapping[str, Any]) -> dict[str, Any]:
    """Turn one of pydantic's errors into a problem in our words."""
    key = str(item["loc"][0])
    value = pairs.get(key)
    if item["type"] == "extra_forbidden":
        return _described(key, value, "is not a known name", _nearest(key, TrainConfig.keys()))
    text = str(item["msg"]).removeprefix("Value error, ")
    text = text[0].lower() + text[1:]
    return _described(key, value, text, _nearest_value(key, value))


def _nearest_value(key: str, value: Any) -> str | None:
    if key == "model":
        return _nearest(str(value), MODELS)
    if key == "optimizer":
        return _nearest(str(value), tuple(LR0_BY_OPTIMIZER))
    if key == "imgsz" and str(value).isdigit():
        strides = max(MIN_IMGSZ_PX // STRIDE_PX, round(int(value) / STRIDE_PX))
        return str(min(strides * STRIDE_PX, MAX_IMGSZ_PX))
    return None


def _nearest(name: str, known: tuple[str, ...] | list[str]) -> str | None:
    """Give the known name that is most like `name`, the first of equals, or None."""

    def likeness(item: str) -> float:
        return difflib.SequenceMatcher(a=name.lower(), b=item.lower()).ratio()

    best = max(known, key=likeness)
    return best if likeness(best) >= NEAREST_CUTOFF else None


def _sentence(problem: dict[str, Any]) -> str:
    hint = f" (did you mean {problem['nearest']}?)" if problem["nearest"] else ""
    return f"{problem['key']}={problem['value']}: {problem['problem']}{hint}"
