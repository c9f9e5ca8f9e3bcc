"""What a task came to, over HTTP: a result, a wait, a failure, or the findings of its data set."""

import json
from dataclasses import asdict
from pathlib import Path

import httpx
import pytest

from perdure.client import Client
from perdure.contracts.v1 import events_pb2
from perdure.datasets.check import check
from perdure.domain.dataset import rejected_stream
from perdure.errors import DamagedObject, NotFound
from perdure_gateway.results import MAX_FINDINGS
from tests.builders.datasets import ROW, picture, write_files
from tests.builders.gateway import VERSION, ServerThread, assigned, prepared

FAULTS = MAX_FINDINGS + 5


def submitted(client: Client, folder: Path) -> str:
    files = {"images/0.jpg": picture(0), "labels/0.txt": ROW, "classes.txt": "bird"}
    upload = client.upload(write_files(folder, files))
    return client.submit(goal="dataset", name="birds", upload=upload).id


def failed(server: ServerThread, task_id: str, failure: str, detail: str) -> None:
    """Let the task's attempt and then the task fail, as the scheduler records it."""
    events = (
        assigned(),
        events_pb2.AttemptFailed(fence=1, failure=failure, detail=detail),
        events_pb2.TaskFailed(failure=failure, detail=detail),
    )
    server.run(server.world.append(f"task-{task_id}", *events))


def refused(server: ServerThread, task_id: str, folder: Path) -> None:
    """Let the data set of a task be refused for more faults than an answer lists."""
    rows = "".join(f"{number + 1} 0.5 0.5 0.1 0.1\n" for number in range(FAULTS))
    files = {"images/0.jpg": picture(0), "labels/0.txt": rows, "classes.txt": "bird"}
    files |= {"images/1.jpg": picture(1), "labels/1.txt": ROW}
    result = check(write_files(folder, files))
    stored = server.world.store.put_bytes(
        "datasets/findings/x.json", "".join(result.json_text()).encode()
    )
    facts = events_pb2.DatasetRejected(
        name="birds", errors=result.errors, findings=events_pb2.Blob(**asdict(stored))
    )
    server.run(server.world.append(rejected_stream(task_id), facts))
    failed(server, task_id, "dataset_invalid", "1005 errors")


def test_a_refused_data_set_answers_with_its_first_findings(server, client, perdure, tmp_path):
    task_id = submitted(client, tmp_path / "sent")
    refused(server, task_id, tmp_path / "bad")

    answer = httpx.get(f"{server.url}/v1/tasks/{task_id}/result")
    assert answer.status_code == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    body = answer.json()
    assert (body["type"], body["status"]) == ("urn:perdure:problem:dataset.invalid", 422)
    assert f"perdure dataset findings {task_id}" in body["detail"]
    assert body["counts"]["errors"] == FAULTS
    assert len(body["findings"]) == MAX_FINDINGS
    assert body["findings"][2] == {
        "code": "label.class-out-of-range",
        "severity": "error",
        "file": "labels/0.txt",
        "line": 3,
        "pointer": None,
        "value": "3",
    } | {name: body["findings"][2][name] for name in ("problem", "rule", "advice")}

    whole = httpx.get(server.url + body["findings_url"])
    assert whole.headers["Content-Type"].startswith("application/json")
    assert len(json.loads(whole.content)["findings"]) == FAULTS
    assert [found["line"] for found in client.findings(task_id)] == list(range(1, FAULTS + 1))

    ran = perdure("dataset", "findings", task_id[:8])
    assert ran.code == 0
    assert ran.out.startswith(f"error label.class-out-of-range ({FAULTS}):")
    assert ran.out.endswith(f"{FAULTS} errors\n")
    as_json = perdure("dataset", "findings", task_id, "--json").json
    assert as_json == {"task_id": task_id} | json.loads(whole.content)


