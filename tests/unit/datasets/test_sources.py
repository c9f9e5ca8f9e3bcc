"""Data sets below s3://BUCKET/PREFIX, and at https:// URLs."""

from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from perdure.artifacts.archive import ArchiveLimits
from perdure.artifacts.guarded_http import FetchLimits
from perdure.datasets import sources
from perdure.datasets.check import check
from perdure.datasets.sources import allowed_hosts, is_remote, opened
from perdure.errors import (
    InvalidInput,
    InvalidSetting,
    NotFound,
    StoreDenied,
    StoreUnavailable,
    Unavailable,
    UnsafeArchive,
)
from tests.builders.command_line import CommandLine
from tests.builders.datasets import write_files, write_zip, yolo_files
from tests.builders.fake_s3 import BUCKET, fake_s3

KEYS = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "eu-1"}


class Bucket:
    """Objects by key, as S3 answers for them."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.told_sizes: dict[str, int] = {}  # where the listing does not say the truth

    def __call__(self, request) -> None:
        parts = urlsplit(request.path)
        asked = parse_qs(parts.query)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if "list-type" in asked:
            request.answer(200, self.listing(asked["prefix"][0] if "prefix" in asked else ""))
        elif key in self.objects:
            data = self.objects[key]
            request.answer(200, data, etag='"one"')
        else:
            request.refuse(404, "NoSuchKey")

    def listing(self, prefix: str) -> bytes:
        rows = "".join(
            f"<Contents><Key>{escape(quote(key))}</Key><Size>"
            f"{self.told_sizes.get(key, len(data))}</Size><ETag>one</ETag>"
            "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.objects.items())
            if key.startswith(prefix)
        )
        return (
            f"<ListBucketResult><Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>"
            f"<EncodingType>url</EncodingType>{rows}</ListBucketResult>"
        ).encode()


@pytest.fixture
def server(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with fake_s3() as running:
        yield running
    assert list(folder.iterdir()) == []  # what was fetched is gone


@pytest.fixture
def environment(server):
    return KEYS | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}/"}


def stored(prefix: str = "sets/birds/") -> dict[str, bytes]:
    files = yolo_files(3) | {".hidden": b"x", "__MACOSX/._a": b"x"}
    return {
        prefix + name: content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }


@pytest.mark.parametrize(
    ("source", "remote"),
    [
        ("birds", False),
        ("/data/birds", False),
        ("C:\\birds", False),
        ("./s3:/x", False),
        ("s3://bucket/birds", True),
        ("https://host/birds.zip", True),
        ("HTTP://host/x", True),
        ("s3+http://host/bucket", True),
    ],
)
def test_urls_and_paths_are_told_apart(source, remote):
    assert is_remote(source) is remote


def test_a_path_is_given_back_as_it_is(tmp_path):
    with opened(str(tmp_path)) as path:
        assert path == tmp_path
    assert tmp_path.exists()


@pytest.mark.parametrize("end", ["", "/"])
def test_a_prefix_is_checked_as_the_same_folder_is(server, environment, tmp_path, end):
    server.behave = Bucket(stored() | {"sets/birds2/x.jpg": b"", "sets/birds/": b""})
    seen = []
    with opened(
        f"s3://{BUCKET}/sets/birds{end}",
        environment=environment,
        progress=lambda *step: seen.append(step),
    ) as path:
        result = check(path)

    assert result.ok
    local = check(write_files(tmp_path / "set", yolo_files(3)))
    assert result.manifest.version == local.manifest.version
    assert seen[-1] == ("downloading", 7, 7)  # 3 images, 3 labels, data.yaml
    assert not path.exists()


def test_a_zip_in_a_bucket_is_a_zip(server, environment, tmp_path):
    packed = write_zip(tmp_path / "x.zip", yolo_files(3)).read_bytes()
    server.behave = Bucket({"sets/birds.zip": packed})
    with opened(f"s3://{BUCKET}/sets/birds.zip", environment=environment) as path:
        assert path.name == "birds.zip"
        assert check(path).ok


def test_a_whole_bucket_is_a_data_set(server, environment):
    server.behave = Bucket(stored(""))
    with opened(f"s3://{BUCKET}", environment=environment) as path:
        assert check(path).images == 3


def test_hostile_keys_are_refused_all_at_once_and_nothing_is_fetched(server, environment, tmp_path):
    keys = ["../out.jpg", "a/../../out.jpg", "/etc/x", "C:\\x", "nul.jpg", "n" * 256, "a\x7f"]
    collisions = ["b.jpg", "B.jpg", "c", "c/d.jpg", "e//f.jpg", "e/f.jpg"]
    server.behave = Bucket({f"p/{key}": b"x" for key in keys + collisions})
    with (
        pytest.raises(UnsafeArchive) as caught,
        opened(f"s3://{BUCKET}/p", environment=environment),
    ):
        pass

    found = [(fault.code, fault.entry) for fault in caught.value.details["faults"]]
    escapes = sorted(key for code, key in found if code == "files.path-escape")
    assert escapes == sorted(f"p/{key}" for key in keys)
    assert sorted(key for code, key in found if code == "files.name-collision") == [
        "p/b.jpg",
        "p/c",
        "p/e/f.jpg",
    ]
    assert all("list-type" in request.path for request in server.seen)
    assert not (tmp_path / "out.jpg").exists()


def test_the_number_and_the_size_of_objects_are_bounded(server, environment, monkeypatch):
    bucket = Bucket({f"p/{number}.jpg": b"x" * 10 for number in range(5)})
    server.behave = bucket
    for limits in (ArchiveLimits(max_entries=4), ArchiveLimits(max_bytes=49)):
        monkeypatch.setattr(sources, "LIMITS", limits)
        with (
            pytest.raises(InvalidInput, match="holds more than"),
            opened(f"s3://{BUCKET}/p", environment=environment),
        ):
            pass
    monkeypatch.setattr(sources, "LIMITS", ArchiveLimits(max_entries=5, max_bytes=50))
    with opened(f"s3://{BUCKET}/p", environment=environment) as path:
        assert len(list(path.iterdir())) == 5
    bucket.objects = {"p/a.zip": b"x" * 51}
    with (
        pytest.raises(InvalidInput, match="51 bytes, more than 50"),
        opened(f"s3://{BUCKET}/p/a.zip", environment=environment),
    ):
        pass


def test_few_objects_in_many_folders_are_refused(server, environment, monkeypatch):
    server.behave = Bucket({f"p/{number}{'/a' * 19}/b.jpg": b"x" for number in range(10)})
    monkeypatch.setattr(sources, "LIMITS", ArchiveLimits(max_entries=200))
    with (
        pytest.raises(InvalidInput, match="more than 200 objects or folders"),
        opened(f"s3://{BUCKET}/p", environment=environment),
    ):
        pass
    assert all("list-type" in request.path for request in server.seen)
    monkeypatch.setattr(sources, "LIMITS", ArchiveLimits(max_entries=201))
    with opened(f"s3://{BUCKET}/p", environment=environment) as path:
        assert len(list(path.rglob("b.jpg"))) == 10


def test_an_object_that_is_larger_than_it_was_listed_is_not_taken(server, environment):
    bucket = Bucket({"p/a.jpg": b"x" * 1000})
    bucket.told_sizes["p/a.jpg"] = 1
    server.behave = bucket
    with (
        pytest.raises(StoreUnavailable, match="was replaced"),
        opened(f"s3://{BUCKET}/p", environment=environment),
    ):
        pass


@pytest.mark.parametrize(
    ("behave", "error", "told"),
    [
        (Bucket({}), NotFound, "there is nothing at"),
        (lambda request: request.refuse(404, "NoSuchBucket"), NotFound, "there is no bucket"),
        (
            lambda request: request.refuse(403, "AccessDenied"),
            StoreDenied,
            "may list the bucket and read its objects",
        ),
        (lambda request: request.answer(200, b"<html>"), StoreUnavailable, "AWS_ENDPOINT_URL"),
    ],
)
def test_what_a_bucket_does_not_give_is_told(server, environment, behave, error, told):
    server.behave = behave
    with (
        pytest.raises(error, match=told) as caught,
        opened(f"s3://{BUCKET}/p", environment=environment),
    ):
        pass
    assert "PERDURE_STORE_URL" not in caught.value.message
    assert "hunter2" not in caught.value.message
    assert {request.method for request in server.seen} == {"GET"}  # no bucket is made


@pytest.mark.parametrize(
    ("source", "changed", "error", "told"),
    [
        ("s3://B/x", {}, InvalidInput, "is no name of a bucket"),
        ("s3:///x", {}, InvalidInput, "is no name of a bucket"),
        ("s3://me:hunter2@bucket/x", {}, InvalidInput, "is no name of a bucket"),
        ("s3://bucket/x", {"AWS_SECRET_ACCESS_KEY": ""}, InvalidSetting, "AWS_SECRET_ACCESS_KEY"),
        ("s3://bucket/x", {"AWS_ENDPOINT_URL": "ftp://h"}, InvalidSetting, "AWS_ENDPOINT_URL"),
        ("s3://bucket/x", {"AWS_ENDPOINT_URL": "http://h/p"}, InvalidSetting, "AWS_ENDPOINT_URL"),
        ("s3://bucket/x", {"AWS_ENDPOINT_URL": "http://a@h"}, InvalidSetting, "AWS_ENDPOINT_URL"),
        ("s3://bucket/x", {"AWS_REGION": "here, or there"}, InvalidSetting, "AWS_REGION"),
        ("ftp://host/x.zip", {}, InvalidInput, "nothing is fetched by ftp"),
        ("http://host/x.zip", {}, InvalidInput, "nothing is fetched by http"),
        ("file:///etc/passwd", {}, InvalidInput, "nothing is fetched by file"),
        ("https://host/x.zip", {}, InvalidInput, "nothing is fetched from host"),
    ],
)
def test_sources_and_settings_that_are_wrong_are_told(source, changed, error, told):
    with pytest.raises(error, match=told), opened(source, environment=KEYS | changed):
        pass


def test_a_url_is_fetched_with_the_hosts_that_are_allowed(tmp_path, server):
    packed = write_zip(tmp_path / "x.zip", yolo_files(3))
    asked = []

    def fetch(url, target, hosts, **options):
        asked.append((url, sorted(hosts), options["limits"]))
        target.write_bytes(packed.read_bytes())
        options["progress"](3 << 20, 5 << 20)

    seen = []
    url = "https://data.example.org/sets/birds%20of%20prey.zip?sign=1"
    environment = {"PERDURE_SOURCE_HOSTS": "Data.Example.org:443, mirror.example.org:8443"}
    with opened(
        url, environment=environment, fetch=fetch, progress=lambda *step: seen.append(step)
    ) as path:
        assert path.name == "birds of prey.zip"
        assert check(path).ok
    hosts = ["data.example.org", "mirror.example.org:8443"]
    assert asked == [(url, hosts, FetchLimits(max_bytes=256 << 30))]
    assert seen == [("downloading (MiB)", 3, 5)]
    assert not path.exists()


@pytest.mark.parametrize("end", ["", "/..%2f..%2fx.zip", "/download", "/%00.zip", "/a%5cb.zip"])
def test_the_name_of_a_fetched_file_stays_in_its_folder(end, server):
    with opened(
        f"https://h{end}", environment={}, fetch=lambda url, target, *_, **__: target.touch()
    ) as path:
        assert path.parent.name.startswith("perdure-source-")
        assert path.parent.resolve() == path.resolve().parent
        assert path.suffix == ".zip"


def test_a_full_disk_is_told_with_the_way_out(server):
    def fetch(*_, **__):
        raise OSError(28, "No space left on device")

    with (
        pytest.raises(Unavailable, match="name another folder in TMPDIR"),
        opened("https://h/x.zip", environment={}, fetch=fetch),
    ):
        pass


@pytest.mark.parametrize("value", ["https://h", "*.example.org", "h/x", "a b:c", "[::1]"])
def test_a_list_of_hosts_that_is_wrong_is_told(value):
    with pytest.raises(InvalidSetting, match="PERDURE_SOURCE_HOSTS"):
        allowed_hosts({"PERDURE_SOURCE_HOSTS": value})


def test_no_host_is_allowed_by_default():
    assert allowed_hosts({}) == frozenset()


@pytest.fixture
def perdure(monkeypatch, capsys, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PERDURE_SOURCE_HOSTS", raising=False)
    return CommandLine(monkeypatch, capsys)


def test_the_command_line_checks_a_prefix(perdure, server):
    server.behave = Bucket(stored())
    ran = perdure("dataset", "check", f"s3://{BUCKET}/sets/birds", "--json")
    assert (ran.code, ran.json["counts"]["images"]) == (0, 3)


def test_the_command_line_lists_hostile_keys_as_findings(perdure, server):
    server.behave = Bucket(stored() | {"sets/birds/../x.jpg": b"x", "sets/birds/aux.jpg": b"x"})
    ran = perdure("dataset", "check", f"s3://{BUCKET}/sets/birds", "--json")
    assert (ran.code, ran.json["format"]) == (1, "s3")
    assert [(one["code"], one["severity"], one["file"]) for one in ran.json["findings"]] == [
        ("files.path-escape", "error", "sets/birds/../x.jpg"),
        ("files.path-escape", "error", "sets/birds/aux.jpg"),
    ]


def test_the_command_line_fetches_from_no_host_by_default(perdure):
    ran = perdure("dataset", "push", "https://data.example.org/x.zip", "--name", "x")
    assert (ran.code, ran.out) == (2, "")
    assert "PERDURE_SOURCE_HOSTS" in ran.err
