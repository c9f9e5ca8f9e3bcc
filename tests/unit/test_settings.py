"""Settings from the environment: what is missing or wrong is told in one line, without secrets."""

import importlib
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from perdure.environment import KNOWN
from perdure.errors import InvalidSetting
from perdure.masking import masked
from perdure.runtime.settings import (
    LogUrl,
    Port,
    ServiceSettings,
    StoreUrl,
    read_settings,
    variable_of,
)
from perdure.runtime.worker_service import default_worker_id
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
SECRET = "hunter2"
BUS = f"amqp://perdure:{SECRET}@rabbitmq:5672/perdure"
LOG = f"postgresql://perdure:{SECRET}@postgres:5432/perdure"
STORE = "s3+http://s3:8333/perdure"
GIVEN = {"PERDURE_BUS_URL": BUS, "PERDURE_LOG_URL": LOG, "PERDURE_STORE_URL": STORE}


class Settings(ServiceSettings):
    log_url: LogUrl
    store_url: StoreUrl
    health_port: Port = 7000


def refusal(environment: dict[str, str], kind: type[BaseModel] = Settings) -> str:
    with pytest.raises(InvalidSetting) as caught:
        read_settings(kind, environment)
    message = caught.value.message
    assert "\n" not in message
    assert SECRET not in message
    assert SECRET not in repr(caught.value.details)
    return message


def test_what_is_given_is_read_and_the_rest_has_defaults() -> None:
    settings = read_settings(Settings, {**GIVEN, "PERDURE_DRAIN_S": "2.5", "HOME": "/root"})
    assert settings.log_url.get_secret_value() == LOG
    assert settings.bus_url.get_secret_value() == BUS
    assert (settings.health_host, settings.health_port) == ("127.0.0.1", 7000)
    assert (settings.drain_s, settings.log_level) == (2.5, "info")


def test_settings_do_not_change() -> None:
    settings = read_settings(Settings, GIVEN)
    with pytest.raises(ValueError, match="frozen"):
        settings.drain_s = 1.0


