"""A URL of somebody else leads nowhere but to an allowed host at a public address."""

import socket
import ssl
import threading
import time
from ipaddress import ip_address

import pytest

from perdure.artifacts import guarded_http
from perdure.artifacts.guarded_http import FetchLimits, fetch_zip
from perdure.artifacts.public_addresses import is_public
from perdure.errors import InvalidInput, Unavailable
from tests.builders.archives import Entry, archive_of
from tests.builders.https_server import HOST, PUBLIC, certificate, give, https_server, redirect

ZIP = archive_of(Entry(b"a.txt", b"abc"))
URL = f"https://{HOST}/set.zip"
ALLOWED = frozenset({HOST})

REFUSED = [
    "127.0.0.1",
    "127.255.255.254",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",  # metadata of Alibaba Cloud
    "168.63.129.16",  # of Azure
    "169.254.169.254",  # of AWS, Google Cloud, Azure and others
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",  # of Oracle Cloud
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",  # IPv4 in its oldest form
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",  # IPv4-mapped, of whatever address
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",  # NAT64 to 127.0.0.1
    "64:ff9b::a9fe:a9fe",  # to 169.254.169.254
    "64:ff9b:1::808:808",  # NAT64 of a local network
    "100::1",
    "2001::1",  # Teredo
    "2001:db8::1",
    "2002:7f00:1::1",  # 6to4 to 127.0.0.1
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of AWS
    "fd20:ce::254",  # of Google Cloud
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "",
]
PUBLIC_ONES = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.0",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001::200e",
    "2001:4860:4860::8888",
    "64:ff9b::808:808",  # NAT64 to 8.8.8.8, as networks without IPv4 have it
]


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def server(keys):
    with https_server(*keys) as running:
        running.behave = give(ZIP)
        yield running


@pytest.fixture
def fetch(server, tmp_path):
    def run(url: str = URL, allowed: frozenset[str] = ALLOWED, **options) -> bytes:
        ports = {"resolve": server.resolve, "connect": server.connect, "tls": server.tls}
        fetch_zip(url, tmp_path / "got.zip", allowed, **(ports | options))
        return (tmp_path / "got.zip").read_bytes()

    yield run
    left = {path.name for path in tmp_path.iterdir()}
    assert left <= {"got.zip"}  # and nothing half-written


@pytest.mark.parametrize("address", REFUSED)
def test_addresses_that_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC_ONES)
def test_addresses_that_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize("address", REFUSED[: REFUSED.index("::")])
def test_no_form_of_ipv6_hides_an_address(address):
    number = int(ip_address(address))
    hexadecimal = f"{number >> 16:x}:{number & 0xFFFF:x}"
    for form in ("::{}", "::ffff:{}", "64:ff9b::{}", "2002:{}::", "fe80::5efe:{}"):
        assert not is_public(form.format(hexadecimal))


def test_a_zip_is_fetched_from_an_allowed_host(fetch, server, monkeypatch):
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody is there
    seen = []

    assert fetch(URL + "?sign=a%20b#part", progress=lambda *counts: seen.append(counts)) == ZIP

    assert server.reached == [(PUBLIC, 443)]
    ((method, path, headers),) = server.requests
    assert (method, path) == ("GET", "/set.zip?sign=a%20b")
    assert headers["Host"] == HOST
    assert not {"Authorization", "Cookie"} & headers.keys()
    assert seen[-1] == (len(ZIP), len(ZIP))


def test_the_judged_address_is_the_one_that_is_connected_to(fetch, server):
    """DNS rebinding: a name whose second answer would be this machine."""
    answers = [[PUBLIC], ["127.0.0.1"]]
    fetch(resolve=lambda host, port: answers.pop(0))

    assert answers == [["127.0.0.1"]]  # it was asked once
    assert server.reached == [(PUBLIC, 443)]


def test_the_connection_is_made_to_numbers_and_without_a_second_look(monkeypatch, tmp_path):
    """The real connector: what it gives to the system is the numeric address."""
    given = []

    def stand_in(place, timeout):
        given.append(place)
        raise ConnectionRefusedError(111, "refused")

    monkeypatch.setattr(socket, "create_connection", stand_in)
    with pytest.raises(Unavailable, match="does not answer"):
        fetch_zip(URL, tmp_path / "x", ALLOWED, resolve=lambda host, port: [PUBLIC, "1.1.1.1"])
    assert given == [(PUBLIC, 443), ("1.1.1.1", 443)]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "::ffff:10.0.0.1"])
def test_one_address_that_is_not_public_refuses_the_host(fetch, server, address):
    for found in ([address], [PUBLIC, address]):
        server.addresses[HOST] = found
        with pytest.raises(InvalidInput, match="public addresses only") as caught:
            fetch()
        assert address in caught.value.message
    assert server.reached == []


