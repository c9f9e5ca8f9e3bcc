"""perdure dataset probe, report and show, against a gateway on a real port."""

from dataclasses import asdict
from pathlib import Path

import pytest

from perdure.client import Client
from perdure.contracts.v1 import events_pb2
from perdure.datasets.check import check
from perdure.datasets.probe_report import report
from perdure.datasets.probes import probe
from perdure.errors import DamagedObject, NotFound
from tests.builders.datasets import write_files, write_zip, yolo_files
from tests.builders.gateway import VERSION, ServerThread

ODD = ["probe.class-rare", "probe.image-small"]


def imported(server: ServerThread, folder: Path) -> str:
    """Let the server know of a version and its probe; gives the page."""
    world = server.world
    server.run(world.import_dataset())
    checked = check(folder)
    found = probe(checked)
    page = report(found, "birds", checked.manifest, checked.files)
    stored = [
        events_pb2.Blob(**asdict(world.store.put_bytes(f"datasets/probes/x.{suffix}", data)))
        for suffix, data in (("json", found.text.encode()), ("html", page.encode()))
    ]
    codes = [oddity.code for oddity in found.warnings]
    facts = events_pb2.DatasetProbed(
        version=VERSION, probe=stored[0], report=stored[1], warnings=codes
    )
    server.run(world.append(f"dataset-{VERSION}", facts))
    return page


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_data_set_here_is_probed(perdure, tmp_path, kind):
    if kind == "zip":
        source = write_zip(tmp_path / "set.zip", yolo_files(4))
    else:
        source = write_files(tmp_path / "set", yolo_files(4))

    ran = perdure("dataset", "probe", str(source), "--html", "page.html")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "4 images, 4 boxes, 1 class: bird"
    assert ran.out.splitlines()[-2:] == [
        f"2 warnings: {', '.join(ODD)}",
        "the report is in page.html",
    ]
    page = Path("page.html").read_text(encoding="utf-8")
    assert f"<title>{source.name}: data set probe</title>" in page
    assert page.count("data:image/jpeg;base64,") == 3 + 4  # beside the warning, and below

    as_json = perdure("dataset", "probe", str(source), "--json").json
    assert (as_json["format"], as_json["warnings"]) == ("perdure.probe/1", ODD)


def test_warnings_fail_only_when_that_is_asked_for(perdure, tmp_path):
    folder = str(write_files(tmp_path / "set", yolo_files(4)))
    assert perdure("dataset", "probe", folder).code == 0
    ran = perdure("dataset", "probe", folder, "--fail-on-warning", "--json")
    assert (ran.code, ran.json["warnings"]) == (1, ODD)
    assert "--fail-on-warning: 2 warnings" in ran.err


def test_a_data_set_with_errors_is_not_probed(perdure, tmp_path):
    folder = str(write_files(tmp_path / "set", yolo_files(2) | {"labels/0.txt": "x"}))
    ran = perdure("dataset", "probe", folder, "--html", "page.html")
    assert (ran.code, ran.out) == (1, "")
    assert "is not probed: correct the errors first" in ran.err
    assert not Path("page.html").exists()
    missing = perdure("dataset", "probe", folder, "--html", "no/page.html")
    assert (missing.code, "there is no folder no" in missing.err) == (2, True)


def test_a_version_says_what_is_odd_and_gives_its_report(server, perdure, tmp_path):
    page = imported(server, write_files(tmp_path / "set", yolo_files(4)))

    shown = perdure("dataset", "show", VERSION[:12])
    assert shown.code == 0
    assert ", ".join(ODD) in shown.out
    assert f"perdure dataset report {VERSION[:12]} --out report.html" in shown.out
    assert f"{server.url}/v1/datasets/{VERSION}/report" in shown.out

    ran = perdure("dataset", "report", VERSION[:12], "--out", "report.html")
    assert (ran.code, ran.out) == (0, "the report is in report.html\n")
    assert Path("report.html").read_text(encoding="utf-8") == page

    with Client(server.url) as client:
        assert client.probe(VERSION)["warnings"] == ODD


def test_a_report_that_was_changed_in_the_store_is_not_kept(server, perdure, tmp_path):
    page = imported(server, write_files(tmp_path / "set", yolo_files(4)))
    server.world.store.put_bytes("datasets/probes/x.html", page.replace("bird", "fish").encode())
    with Client(server.url) as client, pytest.raises(DamagedObject, match="push the data set"):
        client.fetch_report(VERSION, Path("report.html"))
    assert not Path("report.html").exists()


def test_a_version_without_a_probe_is_shown_without_it(server, perdure):
    server.run(server.world.import_dataset())
    shown = perdure("dataset", "show", VERSION)
    assert (shown.code, "report" in shown.out) == (0, False)
    ran = perdure("dataset", "report", VERSION, "--out", "report.html")
    assert ran.code != 0
    assert "push it again" in ran.err
    with Client(server.url) as client, pytest.raises(NotFound):
        client.probe(VERSION)