def test_everything_that_is_missing_is_told_at_once() -> None:
    message = refusal({"PERDURE_STORE_URL": STORE, "PERDURE_LOG_URL": " "})
    assert re.findall(r"(PERDURE_\w+) is missing", message) == [
        "PERDURE_BUS_URL",
        "PERDURE_LOG_URL",
    ]
    assert "amqp://user:password@host:port/vhost" in message
    assert "postgresql://user:password@host:port/database" in message


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("PERDURE_LOG_URL", "mysql://perdure:hunter2@db/x", "mysql://perdure:***@db/x"),
        ("PERDURE_LOG_URL", "postgresql://perdure:hunter2", "postgresql://perdure:***"),
        ("PERDURE_LOG_URL", "postgresql://perdure:hunter2@db:port/x", "perdure:***@db:port/x"),
        ("PERDURE_LOG_URL", "postgresql://u:hunter2@one:5432,two:x/x", "u:***@one:5432,two:x/x"),
        ("PERDURE_LOG_URL", "postgresql://u:hunter2@one:0,two/x", "u:***@one:0,two/x"),
        ("PERDURE_LOG_URL", "dbname=x password=hunter2", "'***'"),
        ("PERDURE_LOG_URL", "postgresql:///perdure?password=hunter2", "?password=***"),
        ("PERDURE_BUS_URL", "http://perdure:hunter2@mq/", "http://perdure:***@mq/"),
        ("PERDURE_BUS_URL", "amqp://perdure:hunter2@mq:99999/", "amqp://perdure:***@mq:99999/"),
        ("PERDURE_BUS_URL", "amqp://perdure:hunter2@mq:0/", "amqp://perdure:***@mq:0/"),
        ("PERDURE_BUS_URL", "amqp:///vhost", "amqp:///vhost"),
        ("PERDURE_BUS_URL", "amqp://u:hunter2@m q:5672/", "amqp://u:***@m q:5672/"),
        ("PERDURE_BUS_URL", "amqp://u:hunter2@mq..org/", "amqp://u:***@mq..org/"),
        ("PERDURE_LOG_URL", f"postgresql://u:hunter2@{'d' * 64}/x", "u:***@ddd"),
        ("PERDURE_STORE_URL", "s3+http://s3:8333/a bucket", "s3+http://s3:8333/a bucket"),
        ("PERDURE_STORE_URL", "s3://bucket", "s3://bucket"),
        ("PERDURE_STORE_URL", "s3+http://s3:8333", "s3+http://s3:8333"),
        ("PERDURE_STORE_URL", "s3+http://k:hunter2@s3/b", "s3+http://k:***@s3/b"),
        ("PERDURE_STORE_URL", "file://folder", "file://folder"),
        ("PERDURE_HEALTH_PORT", "65536", "65536"),
        ("PERDURE_HEALTH_PORT", "-1", "-1"),
        ("PERDURE_HEALTH_PORT", "http", "http"),
        ("PERDURE_HEALTH_HOST", "localhost", "localhost"),
        ("PERDURE_HEALTH_HOST", "amqp://u:hunter2@h/", "amqp://u:***@h/"),
        ("PERDURE_DRAIN_S", "0", "0"),
        ("PERDURE_DRAIN_S", "nan", "nan"),
        ("PERDURE_DRAIN_S", "inf", "inf"),
        ("PERDURE_DRAIN_S", "soon", "soon"),
        ("PERDURE_LOG_LEVEL", "loud", "loud"),
        ("PERDURE_LOG_LEVEL", "\udcff", r"\udcff"),
        ("PERDURE_LOG_LEVEL", "ab" * 1000, "abab"),
        # Python would read these as numbers.
        *(
            (name, number, number)
            for name in ("PERDURE_HEALTH_PORT", "PERDURE_DRAIN_S")
            for number in ("1_0", "+7", "0x7", "\uff17", "\u0667", "7e0", "7.", "1,5")
        ),
        ("PERDURE_HEALTH_PORT", "1.0", "1.0"),
        ("PERDURE_HEALTH_PORT", "9" * 5000, "999"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_expected(name: str, value: str, shown: str) -> None:
    message = refusal({**GIVEN, name: value})
    assert message.startswith(f"{name} is '")
    assert shown in message
    assert "it has to be" in message
    assert len(message) < 500


def test_several_problems_are_one_line() -> None:
    message = refusal({"PERDURE_LOG_URL": LOG, "PERDURE_DRAIN_S": "x", "PERDURE_LOG_LEVEL": "y"})
    assert sorted(re.findall(r"(PERDURE_[A-Z_]+) is ", message)) == [
        "PERDURE_BUS_URL",
        "PERDURE_DRAIN_S",
        "PERDURE_LOG_LEVEL",
        "PERDURE_STORE_URL",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://perdure@/postgres?host=%2Ftmp%2Fsocket",
        "postgres://perdure@db",
        "postgresql://perdure:x@one:5432,two:5433/perdure?target_session_attrs=read-write",
        "postgresql://perdure:x@[fd00::1]:5432/perdure",
        "postgresql://perdure:x@[fd00::1]:5432,[fd00::2]/perdure",
        "postgresql://perdure:p%40%3A%2F%25%2C@db:5432/perdure",
        "postgresql://perdure:a,b@db:5432/perdure",
    ],
)
def test_forms_of_an_address_that_postgresql_knows(url: str) -> None:
    settings = read_settings(Settings, {**GIVEN, "PERDURE_LOG_URL": url})
    assert settings.log_url.get_secret_value() == url