def test_a_host_without_addresses_is_refused(fetch, server):
    server.addresses[HOST] = []
    with pytest.raises(InvalidInput, match="no address"):
        fetch()


def test_a_host_that_cannot_be_found_may_be_there_later(fetch):
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(Unavailable, match="cannot be found"):
        fetch(resolve=resolve)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://other.example.org/set.zip", "nothing is fetched from other.example.org"),
        (f"https://{HOST}:8443/set.zip", f"nothing is fetched from {HOST}:8443"),
        (f"https://sub.{HOST}/set.zip", "nothing is fetched from sub."),
        (f"https://{HOST}.evil.org/set.zip", "nothing is fetched from data.example.org.evil.org"),
        ("https://127.0.0.1/set.zip", "nothing is fetched from 127.0.0.1"),
        ("https://2130706433/set.zip", "nothing is fetched from 2130706433"),
        ("https://[::1]/set.zip", "the host of"),
        (f"https://{HOST}@evil.org/set.zip", "the host of https://evil.org/set.zip is refused"),
        (f"https://me:hunter2@{HOST}/set.zip", "the host of"),
        (f"https://{HOST}:0/set.zip", "the host of"),
        (f"https://{HOST}:99999/set.zip", "must be https"),
        (f"https://evil.org\\@{HOST}/set.zip", "must be https"),
        (f"http://{HOST}/set.zip", "must be https"),
        ("file:///etc/passwd", "must be https"),
        (f"https://{HOST}/a b.zip", "must be https"),
        (f"https://{HOST}/a\r\nHost: evil.org", "must be https"),
        (f"https://{HOST}/\u00e9.zip", "must be https"),
        ("https://d\u0430ta.example.org/set.zip", "must be https"),  # a Cyrillic letter
        ("https://" + "x" * 4096, "must be https"),
        ("https:///set.zip", "must be https"),
        ("", "must be https"),
    ],
)
def test_other_urls_are_refused_before_anything_is_asked(fetch, server, url, told):
    with pytest.raises(InvalidInput) as caught:
        fetch(url)
    assert told in caught.value.message
    assert "hunter2" not in caught.value.message
    assert (server.asked, server.reached) == ([], [])


def test_without_a_list_nothing_is_fetched(fetch, server):
    with pytest.raises(InvalidInput, match="add it to PERDURE_SOURCE_HOSTS"):
        fetch(allowed=frozenset())
    assert server.asked == []


def test_a_port_of_its_own_must_be_allowed(fetch, server):
    assert fetch(f"https://{HOST}:8443/x", frozenset({f"{HOST}:8443"})) == ZIP
    assert server.reached == [(PUBLIC, 8443)]
    assert server.requests[0][2]["Host"] == f"{HOST}:8443"


def test_redirects_within_what_is_allowed_are_followed(fetch, server):
    server.addresses["mirror.example.org"] = ["1.1.1.1"]
    server.tls.check_hostname = False  # one certificate stands for both hosts
    follow = redirect("other.zip", "https://mirror.example.org/x.zip?sign=1")
    server.behave = lambda handler: (give(ZIP) if len(server.requests) > 2 else follow)(handler)

    assert fetch(allowed=ALLOWED | {"mirror.example.org"}) == ZIP

    assert [path for _, path, _ in server.requests] == ["/set.zip", "/other.zip", "/x.zip?sign=1"]
    assert server.asked == [HOST, HOST, "mirror.example.org"]
    assert server.reached == [(PUBLIC, 443), (PUBLIC, 443), ("1.1.1.1", 443)]


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("https://elsewhere.example.org/x.zip", "nothing is fetched from elsewhere.example.org"),
        (f"http://{HOST}/x.zip", "must be https"),
        ("https://127.0.0.1/x.zip", "nothing is fetched from 127.0.0.1"),
        ("//169.254.169.254/latest/meta-data", "nothing is fetched from 169.254.169.254"),
        ("file:///etc/passwd", "must be https"),
        ("gopher://127.0.0.1:6379/_INFO", "must be https"),
        (f"https://{HOST}/again", "more than 5 redirects"),
        ("https://inside.example.org/x", "has the address 10.0.0.7"),
    ],
)
def test_every_redirect_is_judged(fetch, server, location, told):
    server.addresses["inside.example.org"] = ["10.0.0.7"]
    server.behave = redirect(location)
    with pytest.raises(InvalidInput) as caught:
        fetch(allowed=ALLOWED | {"inside.example.org"})
    assert told in caught.value.message
    assert {address for address, _ in server.reached} == {PUBLIC}


