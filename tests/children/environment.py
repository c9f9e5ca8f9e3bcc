"""A child process that says what variables it sees."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.attempts.channel import Channel, run_child


def work(_job: dict[str, Any], _job_dir: Path, _channel: Channel) -> Mapping[str, Any]:
    return {"names": sorted(os.environ)}


if __name__ == "__main__":
    run_child(work)