def test_a_misspelt_variable_is_told_and_one_of_another_service_is_not() -> None:
    others = dict.fromkeys(KNOWN - {"PERDURE_CRASH_AT"} - GIVEN.keys(), "")
    others |= {"PERDURE_URL": "x", "PERDURE_THREADS": "x", "PERDURE_S3_ACCESS_KEY": "x"}
    read_settings(Settings, {**GIVEN, **others})
    message = refusal({**GIVEN, "PERDURE_CAPACTIY": SECRET, "PERDURE_DRAIN": SECRET})
    assert message == (
        "PERDURE_CAPACTIY is no setting of Perdure: did you mean PERDURE_CAPACITY?; "
        "PERDURE_DRAIN is no setting of Perdure: did you mean PERDURE_DRAIN_S?"
    )


def test_a_crash_point_that_does_not_exist_is_refused() -> None:
    read_settings(Settings, {**GIVEN, "PERDURE_CRASH_AT": "relay.read:2"})
    for wrong in ("relay.reed", "relay.read:0", "relay.read:x", "relay.read:"):
        message = refusal({**GIVEN, "PERDURE_CRASH_AT": wrong})
        assert message.startswith(f"PERDURE_CRASH_AT is '{wrong}': it has to be one of ")


def test_spaces_and_unseen_characters_are_refused() -> None:
    for name, value in (("PERDURE_HEALTH_PORT", " 7"), ("PERDURE_DATA_DIR", "/a\x00b")):
        kind = DataPrepSettings if name.endswith("DIR") else Settings
        assert refusal({**GIVEN, name: value}, kind).startswith(f"{name} cannot be used: ")


@pytest.mark.parametrize("name", SERVICES)
def test_of_every_setting_it_is_known_what_it_has_to_be(name: str) -> None:
    for field in SERVICES[name].model_fields.values():
        assert field.description


def test_a_value_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{LOG}\n")
    environment = {**GIVEN, "PERDURE_LOG_URL": "", "PERDURE_LOG_URL_FILE": str(tmp_path / "log")}
    assert read_settings(Settings, environment).log_url.get_secret_value() == LOG


def test_a_file_that_cannot_serve_is_told(tmp_path: Path) -> None:
    def told(content: bytes | None) -> str:
        path = tmp_path / "log"
        if content is not None:
            path.write_bytes(content)
        environment = {**GIVEN, "PERDURE_LOG_URL_FILE": str(path)}
        del environment["PERDURE_LOG_URL"]
        message = refusal(environment)
        assert message.startswith(f"PERDURE_LOG_URL_FILE names '{path}'")
        assert "missing" not in message
        return message

    assert "No such file" in told(None)
    assert "empty" in told(b" \n")
    assert "65536 bytes" in told(b"x" * 65537)
    assert "utf-8" in told(b"\xff")
    both = refusal({**GIVEN, "PERDURE_LOG_URL_FILE": str(tmp_path / "log")})
    assert both == "PERDURE_LOG_URL and PERDURE_LOG_URL_FILE are both set: keep one of them"


