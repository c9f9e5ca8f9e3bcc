import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from perdure.datasets import cache_room
from perdure.datasets.cache_room import (
    Pin,
    being_built,
    building_folder,
    evict,
    make_room,
    on_disk,
    pin,
    pinned_folder,
    publish,
)

DEADLINE_S = 60
ENTRY_BYTES = 10_000
TAKEN_BYTES = 12_288  # three blocks of 4096 bytes


def an_entry(root: Path, name: str, *, used: int | None = None) -> Path:
    """An entry of one file; last used at the second `used`, when it has ever been."""
    entry = root / name
    entry.mkdir()
    (entry / "file").write_bytes(b"x" * ENTRY_BYTES)
    if used is not None:
        (entry / "in-use").touch()
        os.utime(entry / "in-use", (used, used))
    return entry


def names_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def another_process(code: str, *arguments: Path) -> subprocess.Popen:
    """A process that runs `code` with the arguments as Paths `a`, `b`; it lives until killed."""
    before = (
        "import os, sys; from pathlib import Path; from perdure.datasets.cache_room import *; "
        "from perdure.datasets import cache_room; a, *b = map(Path, sys.argv[1:])\n"
    )
    after = "\nprint('ready', flush=True); sys.stdin.read()"
    return subprocess.Popen(
        [sys.executable, "-c", before + code + after, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def ready(process: subprocess.Popen) -> None:
    assert process.stdout.readline() == b"ready\n"


def killed(process: subprocess.Popen) -> None:
    process.kill()
    process.wait(DEADLINE_S)


class Waiting(Exception):
    pass


def give_up() -> None:
    raise Waiting


def test_files_take_up_whole_blocks():
    assert [on_disk(size) for size in (0, 1, 4096, 4097)] == [0, 4096, 4096, 8192]


def test_what_was_used_least_recently_goes_first(tmp_path):
    for name, used in (("b", 200), ("a", 300), ("c", 100), ("d", 400)):
        an_entry(tmp_path, name, used=used)

    assert make_room(tmp_path, 3 * TAKEN_BYTES, TAKEN_BYTES)

    assert names_in(tmp_path) == ["a", "d"]


def test_using_an_entry_and_letting_it_go_both_count_as_use(tmp_path):
    a, b, c = (an_entry(tmp_path, name, used=used) for name, used in (("a", 1), ("b", 2), ("c", 3)))
    pinned = pin(a)
    os.utime(a / "in-use", (1, 1))  # a long use
    pinned.release()
    still_pinned = pin(b)

    assert (a / "in-use").stat().st_mtime > 3
    assert (b / "in-use").stat().st_mtime > 3
    assert make_room(tmp_path, 2 * TAKEN_BYTES)
    assert names_in(tmp_path) == ["a", "b"]
    assert not c.exists()
    still_pinned.release()


def test_nothing_goes_while_all_fits(tmp_path):
    an_entry(tmp_path, "a", used=1)
    assert make_room(tmp_path, 2 * TAKEN_BYTES, TAKEN_BYTES)
    assert names_in(tmp_path) == ["a"]


def test_nothing_goes_for_what_can_never_fit(tmp_path):
    an_entry(tmp_path, "a", used=1)
    assert not make_room(tmp_path, 2 * TAKEN_BYTES, 3 * TAKEN_BYTES)
    assert names_in(tmp_path) == ["a"]


def test_what_the_disk_has_not_got_does_not_fit(tmp_path):
    assert not make_room(tmp_path, 1 << 60, 1 << 59)


def test_a_pinned_entry_stays_though_it_is_the_oldest(tmp_path):
    old, new = an_entry(tmp_path, "old", used=1), an_entry(tmp_path, "new", used=2)
    first, second = pin(old), pin(old)
    os.utime(old / "in-use", (1, 1))
    first.release()

    assert make_room(tmp_path, TAKEN_BYTES)
    assert names_in(tmp_path) == ["old"]
    assert not new.exists()
    second.release()
    second.release()
    assert make_room(tmp_path, 0)
    assert names_in(tmp_path) == []


def test_a_pin_that_nobody_holds_any_more_keeps_nothing(tmp_path):
    entry = an_entry(tmp_path, "a")
    pinned: Pin | None = pin(entry)
    assert not evict(entry)
    del pinned
    assert evict(entry)


def test_there_is_nothing_to_pin_where_there_is_no_entry(tmp_path):
    (tmp_path / "file").write_text("")
    assert pin(tmp_path / "a") is None
    assert pin(tmp_path / "file") is None


@pytest.mark.crash
def test_an_entry_is_in_use_until_its_process_and_its_forks_are_dead(tmp_path):
    entry = an_entry(tmp_path, "a", used=1)
    fork = "p = pin(a)\nif fork := os.fork(): print(fork, flush=True)\nelse: sys.stdin.read()"
    process = another_process(fork, entry)
    forked = int(process.stdout.readline())
    ready(process)
    try:
        assert not make_room(tmp_path, 0)
        killed(process)
        assert not make_room(tmp_path, 0)
    finally:
        killed(process)
        os.kill(forked, signal.SIGKILL)
    assert process.stdout.read() == b""  # the end of its last copy: the fork is dead

    assert make_room(tmp_path, 0)
    assert names_in(tmp_path) == []


@pytest.mark.crash
def test_what_is_being_built_stays_until_its_builder_is_killed(tmp_path):
    target = tmp_path / "a"
    building = building_folder(target)
    build = "p = pinned_folder(a); (a / 'file').write_bytes(bytes(10_000))"
    process = another_process(build, building)
    try:
        ready(process)
        assert not make_room(tmp_path, 0)
        assert building.is_dir()
    finally:
        killed(process)

    assert make_room(tmp_path, 0)
    assert names_in(tmp_path) == []


def test_room_that_one_builder_was_promised_is_not_promised_to_another(tmp_path):
    first, second = (building_folder(tmp_path / name) for name in "ab")
    pins = [pinned_folder(first), pinned_folder(second)]
    limit_bytes = 3 * TAKEN_BYTES

    assert make_room(tmp_path, limit_bytes, 2 * TAKEN_BYTES, building=first)
    assert not make_room(tmp_path, limit_bytes, 2 * TAKEN_BYTES, building=second)
    assert make_room(tmp_path, limit_bytes, TAKEN_BYTES, building=second)

    (first / "file").write_bytes(b"x" * ENTRY_BYTES)  # part of the promise, not more
    assert make_room(tmp_path, limit_bytes, TAKEN_BYTES, building=second)
    assert len(pins) == 2


def test_an_entry_appears_whole_pinned_and_without_its_reservation(tmp_path):
    target = tmp_path / "a"
    building = building_folder(target)
    pinned = pinned_folder(building)
    with being_built(target, lambda: None):
        make_room(tmp_path, 2 * TAKEN_BYTES, TAKEN_BYTES, building=building)
        (building / "file").write_bytes(b"x" * ENTRY_BYTES)
        assert pin(target) is None
        publish(building, target)

    assert names_in(tmp_path) == ["a"]
    assert names_in(target) == ["file", "in-use"]
    assert not evict(target)
    pinned.release()
    assert evict(target)


def test_one_at_a_time_builds_and_the_others_say_that_they_wait(tmp_path):
    target = tmp_path / "a"
    entered, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def build() -> None:
        with being_built(target, lambda: None):
            entered.set()
            assert go_on.wait(DEADLINE_S)
            order.append("first")

    first = threading.Thread(target=build)
    first.start()
    assert entered.wait(DEADLINE_S)
    with being_built(target, go_on.set):
        order.append("second")
    first.join(DEADLINE_S)

    assert order == ["first", "second"]
    assert names_in(tmp_path) == []  # lock files are cleared away


@pytest.mark.crash
def test_the_lock_of_a_killed_builder_is_free(tmp_path):
    process = another_process("c = being_built(a, lambda: None); c.__enter__()", tmp_path / "a")
    try:
        ready(process)
        with pytest.raises(Waiting), being_built(tmp_path / "a", give_up):
            pass
    finally:
        killed(process)

    with being_built(tmp_path / "a", lambda: pytest.fail("still held")):
        pass


@pytest.mark.crash
def test_what_a_killed_process_was_evicting_is_removed(tmp_path):
    entry = an_entry(tmp_path, "a", used=1)
    die = "import shutil; shutil.rmtree = lambda *_, **__: os.kill(os.getpid(), 9)\nevict(a)"
    assert another_process(die, entry).wait(DEADLINE_S) == -9
    (left,) = names_in(tmp_path)
    assert left.endswith(".evicted")

    assert make_room(tmp_path, TAKEN_BYTES)

    assert names_in(tmp_path) == []


def test_an_entry_that_is_evicted_while_it_is_pinned_is_not_taken_for_its_successor(
    tmp_path, monkeypatch
):
    entry = an_entry(tmp_path, "a", used=1)
    opened = cache_room._opened
    evicted = []

    def opened_too_late(folder: Path) -> int | None:
        descriptor = opened(folder)
        if not evicted:
            evicted.append(evict)  # first: it opens the file, too
            assert evict(entry)
            an_entry(tmp_path, "a", used=1)
        return descriptor

    monkeypatch.setattr(cache_room, "_opened", opened_too_late)
    pinned = pin(entry)
    assert pinned is not None
    assert not evict(entry)