def test_a_redirect_is_resolved_anew_and_judged_anew(fetch, server):
    """The same host, which has turned into this machine by the second request."""
    answers = [[PUBLIC], ["127.0.0.1"]]
    server.behave = redirect("/again")
    with pytest.raises(InvalidInput, match=r"has the address 127\.0\.0\.1"):
        fetch(resolve=lambda host, port: answers.pop(0))
    assert len(server.requests) == 1


@pytest.mark.parametrize("tls", [ssl.create_default_context, None])
def test_a_certificate_that_nobody_vouches_for_is_refused(fetch, server, tls):
    with pytest.raises(Unavailable, match="certificate verify failed"):
        fetch(tls=tls and tls())
    assert server.requests == []


def test_the_certificate_must_be_the_hosts(fetch, server):
    server.addresses["other.example.org"] = [PUBLIC]
    with pytest.raises(Unavailable, match="Hostname mismatch"):
        fetch("https://other.example.org/x", frozenset({"other.example.org"}))
    assert server.requests == []


@pytest.mark.parametrize(
    ("behave", "error", "told"),
    [
        (give(b"<html>sign in</html>"), InvalidInput, "is no zip archive"),
        (give(b""), Unavailable, "cannot be fetched"),
        (give(ZIP[:50], Content_Length=str(len(ZIP))), Unavailable, "cannot be fetched"),
        (give(ZIP, Content_Encoding="gzip"), InvalidInput, "compressed content"),
        (give(ZIP, Content_Length="x", Connection="close"), InvalidInput, "how long it is"),
        (give(b"", status=404), InvalidInput, "HTTP status 404"),
        (give(b"", status=401), InvalidInput, "HTTP status 401"),
        (give(b"", status=503), Unavailable, "HTTP status 503"),
        (give(b"", status=302), Unavailable, "redirects to nowhere"),
        (redirect("https://[x/"), Unavailable, "what is no URL"),
        (lambda handler: handler.wfile.write(b"what?\r\n\r\n"), Unavailable, "cannot be fetched"),
    ],
)
def test_answers_that_are_no_zip_are_told_apart(fetch, server, behave, error, told):
    def answer(handler) -> None:
        behave(handler)
        handler.close_connection = True

    server.behave = answer
    with pytest.raises(error) as caught:
        fetch(URL + "?sign=hunter2")
    assert told in caught.value.message
    assert f"https://{HOST}/set.zip" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_more_bytes_than_allowed_are_refused(fetch, server):
    limit = FetchLimits(max_bytes=len(ZIP) - 1)
    with pytest.raises(InvalidInput, match="has more than"):
        fetch(limits=limit)

    def chunked(handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(ZIP), ZIP))

    seen = []
    server.behave = give(ZIP, Content_Length=str(1 << 50))
    with pytest.raises(InvalidInput, match="has more than"):
        fetch(progress=lambda *counts: seen.append(counts))
    assert seen == []  # not a byte of it was taken

    server.behave = chunked
    with pytest.raises(InvalidInput, match="has more than"):
        fetch(limits=limit)
    assert fetch() == ZIP


@pytest.mark.parametrize("part", ["handshake", "header", "body"])
def test_a_server_that_trickles_is_given_up(fetch, server, part):
    """Each byte comes in time, and the end never does."""
    over = threading.Event()

    def trickle(handler) -> None:
        if part == "body":
            give(ZIP, Content_Length="1000000")(handler)
        while not over.wait(0.02):
            handler.wfile.write(b"x")

    server.behave = trickle
    options = {}
    if part == "handshake":
        silent, far = socket.socketpair()
        options = {"connect": lambda *_: silent}
    started = time.monotonic()
    try:
        with pytest.raises(Unavailable, match="takes too long"):
            fetch(limits=FetchLimits(max_s=0.3), **options)
    finally:
        over.set()
        if part == "handshake":
            far.close()
    assert time.monotonic() - started < 10


def test_silence_is_given_up(fetch, server, monkeypatch):
    monkeypatch.setattr(guarded_http, "READ_TIMEOUT_S", 0.2)
    over = threading.Event()
    server.behave = lambda handler: over.wait(30)
    try:
        with pytest.raises(Unavailable, match=r"nothing came for 0\.2 s"):
            fetch()
    finally:
        over.set()


def test_a_disk_that_is_full_is_no_fault_of_the_server(server, tmp_path):
    with pytest.raises(FileNotFoundError):
        fetch_zip(
            URL,
            tmp_path / "missing" / "got.zip",
            ALLOWED,
            resolve=server.resolve,
            connect=server.connect,
            tls=server.tls,
        )
