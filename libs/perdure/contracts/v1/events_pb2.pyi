from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Blob(_message.Message):
    __slots__ = ("key", "digest", "size_bytes")
    KEY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    key: str
    digest: str
    size_bytes: int
    def __init__(self, key: _Optional[str] = ..., digest: _Optional[str] = ..., size_bytes: _Optional[int] = ...) -> None: ...

class DataSource(_message.Message):
    __slots__ = ("dataset_version", "upload", "name", "rules_json")
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RULES_JSON_FIELD_NUMBER: _ClassVar[int]
    dataset_version: str
    upload: Blob
    name: str
    rules_json: str
    def __init__(self, dataset_version: _Optional[str] = ..., upload: _Optional[_Union[Blob, _Mapping]] = ..., name: _Optional[str] = ..., rules_json: _Optional[str] = ...) -> None: ...

class Gate(_message.Message):
    __slots__ = ("min_map50",)
    MIN_MAP50_FIELD_NUMBER: _ClassVar[int]
    min_map50: float
    def __init__(self, min_map50: _Optional[float] = ...) -> None: ...

class TaskSubmitted(_message.Message):
    __slots__ = ("task_id", "goal", "name", "data", "config_json", "config_hash", "gate", "submitted_by")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_BY_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    goal: str
    name: str
    data: DataSource
    config_json: str
    config_hash: str
    gate: Gate
    submitted_by: str
    def __init__(self, task_id: _Optional[str] = ..., goal: _Optional[str] = ..., name: _Optional[str] = ..., data: _Optional[_Union[DataSource, _Mapping]] = ..., config_json: _Optional[str] = ..., config_hash: _Optional[str] = ..., gate: _Optional[_Union[Gate, _Mapping]] = ..., submitted_by: _Optional[str] = ...) -> None: ...

class AttemptAssigned(_message.Message):
    __slots__ = ("stage", "fence", "worker_id", "incarnation")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    stage: str
    fence: int
    worker_id: str
    incarnation: str
    def __init__(self, stage: _Optional[str] = ..., fence: _Optional[int] = ..., worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ...) -> None: ...

class AttemptStarted(_message.Message):
    __slots__ = ("fence", "pid", "resumed_from_epoch", "resumed_from_digest")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FROM_EPOCH_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FROM_DIGEST_FIELD_NUMBER: _ClassVar[int]
    fence: int
    pid: int
    resumed_from_epoch: int
    resumed_from_digest: str
    def __init__(self, fence: _Optional[int] = ..., pid: _Optional[int] = ..., resumed_from_epoch: _Optional[int] = ..., resumed_from_digest: _Optional[str] = ...) -> None: ...

class EpochCompleted(_message.Message):
    __slots__ = ("fence", "epoch", "epochs", "box_loss", "cls_loss", "dfl_loss", "map50", "map50_95", "learning_rate", "images", "duration_s")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BOX_LOSS_FIELD_NUMBER: _ClassVar[int]
    CLS_LOSS_FIELD_NUMBER: _ClassVar[int]
    DFL_LOSS_FIELD_NUMBER: _ClassVar[int]
    MAP50_FIELD_NUMBER: _ClassVar[int]
    MAP50_95_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    fence: int
    epoch: int
    epochs: int
    box_loss: float
    cls_loss: float
    dfl_loss: float
    map50: float
    map50_95: float
    learning_rate: float
    images: int
    duration_s: float
    def __init__(self, fence: _Optional[int] = ..., epoch: _Optional[int] = ..., epochs: _Optional[int] = ..., box_loss: _Optional[float] = ..., cls_loss: _Optional[float] = ..., dfl_loss: _Optional[float] = ..., map50: _Optional[float] = ..., map50_95: _Optional[float] = ..., learning_rate: _Optional[float] = ..., images: _Optional[int] = ..., duration_s: _Optional[float] = ...) -> None: ...

class CheckpointSaved(_message.Message):
    __slots__ = ("fence", "epoch", "step", "blob", "best")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    BLOB_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    fence: int
    epoch: int
    step: int
    blob: Blob
    best: bool
    def __init__(self, fence: _Optional[int] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ..., blob: _Optional[_Union[Blob, _Mapping]] = ..., best: _Optional[bool] = ...) -> None: ...

class HeartbeatTimedOut(_message.Message):
    __slots__ = ("fence", "worker_id", "silent_s")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    SILENT_S_FIELD_NUMBER: _ClassVar[int]
    fence: int
    worker_id: str
    silent_s: float
    def __init__(self, fence: _Optional[int] = ..., worker_id: _Optional[str] = ..., silent_s: _Optional[float] = ...) -> None: ...

class AttemptFailed(_message.Message):
    __slots__ = ("fence", "failure", "detail", "exit_code")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    fence: int
    failure: str
    detail: str
    exit_code: int
    def __init__(self, fence: _Optional[int] = ..., failure: _Optional[str] = ..., detail: _Optional[str] = ..., exit_code: _Optional[int] = ...) -> None: ...

