"""The proxy of the stack: each fault is what it says, seen from plain sockets on both ends."""

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from infra.stack.proxy import Direction, Proxy

ANSWER_S = 5.0
SILENCE_S = 0.3  # how long nothing has to come before we say that nothing comes
HOST = "127.0.0.1"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as server:
        server.settimeout(ANSWER_S)
        yield server


@pytest.fixture
def proxy(listener: socket.socket) -> Iterator[Proxy]:
    with Proxy(listener.getsockname()[1]) as running:
        yield running


@pytest.fixture
def ends(proxy: Proxy, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client and a server that speak through the proxy."""
    with contextlib.closing(dialled(proxy)) as client:
        server, _ = listener.accept()
        with server:
            server.settimeout(ANSWER_S)
            client.sendall(b"hello")
            assert server.recv(100) == b"hello"
            yield client, server


Ends = tuple[socket.socket, socket.socket]


def dialled(proxy: Proxy) -> socket.socket:
    return socket.create_connection((HOST, proxy.port), timeout=ANSWER_S)


def silent(end: socket.socket) -> bool:
    """Whether neither bytes nor an end nor a reset come."""
    end.settimeout(SILENCE_S)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(ANSWER_S)
    return False


def accepts(listener: socket.socket) -> bool:
    """Whether a connection comes."""
    listener.settimeout(SILENCE_S)
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    finally:
        listener.settimeout(ANSWER_S)
    return True


def reset(end: socket.socket) -> None:
    """Close it so that the other side gets a reset (no lingering)."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


def read_to_end(end: socket.socket) -> bytes:
    return b"".join(iter(lambda: end.recv(65_536), b""))


def sent_until_nothing_goes(end: socket.socket) -> int:
    """The bytes that went before the buffers on the way were full."""
    end.settimeout(SILENCE_S)
    sent = 0
    with contextlib.suppress(TimeoutError):
        while sent < 1 << 30:
            sent += end.send(b"x" * 65_536)
    end.settimeout(ANSWER_S)
    return sent


def assert_reset(proxy: Proxy) -> None:
    """A new connection is reset, when it is made or soon after."""
    with pytest.raises(ConnectionResetError), dialled(proxy) as client:
        client.recv(1)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ANSWER_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_bytes_and_ends_pass_both_ways(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    assert proxy.connections == 1
    question, answer = b"q" * 1_000_000, b"a" * 2_000_000

    client.sendall(question)
    client.shutdown(socket.SHUT_WR)
    assert read_to_end(server) == question
    server.sendall(answer)  # though the client has said its last
    server.close()
    assert read_to_end(client) == answer
    until(lambda: proxy.connections == 0)


def test_a_slow_reader_gets_all_that_was_sent_before_the_end(ends: Ends) -> None:
    client, server = ends
    answer = b"a" * 12_000_000  # more than all buffers on the way hold
    client.shutdown(socket.SHUT_WR)

    def send() -> None:
        server.sendall(answer)
        server.close()

    sender = threading.Thread(target=send)
    sender.start()
    received = 0
    while data := client.recv(65_536):
        received += len(data)
        time.sleep(0.001)  # slower than the sender
    sender.join(ANSWER_S)
    assert received == len(answer)


def test_a_reset_of_one_end_reaches_the_other(ends: Ends) -> None:
    client, server = ends
    reset(server)
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_cut_resets_what_is_there_and_carries_what_comes(
    ends: Ends, proxy: Proxy, listener: socket.socket
) -> None:
    proxy.cut()

    for end in ends:
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with dialled(proxy) as client, listener.accept()[0] as server:
        client.sendall(b"again")
        assert server.recv(100) == b"again"


def test_refuse_takes_no_new_connection_and_keeps_the_old_ones(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        dialled(proxy)
    server.sendall(b"still here")
    assert client.recv(100) == b"still here"
    proxy.restore()
    dialled(proxy).close()


def test_a_black_hole_says_nothing_and_afterwards_all_goes_on(
    ends: Ends, proxy: Proxy, listener: socket.socket
) -> None:
    client, server = ends
    proxy.black_hole()
    client.sendall(b"question")
    server.sendall(b"answer")
    server.shutdown(socket.SHUT_WR)
    with dialled(proxy) as late:  # accepted
        late.sendall(b"late")
        for end in (client, server, late):
            assert silent(end)
        assert not accepts(listener)

        proxy.restore()
        assert server.recv(100) == b"question"
        assert read_to_end(client) == b"answer"
        with listener.accept()[0] as peer:
            assert peer.recv(100) == b"late"


def test_nobody_learns_through_a_black_hole_that_the_other_end_is_gone(
    ends: Ends, proxy: Proxy
) -> None:
    client, server = ends
    proxy.black_hole()
    reset(server)

    client.sendall(b"is there anybody?")
    assert silent(client)
    proxy.restore()
    with pytest.raises(ConnectionResetError):
        client.recv(1)


def test_a_black_hole_takes_only_what_the_buffers_hold(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.black_hole()
    sent = sent_until_nothing_goes(client)
    assert sent < 1 << 26

    proxy.restore()
    client.shutdown(socket.SHUT_WR)
    assert len(read_to_end(server)) == sent


@pytest.mark.parametrize("dead", list(Direction))
def test_half_open_is_dead_in_one_direction_only(ends: Ends, proxy: Proxy, dead: Direction) -> None:
    client, server = ends
    mute, speaking = (client, server) if dead is Direction.TO_SERVER else (server, client)
    proxy.half_open(dead)

    mute.sendall(b"unheard")
    speaking.sendall(b"heard")
    assert mute.recv(100) == b"heard"
    assert silent(speaking)
    proxy.restore()
    assert speaking.recv(100) == b"unheard"


def test_a_half_open_link_does_not_tell_that_the_other_end_is_gone(
    ends: Ends, proxy: Proxy
) -> None:
    client, server = ends
    proxy.half_open(Direction.TO_CLIENT)
    reset(server)

    for _ in range(3):  # what is sent to a socket that is gone is answered with a reset
        client.sendall(b"is there anybody?")
        assert silent(client)


def test_a_delayed_link_is_late_in_each_direction_and_no_slower(ends: Ends, proxy: Proxy) -> None:
    client, server = ends
    proxy.delay(0.2)
    started = time.monotonic()
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    assert 0.4 <= time.monotonic() - started < 2.0

    started = time.monotonic()
    data = bytes(range(256)) * 20_000  # 80 chunks: one after the other they would take 16 s
    client.sendall(data)
    client.shutdown(socket.SHUT_WR)
    assert read_to_end(server) == data
    assert 0.2 <= time.monotonic() - started < 4.0

    proxy.restore()
    started = time.monotonic()
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    assert time.monotonic() - started < 0.2


def test_without_a_target_a_connection_is_reset_and_the_target_may_come_later(
    listener: socket.socket,
) -> None:
    with Proxy() as proxy:
        assert_reset(proxy)
        proxy.target = listener.getsockname()[1]
        with dialled(proxy) as client, listener.accept()[0] as server:
            server.sendall(b"here")
            assert client.recv(100) == b"here"


def test_a_server_that_does_not_listen_is_a_reset(proxy: Proxy, listener: socket.socket) -> None:
    listener.close()
    assert_reset(proxy)


def test_stop_gives_the_port_free(listener: socket.socket) -> None:
    proxy = Proxy(listener.getsockname()[1])
    proxy.start()
    with dialled(proxy) as client:
        proxy.stop()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((HOST, proxy.port))
    proxy.stop()


async def test_it_may_be_steered_from_within_an_event_loop(ends: Ends, proxy: Proxy) -> None:
    proxy.black_hole()
    assert silent(ends[0])
    proxy.restore()
