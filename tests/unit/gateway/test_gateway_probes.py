from dataclasses import asdict

from perdure.contracts.v1 import events_pb2
from tests.builders.gateway import VERSION

PROBE = b'{"format":"perdure.probe/1"}'
PAGE = "<!doctype html><p>\N{WARNING SIGN} two things".encode()


def blob(stored) -> events_pb2.Blob:
    return events_pb2.Blob(**asdict(stored))


def probed(world, page: bytes = PAGE) -> events_pb2.DatasetProbed:
    return events_pb2.DatasetProbed(
        version=VERSION,
        probe=blob(world.store.put_bytes("datasets/probes/a.json", PROBE)),
        report=blob(world.store.put_bytes(f"datasets/probes/{len(page)}.html", page)),
        warnings=["probe.blur", "probe.tiny-boxes"],
    )


async def test_a_version_shows_its_probe_and_where_that_lies(world, http):
    await world.import_dataset()
    await world.append(f"dataset-{VERSION}", probed(world))
    dataset = (await http.get(f"/v1/datasets/{VERSION}")).json()
    assert (dataset["name"], dataset["images"]) == ("birds", 10)
    assert dataset["probe"]["warnings"] == ["probe.blur", "probe.tiny-boxes"]
    assert dataset["probe"]["report"]["size_bytes"] == len(PAGE)

    probe = await http.get(f"/v1/datasets/{VERSION}/probe")
    assert (probe.status_code, probe.content) == (200, PROBE)
    assert probe.headers["content-type"] == "application/json"


async def test_the_report_is_a_page_that_may_do_nothing(world, http):
    await world.import_dataset()
    await world.append(f"dataset-{VERSION}", probed(world))
    report = await http.get(f"/v1/datasets/{VERSION}/report")
    assert (report.status_code, report.content) == (200, PAGE)
    assert report.headers["content-type"] == "text/html; charset=utf-8"
    assert report.headers["x-content-type-options"] == "nosniff"
    assert report.headers["content-disposition"] == "inline"
    policy = report.headers["content-security-policy"].split("; ")
    assert {"sandbox", "default-src 'none'", "img-src data:", "frame-ancestors 'none'"} <= {*policy}
    assert not any("script" in rule for rule in policy)


async def test_a_version_that_is_imported_again_has_the_newest_probe(world, http):
    await world.import_dataset()
    await world.append(f"dataset-{VERSION}", probed(world), probed(world, b"newer"))
    assert (await http.get(f"/v1/datasets/{VERSION}/report")).content == b"newer"


async def test_a_version_without_a_probe_says_what_to_do(world, http):
    await world.import_dataset()
    for route in ("probe", "report"):
        missing = await http.get(f"/v1/datasets/{VERSION}/{route}")
        assert missing.status_code == 404
        assert "push it again" in missing.json()["detail"]
        assert (await http.get(f"/v1/datasets/{'cd' * 32}/{route}")).status_code == 404