class PreparedData(_message.Message):
    __slots__ = ("dataset_version", "split_id")
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ID_FIELD_NUMBER: _ClassVar[int]
    dataset_version: str
    split_id: str
    def __init__(self, dataset_version: _Optional[str] = ..., split_id: _Optional[str] = ...) -> None: ...

class TrainedModel(_message.Message):
    __slots__ = ("best_checkpoint", "best_epoch", "epochs", "map50", "map50_95", "weights_digest")
    BEST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    BEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    MAP50_FIELD_NUMBER: _ClassVar[int]
    MAP50_95_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    best_checkpoint: Blob
    best_epoch: int
    epochs: int
    map50: float
    map50_95: float
    weights_digest: str
    def __init__(self, best_checkpoint: _Optional[_Union[Blob, _Mapping]] = ..., best_epoch: _Optional[int] = ..., epochs: _Optional[int] = ..., map50: _Optional[float] = ..., map50_95: _Optional[float] = ..., weights_digest: _Optional[str] = ...) -> None: ...

class PublishedModel(_message.Message):
    __slots__ = ("model_id", "map50", "map50_95")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    MAP50_FIELD_NUMBER: _ClassVar[int]
    MAP50_95_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    map50: float
    map50_95: float
    def __init__(self, model_id: _Optional[str] = ..., map50: _Optional[float] = ..., map50_95: _Optional[float] = ...) -> None: ...

class AttemptSucceeded(_message.Message):
    __slots__ = ("fence", "prepared", "trained", "published")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PREPARED_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    fence: int
    prepared: PreparedData
    trained: TrainedModel
    published: PublishedModel
    def __init__(self, fence: _Optional[int] = ..., prepared: _Optional[_Union[PreparedData, _Mapping]] = ..., trained: _Optional[_Union[TrainedModel, _Mapping]] = ..., published: _Optional[_Union[PublishedModel, _Mapping]] = ...) -> None: ...

class RetryScheduled(_message.Message):
    __slots__ = ("stage", "retry", "failure", "not_before")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_FIELD_NUMBER: _ClassVar[int]
    stage: str
    retry: int
    failure: str
    not_before: str
    def __init__(self, stage: _Optional[str] = ..., retry: _Optional[int] = ..., failure: _Optional[str] = ..., not_before: _Optional[str] = ...) -> None: ...

class TaskCancelRequested(_message.Message):
    __slots__ = ("requested_by",)
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    requested_by: str
    def __init__(self, requested_by: _Optional[str] = ...) -> None: ...

class TaskCancelled(_message.Message):
    __slots__ = ("detail",)
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    detail: str
    def __init__(self, detail: _Optional[str] = ...) -> None: ...

class TaskSucceeded(_message.Message):
    __slots__ = ("dataset_version", "model_id")
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    dataset_version: str
    model_id: str
    def __init__(self, dataset_version: _Optional[str] = ..., model_id: _Optional[str] = ...) -> None: ...

