"""`perdure service trainer-agent`."""

from typing import NoReturn

from perdure.runtime import host
from perdure_trainer_agent.bootstrap import assemble
from perdure_trainer_agent.settings import NAME, TrainerAgentSettings


def serve() -> NoReturn:
    """Run the worker until it is told to stop."""
    host.require("torch", "torchvision", "ultralytics")
    host.serve(NAME, TrainerAgentSettings, assemble)
