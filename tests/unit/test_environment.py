"""The variables that are known: one list, which services, documents and Compose keep to."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perdure import crash_points
from perdure.client import address
from perdure.environment import KNOWN, OTHERS, SETTINGS, unknown_variables, variable
from perdure.errors import InvalidSetting
from perdure.runtime.settings import variable_of
from perdure_data_prep.settings import DataPrepSettings
from perdure_gateway.settings import GatewayServiceSettings
from perdure_publisher.settings import PublisherSettings
from perdure_relay.settings import RelaySettings
from perdure_scheduler.settings import SchedulerSettings
from perdure_trainer_agent.settings import TrainerAgentSettings

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {
    "gateway": GatewayServiceSettings,
    "scheduler": SchedulerSettings,
    "relay": RelaySettings,
    "data-prep": DataPrepSettings,
    "trainer-agent": TrainerAgentSettings,
    "publisher": PublisherSettings,
}
PAGE = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
# What sets variables for others, and what tells people of them.
OUTSIDE = [
    ROOT / "docker-compose.yml",
    ROOT / "Makefile",
    *(ROOT / "infra").rglob("*.py"),
    *(ROOT / "infra").rglob("*.sh"),
    *(ROOT / "infra").rglob("Dockerfile"),
    *(ROOT / "infra").rglob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *ROOT.glob("*.md"),
    *(ROOT / "services").glob("*/README.md"),
]


def readers() -> dict[str, set[str]]:
    """Which services read a variable."""
    found: dict[str, set[str]] = {}
    for name, kind in SERVICES.items():
        for field in kind.model_fields:
            found.setdefault(variable_of(field), set()).add(name)
    return found


def test_the_list_holds_every_setting_of_every_service_and_no_other() -> None:
    assert readers().keys() == SETTINGS
    assert {address.URL_VARIABLE, crash_points.VARIABLE} <= OTHERS
    assert address.DATA_DIR_VARIABLE in SETTINGS


def test_the_page_of_settings_lists_them_with_those_who_read_them() -> None:
    rows = dict(re.findall(r"^\| `(PERDURE_\w+)` \| ([^|]+) \|", PAGE, flags=re.MULTILINE))
    assert rows.keys() == SETTINGS | OTHERS
    for name, services in readers().items():
        told = set(rows[name].split(", ")) - {"Compose", "commands"}
        assert told == ({"all services"} if services == SERVICES.keys() else services)
    of_compose = {name for name, told in rows.items() if "Compose" in told.split(", ")}
    compose = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert of_compose == set(re.findall(r"\$\{(PERDURE_\w+)", compose))


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_sets_or_tells_of_an_unknown_variable(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"\bPERDURE_[A-Z0-9_]*[A-Z0-9]\b(?![<{])", text))
    assert named <= KNOWN


def test_crash_points_are_those_of_the_code_and_of_the_page() -> None:
    code = {
        point
        for folder in ("libs", "services")
        for path in (ROOT / folder).rglob("*.py")
        for point in re.findall(r'\breached\("([^"]+)"\)', path.read_text(encoding="utf-8"))
    }
    assert code == crash_points.POINTS
    told = re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", PAGE, flags=re.MULTILINE)
    assert sorted(told) == sorted(crash_points.POINTS)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("PERDURE_CAPACTIY", "did you mean PERDURE_CAPACITY?"),
        ("PERDURE_BSU_URL_FILE", "did you mean PERDURE_BUS_URL_FILE?"),
        ("PERDURE_LOG_URI", "did you mean PERDURE_LOG_URL?"),
        ("perdure_capacity", "did you mean PERDURE_CAPACITY?"),
        ("PERDURE_URL_FILE", "did you mean "),  # nobody would read it
        ("PERDURE_CRASH_AT_FILE", "did you mean PERDURE_CRASH_AT?"),
        ("PERDURE_HELTH_PORT", "did you mean PERDURE_HEALTH_PORT?"),
        ("PERDURE_ZZZ", "take it out"),
        ("PERDURE_", "take it out"),
    ],
)
def test_an_unknown_name_is_told_with_the_nearest_that_is_known(name: str, told: str) -> None:
    (problem,) = unknown_variables({name: "hunter2"})
    assert problem.startswith(f"{name} is no setting of Perdure: {told}")
    assert "hunter2" not in problem


def test_what_others_read_or_set_is_no_mistake() -> None:
    neighbours = {
        "PERDURE_GATEWAY_SERVICE_HOST": "10.0.0.1",
        "PERDURE_GATEWAY_SERVICE_PORT": "7412",
        "PERDURE_GATEWAY_SERVICE_PORT_HTTP": "7412",
        "PERDURE_GATEWAY_PORT": "tcp://10.0.0.1:7412",
        "PERDURE_GATEWAY_PORT_7412_TCP": "tcp://10.0.0.1:7412",
        "PERDURE_GATEWAY_PORT_7412_TCP_PROTO": "tcp",
        "PERDURE_GATEWAY_PORT_7412_TCP_ADDR": "10.0.0.1",
    }
    known = dict.fromkeys(KNOWN, "x")
    assert not list(unknown_variables({**known, **neighbours, "HOME": "/", "XPERDURE_A": "1"}))
    assert not list(unknown_variables({"PERDURE_ZZZ": " "}))


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("hunter2\x00", r"its character 8 is '\x00'"),
        ("hunter2\r", r"its character 8 is '\r'"),
        ("hun\nter2", r"its character 4 is '\n'"),
        ("\ufeffhunter2", r"its character 1 is '\ufeff'"),
        ("hunter2\u2028x", r"its character 8 is '\u2028'"),
        ("hunter2 ", "begins or ends with a space"),
        ("\u00a0hunter2", "begins or ends with a space"),
    ],
)
@pytest.mark.parametrize("name", ["PERDURE_LOG_URL", "AWS_SECRET_ACCESS_KEY"])
def test_a_value_with_what_nobody_sees_is_refused_and_not_shown(
    name: str, value: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(f"{value}x\n".encode() if value.endswith("\r") else f"{value}\n".encode())
    for environment in ({name: value}, {f"{name}_FILE": str(path)}):
        with pytest.raises(InvalidSetting) as refused:
            variable(name, environment)
        assert told in refused.value.message
        assert next(iter(environment)) in refused.value.message
        assert "hunter2" not in refused.value.message
        assert refused.value.message.isprintable()


def test_the_end_of_a_files_line_is_not_part_of_the_value(tmp_path: Path) -> None:
    for end in (b"", b"\n", b"\r\n", b"\n\n"):
        (tmp_path / "secret").write_bytes(b"a b%20#@:/" + end)
        assert variable("PERDURE_X", {"PERDURE_X_FILE": str(tmp_path / "secret")}) == "a b%20#@:/"


def test_a_secret_where_its_files_name_belongs_is_not_shown() -> None:
    for secret in ("hunter2/x", "postgresql://perdure:hunter2@db/x"):
        with pytest.raises(InvalidSetting) as refused:
            variable("PERDURE_LOG_URL", {"PERDURE_LOG_URL_FILE": secret})
        assert "hunter2" not in refused.value.message


@pytest.mark.parametrize("value", ["relay.read:0", "relay.read:", "relay.read:x", "relay.reed"])
def test_a_crash_point_that_would_kill_nobody_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match=r"relay\.published"):
        crash_points.parse(value)


@pytest.mark.parametrize(
    ("value", "code"),
    [("relay.read:2", -signal.SIGKILL), ("relay.read:3", 0), ("relay.read:x", 0), ("", 0)],
)
def test_a_process_dies_where_it_is_told_to(value: str, code: int) -> None:
    source = "from perdure.crash_points import reached\nfor _ in 'ab': reached('relay.read')"
    environment = {**os.environ, "PERDURE_CRASH_AT": value}
    ran = subprocess.run([sys.executable, "-c", source], env=environment, timeout=60)
    assert ran.returncode == code
