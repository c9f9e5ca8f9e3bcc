"""A log on its way to the store: in pieces, in order, bounded."""

import asyncio
import threading
from pathlib import Path

import pytest

from perdure.artifacts.folder import FolderStore
from perdure.artifacts.port import StoredObject
from perdure.attempts import spool
from perdure.attempts.spool import Spool
from perdure.errors import StoreUnavailable


def stored(store: FolderStore) -> bytes:
    return b"".join(store.get_bytes(piece.key) for piece in store.list("logs/t/"))


async def test_pieces_in_the_order_of_their_keys_are_the_text(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    log = Spool(store, "logs/t", "log")
    for text in (b"one\n", b"two\n", b"three\n"):
        log.write(text)
        await log._flush()
    await log.close()
    assert stored(store) == b"one\ntwo\nthree\n"
    assert [o.key for o in store.list("logs/t/")] == [
        "logs/t/000000000000.log",
        "logs/t/000000000004.log",
        "logs/t/000000000008.log",
    ]


async def test_a_long_log_keeps_its_start_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "MAX_HEAD_BYTES", 10)
    monkeypatch.setattr(spool, "MAX_TAIL_BYTES", 6)
    store = FolderStore(tmp_path)
    log = Spool(store, "logs/t", "log")
    for number in range(100):
        log.write(b"%03d " % number)
    await log.close()
    text = stored(store)
    assert text.startswith(b"000 001 00")
    assert text.endswith(b"098 099 ")
    assert b"bytes left out]" in text
    assert len(text) < 60


async def test_a_piece_that_is_slow_to_store_does_not_overwrite_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "FLUSH_EVERY_S", 0.01)
    store = FolderStore(tmp_path)
    put, entered, release = store.put_bytes, threading.Event(), threading.Event()

    def slow_at_first(key: str, data: bytes) -> StoredObject:
        if not entered.is_set():
            entered.set()
            assert release.wait(10)
        return put(key, data)

    monkeypatch.setattr(store, "put_bytes", slow_at_first)
    log = Spool(store, "logs/t", "log")
    log.start()
    log.write(b"first\n")
    assert await asyncio.to_thread(entered.wait, 10)
    log.write(b"the error at the end\n")
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0)
    release.set()
    await asyncio.wait_for(closing, 10)
    assert stored(store) == b"first\nthe error at the end\n"


async def test_text_waits_while_the_store_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderStore(tmp_path)
    log = Spool(store, "logs/t", "log")

    def away(key: str, data: bytes) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put_bytes", away)
        log.write(b"one\n")
        assert await log._flush() is False
    log.write(b"two\n")
    await log.close()
    assert stored(store) == b"one\ntwo\n"