def test_who_waits_for_a_refused_data_set_is_told_all_kinds_of_findings(
    server, client, perdure, tmp_path
):
    task_id = submitted(client, tmp_path / "sent")
    refused(server, task_id, tmp_path / "bad")
    ran = perdure("task", "watch", task_id)
    assert ran.code == 1
    lines = ran.err.splitlines()
    assert f"error label.class-out-of-range ({FAULTS}):" in ran.err
    assert f"and {FAULTS - 10} more (all of them: perdure dataset findings {task_id}" in ran.err
    assert f"{FAULTS} errors" in lines
    assert lines[-1] == f"its log: perdure task logs {task_id}"


def test_findings_that_are_damaged_do_not_hide_the_failure(server, client, perdure, tmp_path):
    task_id = submitted(client, tmp_path / "sent")
    refused(server, task_id, tmp_path / "bad")
    server.world.store.put_bytes("datasets/findings/x.json", b"{")
    ran = perdure("task", "watch", task_id)
    assert ran.code == 1
    assert "dataset_invalid" in ran.err
    assert "its findings could not be fetched" in ran.err


def test_a_task_that_runs_or_failed_otherwise_has_no_result(server, client, tmp_path):
    task_id = submitted(client, tmp_path / "sent")
    url = f"{server.url}/v1/tasks/{task_id}/result"
    running = httpx.get(url)
    assert (running.status_code, running.json()["code"]) == (409, "conflict")
    assert int(running.headers["Retry-After"]) > 0
    with pytest.raises(NotFound, match="not checked yet"):
        list(client.findings(task_id))

    failed(server, task_id, "disk_full", "the disk of the node is full")
    ended = httpx.get(url)
    assert (ended.status_code, ended.json()["code"]) == (409, "task.failed")
    assert "the disk of the node is full" in ended.json()["detail"]
    assert httpx.get(f"{server.url}/v1/tasks/nothing/result").status_code == 404


def test_a_result_names_what_was_made(server, client, tmp_path):
    task_id = submitted(client, tmp_path / "sent")
    done = events_pb2.TaskSucceeded(dataset_version=VERSION)
    server.run(server.world.append(f"task-{task_id}", assigned(), prepared(), done))
    answer = httpx.get(f"{server.url}/v1/tasks/{task_id}/result")
    assert (answer.status_code, answer.json()["dataset_version"]) == (200, VERSION)


@pytest.mark.parametrize("text", [b"", b"{", b"[]\n", b'{"counts": {}, "findings": [\n{"a": \n'])
def test_damaged_findings_are_said_to_be_so(server, client, tmp_path, text):
    task_id = submitted(client, tmp_path / "sent")
    refused(server, task_id, tmp_path / "bad")
    server.world.store.put_bytes("datasets/findings/x.json", text)
    answer = httpx.get(f"{server.url}/v1/tasks/{task_id}/result")
    assert (answer.status_code, answer.json()["code"]) == (500, DamagedObject.code)


@pytest.mark.parametrize("change", ["a row is gone", "a digit is another", "it is cut off"])
def test_findings_that_are_others_than_were_stored_are_seen(server, client, tmp_path, change):
    """Bytes that changed behind the store's back, and still read as findings where they can."""
    task_id = submitted(client, tmp_path / "sent")
    refused(server, task_id, tmp_path / "bad")
    text = server.world.store.get_bytes("datasets/findings/x.json")
    (path,) = (
        path
        for path in (server.world.root / "store/data").rglob("*")
        if path.is_file() and path.read_bytes() == text
    )
    rows = text.splitlines(keepends=True)
    changed = {
        "a row is gone": b"".join(rows[:1] + rows[2:]),
        "a digit is another": text.replace(b'"line": 7,', b'"line": 8,'),
        "it is cut off": text[:1000],
    }[change]
    assert changed != text
    path.chmod(0o644)
    path.write_bytes(changed)
    with pytest.raises(DamagedObject, match="push the data set again"):
        list(client.findings(task_id))
