"""The keys to an S3 store. They come from the environment, and go into no URL, log or message."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perdure.errors import InvalidSetting

ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name
SESSION_TOKEN: Final = "AWS_SESSION_TOKEN"  # noqa: S105 - a variable's name

# Each of them can also be given as NAME_FILE: a file that holds the value, as container secrets do.
FILE_SUFFIX: Final = "_FILE"
CREDENTIAL_VARIABLES: Final = frozenset(
    name + suffix
    for name in (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
    for suffix in ("", FILE_SUFFIX)
)


@dataclass(frozen=True)
class Credentials:
    """An access key with its secret, and the session token of keys that are only lent."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def read_credentials(environment: Mapping[str, str] | None = None) -> Credentials:
    """The keys that the environment holds. Raises InvalidSetting naming what is missing."""
    variables = os.environ if environment is None else environment
    access_key, secret_key = _value(variables, ACCESS_KEY), _value(variables, SECRET_KEY)
    missing = [
        name for name, value in ((ACCESS_KEY, access_key), (SECRET_KEY, secret_key)) if not value
    ]
    if missing:
        raise InvalidSetting(
            f"the object store needs keys, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set: set {ACCESS_KEY} and {SECRET_KEY} "
            f"(or {ACCESS_KEY}{FILE_SUFFIX} and {SECRET_KEY}{FILE_SUFFIX}, naming files)"
        )
    return Credentials(access_key, secret_key, _value(variables, SESSION_TOKEN) or None)


def _value(variables: Mapping[str, str], name: str) -> str:
    value, path = (variables.get(key, "").strip() for key in (name, name + FILE_SUFFIX))
    if value and path:
        raise InvalidSetting(f"{name} and {name}{FILE_SUFFIX} are both set: keep one of them")
    if not path:
        return value
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidSetting(
            f"{name}{FILE_SUFFIX} names {path!r}, which cannot be read: {reason}"
        ) from None
