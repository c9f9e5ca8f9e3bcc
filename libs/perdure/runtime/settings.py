"""Settings of a service: read from environment variables, checked, shown without secrets.

The field `log_url` comes from PERDURE_LOG_URL, or from the file that PERDURE_LOG_URL_FILE names, as
containers are given secrets. An empty value counts as none.
"""

import difflib
import ipaddress
from collections.abc import Callable, Mapping
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

from perdure.errors import InvalidSetting
from perdure.masking import masked

PREFIX: Final = "PERDURE_"
FILE_SUFFIX: Final = "_FILE"
DEFAULT_HOST: Final = "127.0.0.1"
MAX_PORT: Final = 65535
MAX_DRAIN_S: Final = 3600.0  # nobody waits longer for a process to stop
# Of the time to stop, for the work itself; the rest is to be told of its end.
WORK_SHARE: Final = 0.9
MAX_FILE_BYTES: Final = 65536  # a secret has some dozens; a wrong path may lead to anything
MAX_SHOWN_CHARACTERS: Final = 200
# Of two names of variables: one letter too many, one missing, two swapped. PERDURE_LOG_URL and
# PERDURE_BUS_URL have 0.8.
LIKENESS: Final = 0.85


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
        parts = urlsplit(url.get_secret_value())
        if parts.scheme not in schemes or not has_place(parts):
            raise ValueError
        several = (
            "," in parts.netloc
        )  # hosts with a port each, which PostgreSQL's addresses may name
        if not several and parts.port == 0:  # reading it raises, too, for what is no port
            raise ValueError
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
    Field(ge=0, le=MAX_PORT, description=f"a port up to {MAX_PORT} (0: any that is free)"),
]
DataDir = Annotated[
    Path,
    AfterValidator(_absolute),
    Field(description="a folder that this service has for itself"),
]
DrainSeconds = Annotated[
    float,
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
            problems.setdefault(field, _problem(kind, field, values, fault, environment))
    if problems:
        told = list(problems.values())
        raise InvalidSetting("; ".join(told), problems=told)
    return settings


def variable(name: str, environment: Mapping[str, str]) -> str | None:
    """The value of a variable, given itself or as NAME_FILE; None when it is empty or not there.

    Raises InvalidSetting when both are given, or the file cannot be read.
    """
    value, path = (environment.get(key, "").strip() for key in (name, name + FILE_SUFFIX))
    if value and path:
        raise InvalidSetting(f"{name} and {name}{FILE_SUFFIX} are both set: keep one of them")
    if not path:
        return value or None
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        if not (value := content.decode().strip()):
            raise ValueError("it is empty")
        return value
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSetting(
            f"{name}{FILE_SUFFIX} names {path!r}, which cannot be read: {reason}"
        ) from None


def _problem(
    kind: type[BaseModel],
    field: str,
    values: Mapping[str, str],
    fault: Mapping[str, Any],
    environment: Mapping[str, str],
) -> str:
    if not field:  # of several settings together: the check says it all
        return str(fault["ctx"]["error"])
    name, wanted = variable_of(field), kind.model_fields[field].description
    if field not in values:
        return f"{name} is missing: set it to {wanted}{_hint(kind, name, environment)}"
    value = values[field]
    secret = kind.model_fields[field].annotation is SecretUrl
    shown = masked(value) if secret or "://" in value else value
    if len(shown) > MAX_SHOWN_CHARACTERS:
        shown = f"{shown[:MAX_SHOWN_CHARACTERS]}..."
    return f"{name} is {shown!r}: it has to be {wanted}"


def _hint(kind: type[BaseModel], name: str, environment: Mapping[str, str]) -> str:
    """What is set under a name so like `name` that it is probably meant."""
    known = {variable_of(field) for field in kind.model_fields}
    strangers = {other.removesuffix(FILE_SUFFIX): other for other in environment}
    near = difflib.get_close_matches(name, strangers.keys() - known, n=1, cutoff=LIKENESS)
    return f" ({strangers[near[0]]} is set: is it misspelt?)" if near else ""
