"""The Python SDK: `Client` talks to a Perdure server over HTTP. It needs no torch."""

from perdure.client.client import Client
from perdure.client.records import Dataset, LogPage, Model, ModelFile, Task, Update, Verification

__all__ = [
    "Client",
    "Dataset",
    "LogPage",
    "Model",
    "ModelFile",
    "Task",
    "Update",
    "Verification",
]
