"""perdure dataset probe and report: what a data set is like, and what in it looks odd."""

from pathlib import Path
from typing import Annotated

import typer

from perdure.artifacts.files import write_text
from perdure.cli.findings import at_hand, checking, refuse
from perdure.cli.import_options import (
    AllowLeakage,
    BoxFormatOption,
    DataSource,
    DropDegenerate,
    Format,
    GroupBy,
    MaxSkipped,
    SixthFieldOption,
    Version,
)
from perdure.cli.output import AsJson, complain_line, print_json, say, steps_bar
from perdure.cli.server import connect
from perdure.datasets.check import CheckResult
from perdure.datasets.probe_report import report
from perdure.datasets.probe_summary import count_warnings, describe_probe
from perdure.datasets.probes import Probe, probe
from perdure.datasets.rules import DEFAULT_MAX_SKIPPED, ImportRules
from perdure.errors import InvalidInput


def probe_dataset(
    source: DataSource,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write a page with charts and pictures.")
    ] = None,
    fail_on_warning: Annotated[
        bool, typer.Option("--fail-on-warning", help="Exit with 1 when there is a warning.")
    ] = False,
    format_: Format = None,
    box_format: BoxFormatOption = None,
    sixth_field: SixthFieldOption = None,
    drop_degenerate: DropDegenerate = False,
    max_skipped: MaxSkipped = DEFAULT_MAX_SKIPPED,
    allow_leakage: AllowLeakage = False,
    group_by: GroupBy = "",
    as_json: AsJson = False,
) -> None:
    """Look at what a data set is like, and what is odd in it; nothing is sent anywhere."""
    rules = ImportRules(
        format_, box_format, sixth_field, drop_degenerate, max_skipped, allow_leakage, group_by
    )
    if html is not None and not html.parent.is_dir():
        raise InvalidInput(f"--html {html}: there is no folder {html.parent}")
    with at_hand(source, as_json=as_json) as path, checking(path, rules) as result:
        if not result.ok:
            refuse(result, as_json=as_json, end=f"{source} is not probed: correct the errors first")
        found = probe(result)
        if html is not None:
            _write_page(found, Path(source).name or source, result, html)
    if as_json:
        print_json(found.to_json())
    else:
        for line in describe_probe(found):
            say(line)
        if html is not None:
            say(f"the report is in {html}")
    if fail_on_warning and found.warnings:
        complain_line(f"--fail-on-warning: {count_warnings(found)}")
        raise typer.Exit(1)


def _write_page(found: Probe, name: str, result: CheckResult, target: Path) -> None:
    assert result.manifest is not None
    with steps_bar() as on_step:
        page = report(
            found,
            name,
            result.manifest,
            result.files,
            progress=lambda done, total: on_step("drawing", done, total),
        )
    write_text(target, page)


def fetch_report(
    version: Version,
    out: Annotated[Path, typer.Option("--out", help="The HTML file to write.")],
    as_json: AsJson = False,
) -> None:
    """Fetch the report of a data set version: what it is like, and what is odd in it."""
    with connect() as client:
        full_version = client.find_dataset_version(version)
        client.fetch_report(full_version, out)
    if as_json:
        print_json({"version": full_version, "file": str(out)})
    else:
        say(f"the report is in {out}")
