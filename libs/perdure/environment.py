"""The environment variables that Perdure knows, and how the value of one is read.

One .env file is often given to all services, to Compose and to the command line: so each of them
knows all names, and a name that nobody knows is misspelt.
"""

import difflib
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from perdure.errors import InvalidSetting
from perdure.masking import masked

PREFIX: Final = "PERDURE_"
FILE_SUFFIX: Final = "_FILE"

# Settings of services. Each can also be given as NAME_FILE.
SETTINGS: Final = frozenset(
    {
        "PERDURE_ALLOWED_HOSTS",
        "PERDURE_BUS_URL",
        "PERDURE_CACHE_MAX_BYTES",
        "PERDURE_CAPACITY",
        "PERDURE_DATA_DIR",  # of commands as well: the folder of `perdure up`
        "PERDURE_DRAIN_S",
        "PERDURE_HEALTH_HOST",
        "PERDURE_HEALTH_PORT",
        "PERDURE_HTTP_HOST",
        "PERDURE_HTTP_PORT",
        "PERDURE_LOG_LEVEL",
        "PERDURE_LOG_URL",
        "PERDURE_STORE_URL",
        "PERDURE_THREADS",
        "PERDURE_TRUSTED_NETWORK",
        "PERDURE_WORKER_ID",
    }
)
# What others read: commands and the SDK, tests that kill, docker-compose.yml.
OTHERS: Final = frozenset(
    {
        "PERDURE_SOURCE_HOSTS",
        "PERDURE_URL",
        "PERDURE_CRASH_AT",
        "PERDURE_POSTGRES_PASSWORD",
        "PERDURE_RABBITMQ_PASSWORD",
        "PERDURE_S3_ACCESS_KEY",
        "PERDURE_S3_SECRET_KEY",
    }
)
KNOWN: Final = SETTINGS | OTHERS | {name + FILE_SUFFIX for name in SETTINGS}

MAX_FILE_BYTES: Final = 65536  # a secret has some dozens; a wrong path may lead to anything
MAX_SHOWN_CHARACTERS: Final = 200
# Kubernetes, and links of Docker, tell each container of services beside it: of one that is called
# perdure-gateway in PERDURE_GATEWAY_SERVICE_HOST, PERDURE_GATEWAY_PORT=tcp://..., and more.
_NEIGHBOUR: Final = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_NEIGHBOURS_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://.*")
# Control and format characters, and ends of lines: nobody sees them, and no setting needs them.
_UNSEEN: Final = frozenset({"Cc", "Cf", "Zl", "Zp"})


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """For each PERDURE_ variable that nobody reads, and that is not empty: a phrase that says so,
    with the nearest name that is known. Small letters are no excuse.
    """
    for name, value in sorted(environment.items()):
        if not name.upper().startswith(PREFIX) or name in KNOWN or not value.strip():
            continue
        if _is_of_a_neighbour(name, value):
            continue
        bare = {known.removeprefix(PREFIX): known for known in sorted(KNOWN)}
        near = difflib.get_close_matches(name.upper().removeprefix(PREFIX), bare, n=1)
        meant = f"did you mean {bare[near[0]]}?" if near else "take it out"
        yield f"{shown(name)} is no setting of Perdure: {meant}"


def _is_of_a_neighbour(name: str, value: str) -> bool:
    if _NEIGHBOUR.fullmatch(name):
        return True
    return name.endswith("_PORT") and _NEIGHBOURS_ADDRESS.fullmatch(value) is not None


def variable(name: str, environment: Mapping[str, str]) -> str | None:
    """The value of a variable, given itself or as NAME_FILE; None when it is blank or not there.

    The line's end behind the value in a file does not belong to it. Raises InvalidSetting when
    both are given, the file cannot be read, or the value holds characters that cannot be seen or
    has spaces around it.
    """
    value, path = (_given(key, environment) for key in (name, name + FILE_SUFFIX))
    if value and path:
        raise InvalidSetting(f"{name} and {name}{FILE_SUFFIX} are both set: keep one of them")
    if not path:
        return value or None
    try:
        return _in_file(Path(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        # A secret that was set where its file's name belongs is not shown.
        named = shown(path) if Path(path).is_absolute() else "a relative path"
        raise InvalidSetting(
            f"{name}{FILE_SUFFIX} names {named}, which cannot be read: {reason}"
        ) from None


def shown(text: str) -> str:
    """`text` as a message can show it: quoted where that is needed, cut off, without passwords."""
    plain = masked(text) if "://" in text else text
    if len(plain) > MAX_SHOWN_CHARACTERS:
        plain = f"{plain[:MAX_SHOWN_CHARACTERS]}..."
    return plain if re.fullmatch(r"[A-Za-z0-9_]+", plain) else repr(plain)


def _given(name: str, environment: Mapping[str, str]) -> str:
    value = environment.get(name, "")
    if value.strip() and (fault := _fault(value)):
        raise InvalidSetting(f"{name} cannot be used: {fault}")
    return value.strip()


def _in_file(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
    value = content.decode().rstrip("\r\n")
    if not value.strip():
        raise ValueError("it is empty")
    if fault := _fault(value):
        raise ValueError(fault)
    return value


def _fault(value: str) -> str:
    """Why no setting can have this value; "" when one can. It does not show the value."""
    for place, character in enumerate(value, 1):
        if unicodedata.category(character) in _UNSEEN:
            return f"its character {place} is {character!a}: take that out"
    return "" if value == value.strip() else "it begins or ends with a space: take that out"
