"""What a worker is told about an attempt: made from the task's state alone, so that it can be told
again.
"""

from perdure.contracts.codec import canonical_json
from perdure.contracts.v1 import events_pb2, work_pb2
from perdure.domain.task import Attempt, Blob, Checkpoint, Stage, TaskState

# For a data set that is pushed without a training: the same split for everybody.
DEFAULT_VAL_RATIO = 0.2
DEFAULT_SEED = 0


def assignment_of(state: TaskState, attempt: Attempt) -> work_pb2.Assignment:
    """The assignment of the task's current attempt."""
    assignment = work_pb2.Assignment(
        task_id=state.id,
        stage=attempt.stage,
        fence=attempt.fence,
        worker_id=attempt.worker_id,
        incarnation=attempt.incarnation,
    )
    match attempt.stage:
        case Stage.PREPARE:
            assignment.prepare.CopyFrom(_prepare(state))
        case Stage.TRAIN:
            assignment.train.CopyFrom(_train(state))
        case Stage.PUBLISH:
            assignment.publish.CopyFrom(_publish(state))
    return assignment


def _prepare(state: TaskState) -> work_pb2.PrepareWork:
    config = state.config or {}
    data = events_pb2.DataSource(
        dataset_version=state.dataset_version,
        upload=_blob(state.upload) if state.upload else None,
        name=state.data_name,
        rules_json=state.rules_json,
    )
    return work_pb2.PrepareWork(
        data=data,
        val_ratio=config.get("val_ratio", DEFAULT_VAL_RATIO),
        seed=config.get("seed", DEFAULT_SEED),
    )


def _train(state: TaskState) -> work_pb2.TrainWork:
    return work_pb2.TrainWork(
        dataset_version=state.dataset_version,
        split_id=state.split_id,
        config_json=canonical_json(state.config),
        checkpoints=[_checkpoint(c) for c in reversed(state.checkpoints)],
    )


def _publish(state: TaskState) -> work_pb2.PublishWork:
    assert state.trained is not None, f"task {state.id} is in stage publish without a trained model"
    return work_pb2.PublishWork(
        name=state.name,
        dataset_version=state.dataset_version,
        split_id=state.split_id,
        config_json=canonical_json(state.config),
        config_hash=state.config_hash,
        checkpoint=_blob(state.trained.best_checkpoint),
        best_epoch=state.trained.best_epoch,
        gate=events_pb2.Gate(min_map50=state.min_map50),
    )


def _checkpoint(checkpoint: Checkpoint) -> events_pb2.CheckpointSaved:
    return events_pb2.CheckpointSaved(
        fence=checkpoint.fence,
        epoch=checkpoint.epoch,
        step=checkpoint.step,
        blob=_blob(checkpoint.blob),
        best=checkpoint.best,
    )


def _blob(blob: Blob) -> events_pb2.Blob:
    return events_pb2.Blob(key=blob.key, digest=blob.digest, size_bytes=blob.size_bytes)
