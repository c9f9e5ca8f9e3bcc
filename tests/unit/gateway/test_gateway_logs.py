import asyncio

from perdure_gateway.logs import read_log, whole_characters
from tests.builders.gateway import VERSION

TITLE_1 = "==> attempt 1: prepare <==\n"
TITLE_2 = "==> attempt 2: train <==\n"


def put(world, task_id, fence, stage, offset, text: bytes):
    world.store.put_bytes(f"logs/{task_id}/{fence:04d}-{stage}/{offset:012d}.log", text)


async def submitted(world, http) -> str:
    await world.import_dataset()
    body = {"goal": "model", "name": "birds", "data": {"dataset_version": VERSION}}
    async with asyncio.timeout(5):
        while (response := await http.post("/v1/tasks", json=body)).status_code != 201:
            await asyncio.sleep(0.01)
    return response.json()["id"]


async def test_logs_of_all_attempts_are_one_text_that_can_be_followed(world, http):
    task_id = await submitted(world, http)
    url = f"/v1/tasks/{task_id}/logs"
    empty = await http.get(url)
    assert (empty.text, empty.headers["perdure-next-offset"]) == ("", "0")
    put(world, task_id, 1, "prepare", 0, b"one\n")
    put(world, task_id, 1, "prepare", 4, b"two\n")
    first = await http.get(url)
    assert first.text == TITLE_1 + "one\ntwo\n"
    put(world, task_id, 2, "train", 0, b"three\n")
    rest = await http.get(url, params={"offset": first.headers["perdure-next-offset"]})
    assert rest.text == TITLE_2 + "three\n"
    beyond = await http.get(url, params={"offset": 10_000})
    assert (beyond.text, beyond.headers["perdure-next-offset"]) == ("", "10000")


def test_any_way_to_cut_a_log_gives_the_same_text(world):
    whole = "Zaunkönig 🐦 wren\n".encode() * 3
    put(world, "t", 1, "train", 0, whole[:17])
    put(world, "t", 1, "train", 17, whole[17:])
    expected = b"==> attempt 1: train <==\n" + whole
    for limit in (4, 5, 7, 16, 1000):
        read = b""
        while piece := read_log(world.store, "t", len(read), limit):
            piece.decode()
            assert len(piece) <= limit
            read += piece
        assert read == expected


def test_logs_of_other_tasks_stay_out(world):
    put(world, "t1", 1, "train", 0, b"mine\n")
    put(world, "t10", 1, "train", 0, b"not mine\n")
    assert read_log(world.store, "t1", 0, 1000).endswith(b"mine\n")
    assert b"not mine" not in read_log(world.store, "t1", 0, 1000)


def test_only_a_character_that_is_cut_off_is_held_back():
    bird = "🐦".encode()
    assert whole_characters(b"a" + bird) == b"a" + bird
    assert whole_characters(b"a" + bird[:3]) == b"a"
    assert whole_characters(b"a" + bird[:1]) == b"a"
    assert whole_characters(b"abc") == b"abc"
    assert whole_characters(b"\x80\x80\x80\x80\x80") == b"\x80" * 5
