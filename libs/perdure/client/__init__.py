"""The Python SDK: `Client` talks to a Perdure server over HTTP. It needs no torch."""

from perdure.client.client import Client
from perdure.client.records import (
    Dataset,
    DeadLetter,
    Finding,
    LogPage,
    Model,
    ModelFile,
    Reconciliation,
    RelayStatus,
    Task,
    Update,
    Verification,
)

__all__ = [
    "Client",
    "Dataset",
    "DeadLetter",
    "Finding",
    "LogPage",
    "Model",
    "ModelFile",
    "Reconciliation",
    "RelayStatus",
    "Task",
    "Update",
    "Verification",
]
