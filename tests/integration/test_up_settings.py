"""What `perdure up` is told reaches the services in it."""

from pathlib import Path

import pytest

from perdure.client import Task
from perdure_embedded.birds import draw_bird_dataset
from tests.builders.server import Server, until

DEADLINE_S = 60.0


def has_failed_once(task: Task) -> bool:
    return any(attempt["failure"] for attempt in task.json["attempts"])


@pytest.mark.slow
def test_the_cache_may_hold_what_the_setting_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    birds = draw_bird_dataset(tmp_path / "birds", images=8, size_px=64)
    monkeypatch.setenv("PERDURE_CACHE_MAX_BYTES", "4096")
    server = Server(tmp_path / "data")
    try:
        upload = server.client.upload(birds)
        config = {"epochs": 1, "imgsz": 64}
        task = server.client.submit(name="birds", upload=upload, config=config)
        task = until(server, task, has_failed_once, DEADLINE_S)
        failed = next(attempt for attempt in task.json["attempts"] if attempt["failure"])
        assert (failed["stage"], failed["failure"]) == ("train", "disk_full")
        assert "PERDURE_CACHE_MAX_BYTES" in failed["detail"]
    finally:
        server.end()
