"""`perdure service publisher`."""

from typing import NoReturn

from perdure.runtime import host
from perdure_publisher.bootstrap import assemble
from perdure_publisher.settings import NAME, PublisherSettings


def serve() -> NoReturn:
    """Run the worker until it is told to stop."""
    host.require("torch", "ultralytics", "onnx", "onnxruntime")
    host.serve(NAME, PublisherSettings, assemble)
