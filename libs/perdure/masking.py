"""Addresses without the passwords in them: what may be logged and shown."""

import re
from typing import Final

_MASK: Final = "***"
_SECRET_PARAMETER: Final = re.compile(r"(?i)((?:^|[?&;])[^=&;]*pass[^=&;]*=)[^&;]*")
# "user:password" with the host forgotten: after the colon stands no port.
_LONE_ACCOUNT: Final = re.compile(r"^([^:/?#\[]*):(?!\d{1,5}(?:[,/?#]|$)).*", re.DOTALL)


def masked(url: str) -> str:
    """`url` without its password, also when it is malformed. What is no URL is masked whole."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _MASK
    account, at, place = rest.rpartition("@")
    if at:
        user, colon, _password = account.partition(":")
        account = f"{user}:{_MASK}@" if colon else f"{user}@"
    else:
        place = _LONE_ACCOUNT.sub(rf"\1:{_MASK}", place)
    place = _SECRET_PARAMETER.sub(rf"\1{_MASK}", place)
    return f"{scheme}://{account}{place}"