def test_no_form_of_the_settings_shows_a_password() -> None:
    settings = read_settings(Settings, GIVEN)
    for text in (repr(settings), str(settings), str(settings.model_dump(mode="json"))):
        assert SECRET not in text
        assert "postgresql://perdure:***@postgres:5432/perdure" in text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://u:p/a@ss:w#o?r@d@host:5672/v", "amqp://u:***@host:5672/v"),
        ("amqp://:p@host", "amqp://:***@host"),
        ("amqp://u@host", "amqp://u@host"),
        ("amqp://host:5672/v", "amqp://host:5672/v"),
        ("amqp://user:1234567", "amqp://user:***"),
        ("postgresql://[::1]:5432/x?a=1&sslpassword=p&b=2", "postgresql://[::1]:5432/x?a=1&sslpassword=***&b=2"),
        ("postgresql://a:1,b:2/x", "postgresql://a:1,b:2/x"),
        ("p@ssword", "***"),
    ],
)  # fmt: skip
def test_what_is_masked_of_an_address(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize("name", ["data-prep", "trainer-agent", "publisher"])
def test_the_data_plane_knows_no_database(name: str) -> None:
    assert "log_url" not in SERVICES[name].model_fields
    read_settings(SERVICES[name], {"PERDURE_BUS_URL": BUS, "PERDURE_STORE_URL": STORE})


def test_health_ports_are_distinct_so_that_all_services_fit_on_one_host() -> None:
    ports = [kind.model_fields["health_port"].default for kind in SERVICES.values()]
    assert len(set(ports) | {GatewayServiceSettings.model_fields["http_port"].default}) == 7


@pytest.mark.parametrize("name", SERVICES)
def test_a_services_readme_lists_every_setting_and_no_other(name: str) -> None:
    text = (ROOT / "services" / name / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(PERDURE_\w+)` \|", text, flags=re.MULTILINE)
    assert sorted(listed) == sorted(variable_of(field) for field in SERVICES[name].model_fields)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_be_found_by_its_entry_point(name: str) -> None:
    module = importlib.import_module(f"perdure_{name.replace('-', '_')}.service")
    assert callable(module.serve)


def gateway(**extra: str) -> GatewayServiceSettings:
    return read_settings(GatewayServiceSettings, GIVEN | extra)


def test_the_gateway_listens_to_others_only_where_that_is_said_to_be_safe() -> None:
    assert gateway(PERDURE_HTTP_HOST="::1").http_host == "::1"
    message = refusal({**GIVEN, "PERDURE_HTTP_HOST": "0.0.0.0"}, GatewayServiceSettings)
    assert "no user accounts" in message
    assert "PERDURE_TRUSTED_NETWORK=yes" in message
    for no in ("", "no"):
        environment = {**GIVEN, "PERDURE_HTTP_HOST": "::", "PERDURE_TRUSTED_NETWORK": no}
        refusal(environment, GatewayServiceSettings)
    assert gateway(PERDURE_HTTP_HOST="0.0.0.0", PERDURE_TRUSTED_NETWORK="yes").trusted_network


def test_host_names_are_read_as_a_host_header_has_them() -> None:
    names = gateway(PERDURE_ALLOWED_HOSTS="GPU.example , 10.0.0.5,fd00::1,[fd00::2],")
    assert names.allowed_hosts == ("gpu.example", "10.0.0.5", "[fd00::1]", "[fd00::2]")
    for wrong in ("gpu.example:7412", "http://gpu", "a b", "*"):
        environment = {**GIVEN, "PERDURE_ALLOWED_HOSTS": wrong}
        assert "without ports" in refusal(environment, GatewayServiceSettings)


def test_a_workers_id_is_made_of_what_may_be_in_a_routing_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu_1.example.org" + "x" * 200)
    worker_id = default_worker_id("trainer-agent")
    assert worker_id.startswith("gpu-1-example-orgxxx")
    assert worker_id.endswith("-trainer-agent")
    given = {"PERDURE_BUS_URL": BUS, "PERDURE_STORE_URL": STORE}
    settings = read_settings(TrainerAgentSettings, given)
    assert settings.worker_id == worker_id
    assert len(worker_id) == 100
    for wrong in ("a.b", "a b", "ä", "x" * 101, "#"):
        refusal({**given, "PERDURE_WORKER_ID": wrong}, TrainerAgentSettings)


def test_a_workers_numbers_are_bounded() -> None:
    given = {"PERDURE_BUS_URL": BUS, "PERDURE_STORE_URL": STORE}
    for name, wrong in (("CAPACITY", "0"), ("CAPACITY", "1.5"), ("THREADS", "0")):
        message = refusal({**given, f"PERDURE_{name}": wrong}, PublisherSettings)
        assert message.startswith(f"PERDURE_{name} is '{wrong}'")


def test_a_workers_folder_is_its_own_unless_another_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/home/kim")
    given = {"PERDURE_BUS_URL": BUS, "PERDURE_STORE_URL": STORE}
    default = read_settings(DataPrepSettings, given).data_dir
    assert default == Path("/home/kim/.local/share/perdure/data-prep")
    named = read_settings(DataPrepSettings, {**given, "PERDURE_DATA_DIR": "~/d"}).data_dir
    assert named == Path("/home/kim/d")
