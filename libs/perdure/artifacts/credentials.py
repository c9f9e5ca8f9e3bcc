"""The keys to an S3 store. They come from the environment, and go into no URL, log or message."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from perdure.environment import FILE_SUFFIX, variable
from perdure.errors import InvalidSetting

ACCESS_KEY: Final = "AWS_ACCESS_KEY_ID"
SECRET_KEY: Final = "AWS_SECRET_ACCESS_KEY"  # noqa: S105 - a variable's name
SESSION_TOKEN: Final = "AWS_SESSION_TOKEN"  # noqa: S105 - a variable's name

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
    access_key, secret_key = variable(ACCESS_KEY, variables), variable(SECRET_KEY, variables)
    if access_key and secret_key:
        return Credentials(access_key, secret_key, variable(SESSION_TOKEN, variables))
    given = {ACCESS_KEY: access_key, SECRET_KEY: secret_key}
    missing = [name for name, value in given.items() if not value]
    raise InvalidSetting(
        f"the object store needs keys, and {' and '.join(missing)} "
        f"{'is' if len(missing) == 1 else 'are'} not set: set {ACCESS_KEY} and {SECRET_KEY} "
        f"(or {ACCESS_KEY}{FILE_SUFFIX} and {SECRET_KEY}{FILE_SUFFIX}, naming files)"
    )
