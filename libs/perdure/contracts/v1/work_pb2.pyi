from perdure.contracts.v1 import events_pb2 as _events_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Assignment(_message.Message):
    __slots__ = ("task_id", "stage", "fence", "worker_id", "incarnation", "prepare", "train", "publish")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    stage: str
    fence: int
    worker_id: str
    incarnation: str
    prepare: PrepareWork
    train: TrainWork
    publish: PublishWork
    def __init__(self, task_id: _Optional[str] = ..., stage: _Optional[str] = ..., fence: _Optional[int] = ..., worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., prepare: _Optional[_Union[PrepareWork, _Mapping]] = ..., train: _Optional[_Union[TrainWork, _Mapping]] = ..., publish: _Optional[_Union[PublishWork, _Mapping]] = ...) -> None: ...

class PrepareWork(_message.Message):
    __slots__ = ("data", "val_ratio", "seed")
    DATA_FIELD_NUMBER: _ClassVar[int]
    VAL_RATIO_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    data: _events_pb2.DataSource
    val_ratio: float
    seed: int
    def __init__(self, data: _Optional[_Union[_events_pb2.DataSource, _Mapping]] = ..., val_ratio: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class TrainWork(_message.Message):
    __slots__ = ("dataset_version", "split_id", "config_json", "checkpoints")
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    dataset_version: str
    split_id: str
    config_json: str
    checkpoints: _containers.RepeatedCompositeFieldContainer[_events_pb2.CheckpointSaved]
    def __init__(self, dataset_version: _Optional[str] = ..., split_id: _Optional[str] = ..., config_json: _Optional[str] = ..., checkpoints: _Optional[_Iterable[_Union[_events_pb2.CheckpointSaved, _Mapping]]] = ...) -> None: ...

class PublishWork(_message.Message):
    __slots__ = ("name", "dataset_version", "split_id", "config_json", "config_hash", "checkpoint", "best_epoch", "gate")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATASET_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ID_FIELD_NUMBER: _ClassVar[int]
    CONFIG_JSON_FIELD_NUMBER: _ClassVar[int]
    CONFIG_HASH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    BEST_EPOCH_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dataset_version: str
    split_id: str
    config_json: str
    config_hash: str
    checkpoint: _events_pb2.Blob
    best_epoch: int
    gate: _events_pb2.Gate
    def __init__(self, name: _Optional[str] = ..., dataset_version: _Optional[str] = ..., split_id: _Optional[str] = ..., config_json: _Optional[str] = ..., config_hash: _Optional[str] = ..., checkpoint: _Optional[_Union[_events_pb2.Blob, _Mapping]] = ..., best_epoch: _Optional[int] = ..., gate: _Optional[_Union[_events_pb2.Gate, _Mapping]] = ...) -> None: ...

class CancelAttempt(_message.Message):
    __slots__ = ("task_id", "fence", "reason")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    reason: str
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("id", "task_id", "stage", "fence", "worker_id", "incarnation", "time", "started", "epoch", "checkpoint", "failed", "succeeded", "findings", "model", "seq", "traceparent")
    ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    id: str
    task_id: str
    stage: str
    fence: int
    worker_id: str
    incarnation: str
    time: str
    started: _events_pb2.AttemptStarted
    epoch: _events_pb2.EpochCompleted
    checkpoint: _events_pb2.CheckpointSaved
    failed: _events_pb2.AttemptFailed
    succeeded: _events_pb2.AttemptSucceeded
    findings: Findings
    model: ModelFacts
    seq: int
    traceparent: str
    def __init__(self, id: _Optional[str] = ..., task_id: _Optional[str] = ..., stage: _Optional[str] = ..., fence: _Optional[int] = ..., worker_id: _Optional[str] = ..., incarnation: _Optional[str] = ..., time: _Optional[str] = ..., started: _Optional[_Union[_events_pb2.AttemptStarted, _Mapping]] = ..., epoch: _Optional[_Union[_events_pb2.EpochCompleted, _Mapping]] = ..., checkpoint: _Optional[_Union[_events_pb2.CheckpointSaved, _Mapping]] = ..., failed: _Optional[_Union[_events_pb2.AttemptFailed, _Mapping]] = ..., succeeded: _Optional[_Union[_events_pb2.AttemptSucceeded, _Mapping]] = ..., findings: _Optional[_Union[Findings, _Mapping]] = ..., model: _Optional[_Union[ModelFacts, _Mapping]] = ..., seq: _Optional[int] = ..., traceparent: _Optional[str] = ...) -> None: ...

class ReportsRecorded(_message.Message):
    __slots__ = ("task_id", "fence", "incarnation", "seq")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    fence: int
    incarnation: str
    seq: int
    def __init__(self, task_id: _Optional[str] = ..., fence: _Optional[int] = ..., incarnation: _Optional[str] = ..., seq: _Optional[int] = ...) -> None: ...

class Findings(_message.Message):
    __slots__ = ("imported", "rejected", "probed")
    IMPORTED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    PROBED_FIELD_NUMBER: _ClassVar[int]
    imported: _events_pb2.DatasetImported
    rejected: _events_pb2.DatasetRejected
    probed: _events_pb2.DatasetProbed
    def __init__(self, imported: _Optional[_Union[_events_pb2.DatasetImported, _Mapping]] = ..., rejected: _Optional[_Union[_events_pb2.DatasetRejected, _Mapping]] = ..., probed: _Optional[_Union[_events_pb2.DatasetProbed, _Mapping]] = ...) -> None: ...

class ModelFacts(_message.Message):
    __slots__ = ("model_id", "exported", "verified", "evaluated", "registered", "rejected")
    MODEL_ID_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    model_id: str
    exported: _events_pb2.ModelExported
    verified: _events_pb2.ModelVerified
    evaluated: _events_pb2.ModelEvaluated
    registered: _events_pb2.ModelRegistered
    rejected: _events_pb2.ModelRejected
    def __init__(self, model_id: _Optional[str] = ..., exported: _Optional[_Union[_events_pb2.ModelExported, _Mapping]] = ..., verified: _Optional[_Union[_events_pb2.ModelVerified, _Mapping]] = ..., evaluated: _Optional[_Union[_events_pb2.ModelEvaluated, _Mapping]] = ..., registered: _Optional[_Union[_events_pb2.ModelRegistered, _Mapping]] = ..., rejected: _Optional[_Union[_events_pb2.ModelRejected, _Mapping]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("worker", "time", "attempts", "draining")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    worker: _events_pb2.WorkerRegistered
    time: str
    attempts: _containers.RepeatedCompositeFieldContainer[AttemptProgress]
    draining: bool
    def __init__(self, worker: _Optional[_Union[_events_pb2.WorkerRegistered, _Mapping]] = ..., time: _Optional[str] = ..., attempts: _Optional[_Iterable[_Union[AttemptProgress, _Mapping]]] = ..., draining: _Optional[bool] = ...) -> None: ...

class AttemptProgress(_message.Message):
    __slots__ = ("task_id", "stage", "fence", "phase", "epoch", "epochs", "step", "steps", "box_loss", "cls_loss", "dfl_loss", "map50", "samples_per_s", "eta_s", "memory_bytes", "last_step_time")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FENCE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    BOX_LOSS_FIELD_NUMBER: _ClassVar[int]
    CLS_LOSS_FIELD_NUMBER: _ClassVar[int]
    DFL_LOSS_FIELD_NUMBER: _ClassVar[int]
    MAP50_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_S_FIELD_NUMBER: _ClassVar[int]
    ETA_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_TIME_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    stage: str
    fence: int
    phase: str
    epoch: int
    epochs: int
    step: int
    steps: int
    box_loss: float
    cls_loss: float
    dfl_loss: float
    map50: float
    samples_per_s: float
    eta_s: float
    memory_bytes: int
    last_step_time: str
    def __init__(self, task_id: _Optional[str] = ..., stage: _Optional[str] = ..., fence: _Optional[int] = ..., phase: _Optional[str] = ..., epoch: _Optional[int] = ..., epochs: _Optional[int] = ..., step: _Optional[int] = ..., steps: _Optional[int] = ..., box_loss: _Optional[float] = ..., cls_loss: _Optional[float] = ..., dfl_loss: _Optional[float] = ..., map50: _Optional[float] = ..., samples_per_s: _Optional[float] = ..., eta_s: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., last_step_time: _Optional[str] = ...) -> None: ...
