"""Settings of a service: read from environment variables, checked, shown without secrets.

The field `log_url` comes from PERDURE_LOG_URL, or from the file that PERDURE_LOG_URL_FILE names, as
containers are given secrets. An empty value counts as none.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import SplitResult, parse_qs, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Secret,
    ValidationError,
)

from perdure import crash_points
from perdure.environment import MAX_SHOWN_CHARACTERS, PREFIX, unknown_variables, variable
from perdure.errors import InvalidSetting
from perdure.masking import masked

DEFAULT_HOST: Final = "127.0.0.1"
MAX_PORT: Final = 65535
MAX_DRAIN_S: Final = 3600.0  # nobody waits longer for a process to stop
# Of the time to stop, for the work itself; the rest is to be told of its end.
WORK_SHARE: Final = 0.9


class SecretUrl(Secret[str]):
    """An address that may hold a password. `get_secret_value()` gives it, everything else shows it
    masked.
    """

    def _display(self) -> str:
        return masked(self.get_secret_value())


def _url(
    *schemes: str, has_place: Callable[[SplitResult], bool]
) -> Callable[[SecretUrl], SecretUrl]:
    def check(url: SecretUrl) -> SecretUrl:
        text = url.get_secret_value()
        parts = urlsplit(text)
        spaced = any(character.isspace() for character in text)
        if spaced or parts.scheme not in schemes or not has_place(parts):
            raise ValueError
        # PostgreSQL's addresses may name several hosts, each with a port of its own.
        for place in parts.netloc.rpartition("@")[2].split(","):
            host = urlsplit(f"//{place}")
            if host.port == 0:  # reading it raises, too, for what is no port
                raise ValueError
            (host.hostname or "").encode("idna")  # raises for what cannot be a name of a host
        return url

    return check


def _names_database_host(parts: SplitResult) -> bool:
    return bool(parts.hostname or parse_qs(parts.query).get("host"))


def _names_object_store(parts: SplitResult) -> bool:
    if parts.scheme == "file":
        return parts.path.startswith("/")
    return bool(parts.hostname and parts.path.strip("/")) and "@" not in parts.netloc


def _ip_address(host: str) -> str:
    ipaddress.ip_address(host)
    return host


def _written(form: str) -> BeforeValidator:
    """A number as people write it, and not also as Python reads it: 1_000, 1e3, digits of other
    scripts.
    """

    def check(value: object) -> object:
        if isinstance(value, str) and not re.fullmatch(form, value):
            raise ValueError
        return value

    return BeforeValidator(check)


WholeNumber: Final = _written("[0-9]+")
Decimal: Final = _written(r"[0-9]+(\.[0-9]+)?")


def _absolute(folder: Path) -> Path:
    try:
        return folder.expanduser().absolute()
    except RuntimeError as error:  # no home
        raise ValueError(str(error)) from error


# Each description completes "it has to be ...".
LogUrl = Annotated[
    SecretUrl,
    AfterValidator(_url("postgresql", "postgres", has_place=_names_database_host)),
    Field(description="postgresql://user:password@host:port/database"),
]
BusUrl = Annotated[
    SecretUrl,
    AfterValidator(_url("amqp", "amqps", has_place=lambda parts: bool(parts.hostname))),
    Field(description="amqp://user:password@host:port/vhost"),
]
StoreUrl = Annotated[
    SecretUrl,
    AfterValidator(_url("file", "s3+http", "s3+https", has_place=_names_object_store)),
    Field(
        description="file:///absolute/folder or s3+http://host:port/bucket (s3+https), without "
        "keys: those are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    ),
]
Address = Annotated[
    str,
    AfterValidator(_ip_address),
    Field(description=f"an IP address to listen on, such as {DEFAULT_HOST} or 0.0.0.0"),
]
Port = Annotated[
    int,
    WholeNumber,
    Field(ge=0, le=MAX_PORT, description=f"a port up to {MAX_PORT} (0: any that is free)"),
]
DataDir = Annotated[
    Path,
    AfterValidator(_absolute),
    Field(description="a folder that this service has for itself"),
]
DrainSeconds = Annotated[
    float,
    Decimal,
    Field(
        gt=0,
        le=MAX_DRAIN_S,
        allow_inf_nan=False,
        description=f"a number of seconds above 0, {MAX_DRAIN_S:.0f} at most",
    ),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    BeforeValidator(lambda level: level.lower()),
    Field(description="debug, info, warning or error"),
]


class ServiceSettings(BaseModel):
    """What every service can be told. Each gives `health_port` a default of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bus_url: BusUrl
    health_host: Address = DEFAULT_HOST
    health_port: Port
    drain_s: DrainSeconds = 10.0
    log_level: LogLevel = "info"

    @property
    def work_drain_s(self) -> float:
        """Of `drain_s`, what the service's work may take to come to its end."""
        return self.drain_s * WORK_SHARE


S = TypeVar("S", bound=BaseModel)


def variable_of(field: str) -> str:
    """The name of the variable that a field is read from."""
    return PREFIX + field.upper()


def read_settings(kind: type[S], environment: Mapping[str, str]) -> S:
    """The settings of `kind` as `environment` gives them.

    Raises InvalidSetting, in one line that names everything that is missing or wrong.
    """
    values: dict[str, str] = {}
    problems: dict[str, str] = {}
    for field in kind.model_fields:
        try:
            value = variable(variable_of(field), environment)
        except InvalidSetting as error:
            problems[field] = error.message
        else:
            if value is not None:
                values[field] = value
    try:
        settings = kind.model_validate(values)
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_input=False):
            field = str(fault["loc"][0]) if fault["loc"] else ""
            problems.setdefault(field, _problem(kind, field, values, fault))
    told = [*unknown_variables(environment), *problems.values(), *_unreached(environment)]
    if told:
        raise InvalidSetting("; ".join(told), problems=told)
    return settings


def _unreached(environment: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with PERDURE_CRASH_AT."""
    value = environment.get(crash_points.VARIABLE, "")
    if value.strip():
        try:
            crash_points.parse(value)
        except ValueError as error:
            yield f"{crash_points.VARIABLE} is {_quoted(value)}: {error}"


def _problem(
    kind: type[BaseModel], field: str, values: Mapping[str, str], fault: Mapping[str, Any]
) -> str:
    if not field:  # of several settings together: the check says it all
        return str(fault["ctx"]["error"])
    name, wanted = variable_of(field), kind.model_fields[field].description
    if field not in values:
        return f"{name} is missing: set it to {wanted}"
    value = values[field]
    secret = kind.model_fields[field].annotation is SecretUrl
    return (
        f"{name} is {_quoted(masked(value) if secret or '://' in value else value)}: "
        f"it has to be {wanted}"
    )


def _quoted(value: str) -> str:
    cut = value[:MAX_SHOWN_CHARACTERS]
    return repr(cut if cut == value else f"{cut}...")