class TaskFailed(_message.Message):
    __slots__ = ("failure", "detail", "advice")
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    failure: str
    detail: str
    advice: str
    def __init__(self, failure: _Optional[str] = ..., detail: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class StaleReportRecorded(_message.Message):
    __slots__ = ("fence", "current_fence", "report", "worker_id")
    FENCE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FENCE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    fence: int
    current_fence: int
    report: str
    worker_id: str
    def __init__(self, fence: _Optional[int] = ..., current_fence: _Optional[int] = ..., report: _Optional[str] = ..., worker_id: _Optional[str] = ...) -> None: ...

class DatasetImported(_message.Message):
    __slots__ = ("version", "name", "format", "classes", "images", "boxes", "train_images", "val_images", "split_id", "warnings", "manifest", "findings")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    BOXES_FIELD_NUMBER: _ClassVar[int]
    TRAIN_IMAGES_FIELD_NUMBER: _ClassVar[int]
    VAL_IMAGES_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ID_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    version: str
    name: str
    format: str
    classes: _containers.RepeatedScalarFieldContainer[str]
    images: int
    boxes: int
    train_images: int
    val_images: int
    split_id: str
    warnings: int
    manifest: Blob
    findings: Blob
    def __init__(self, version: _Optional[str] = ..., name: _Optional[str] = ..., format: _Optional[str] = ..., classes: _Optional[_Iterable[str]] = ..., images: _Optional[int] = ..., boxes: _Optional[int] = ..., train_images: _Optional[int] = ..., val_images: _Optional[int] = ..., split_id: _Optional[str] = ..., warnings: _Optional[int] = ..., manifest: _Optional[_Union[Blob, _Mapping]] = ..., findings: _Optional[_Union[Blob, _Mapping]] = ...) -> None: ...

class DatasetRejected(_message.Message):
    __slots__ = ("name", "errors", "warnings", "findings", "first_findings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FINDINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    errors: int
    warnings: int
    findings: Blob
    first_findings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., errors: _Optional[int] = ..., warnings: _Optional[int] = ..., findings: _Optional[_Union[Blob, _Mapping]] = ..., first_findings: _Optional[_Iterable[str]] = ...) -> None: ...

class DatasetProbed(_message.Message):
    __slots__ = ("version", "probe", "report", "warnings")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    version: str
    probe: Blob
    report: Blob
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, version: _Optional[str] = ..., probe: _Optional[_Union[Blob, _Mapping]] = ..., report: _Optional[_Union[Blob, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ModelExported(_message.Message):
    __slots__ = ("model_id", "task_id", "onnx", "opset", "input_shape")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    ONNX_FIELD_NUMBER: _ClassVar[int]
    OPSET_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    task_id: str
    onnx: Blob
    opset: int
    input_shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model_id: _Optional[str] = ..., task_id: _Optional[str] = ..., onnx: _Optional[_Union[Blob, _Mapping]] = ..., opset: _Optional[int] = ..., input_shape: _Optional[_Iterable[int]] = ...) -> None: ...

class ModelVerified(_message.Message):
    __slots__ = ("images", "max_confidence_difference", "max_box_difference_px")
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_CONFIDENCE_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_BOX_DIFFERENCE_PX_FIELD_NUMBER: _ClassVar[int]
    images: int
    max_confidence_difference: float
    max_box_difference_px: float
    def __init__(self, images: _Optional[int] = ..., max_confidence_difference: _Optional[float] = ..., max_box_difference_px: _Optional[float] = ...) -> None: ...

class ModelEvaluated(_message.Message):
    __slots__ = ("images", "map50", "map50_95", "map50_by_class")
    class Map50ByClassEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    MAP50_FIELD_NUMBER: _ClassVar[int]
    MAP50_95_FIELD_NUMBER: _ClassVar[int]
    MAP50_BY_CLASS_FIELD_NUMBER: _ClassVar[int]
    images: int
    map50: float
    map50_95: float
    map50_by_class: _containers.ScalarMap[str, float]
    def __init__(self, images: _Optional[int] = ..., map50: _Optional[float] = ..., map50_95: _Optional[float] = ..., map50_by_class: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ModelRegistered(_message.Message):
    __slots__ = ("model_id", "task_id", "name", "dataset_version", "config_hash", "card", "files")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    CARD_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    task_id: str
    name: str
    dataset_version: str
    config_hash: str
    card: Blob
    files: _containers.RepeatedCompositeFieldContainer[Blob]
    def __init__(self, model_id: _Optional[str] = ..., task_id: _Optional[str] = ..., name: _Optional[str] = ..., dataset_version: _Optional[str] = ..., config_hash: _Optional[str] = ..., card: _Optional[_Union[Blob, _Mapping]] = ..., files: _Optional[_Iterable[_Union[Blob, _Mapping]]] = ...) -> None: ...

class ModelRejected(_message.Message):
    __slots__ = ("model_id", "task_id", "failure", "detail")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    task_id: str
    failure: str
    detail: str
    def __init__(self, model_id: _Optional[str] = ..., task_id: _Optional[str] = ..., failure: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class WorkerRegistered(_message.Message):
    __slots__ = ("worker_id", "incarnation", "stages", "capacity", "host", "pid")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    stages: _containers.RepeatedScalarFieldContainer[str]
    capacity: int
    host: str
    pid: int
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., stages: _Optional[_Iterable[str]] = ..., capacity: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ...) -> None: ...

class WorkerLost(_message.Message):
    __slots__ = ("worker_id", "incarnation", "detail")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    incarnation: str
    detail: str
    def __init__(self, worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class MessageDeadLettered(_message.Message):
    __slots__ = ("message_id", "message_type", "queue", "exchange", "routing_key", "reason", "error", "deliveries", "body", "headers", "task_id", "source", "subject", "time", "body_bytes", "replay")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_TYPE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    message_type: str
    queue: str
    exchange: str
    routing_key: str
    reason: str
    error: str
    deliveries: int
    body: bytes
    headers: _containers.ScalarMap[str, str]
    task_id: str
    source: str
    subject: str
    time: str
    body_bytes: int
    replay: int
    def __init__(self, message_id: _Optional[str] = ..., message_type: _Optional[str] = ..., queue: _Optional[str] = ..., exchange: _Optional[str] = ..., routing_key: _Optional[str] = ..., reason: _Optional[str] = ..., error: _Optional[str] = ..., deliveries: _Optional[int] = ..., body: _Optional[bytes] = ..., headers: _Optional[_Mapping[str, str]] = ..., task_id: _Optional[str] = ..., source: _Optional[str] = ..., subject: _Optional[str] = ..., time: _Optional[str] = ..., body_bytes: _Optional[int] = ..., replay: _Optional[int] = ...) -> None: ...

class MessageReplayed(_message.Message):
    __slots__ = ("requested_by", "replay")
    REQUESTED_BY_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    requested_by: str
    replay: int
    def __init__(self, requested_by: _Optional[str] = ..., replay: _Optional[int] = ...) -> None: ...
