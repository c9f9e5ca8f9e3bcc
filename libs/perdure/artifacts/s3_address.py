"""Where an S3 store is: `s3+http://HOST:PORT/BUCKET` or `s3+https://HOST[:PORT]/BUCKET[/PREFIX]`,
with `?region=NAME` where the server wants one.
"""

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from perdure.artifacts.keys import checked_key
from perdure.errors import InvalidInput, InvalidSetting

SCHEMES: Final = {"s3+http": False, "s3+https": True}
FORM: Final = "s3+http://HOST:PORT/BUCKET or s3+https://HOST[:PORT]/BUCKET[/PREFIX]"

# Of a bucket that a data set is read from; other programs know it by the same name.
SOURCE_ENDPOINT_VARIABLE: Final = "AWS_ENDPOINT_URL"
SOURCE_ENDPOINT: Final = "https://s3.amazonaws.com"

# Amazon's rules for new buckets; other servers take no more than these.
_BUCKET: Final = re.compile(r"(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_HOST: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?")
_REGION: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True)
class S3Address:
    """A bucket on a server, and where in it the keys begin. It holds no secret."""

    host: str  # with its port, when the URL names one
    secure: bool
    bucket: str
    prefix: str = ""  # empty, or ends with '/'
    region: str | None = None
    is_source: bool = False  # the bucket is a user's, from which a data set is only read

    @property
    def named_by(self) -> str:
        """The variable that says where the server is."""
        return SOURCE_ENDPOINT_VARIABLE if self.is_source else "PERDURE_STORE_URL"

    def __str__(self) -> str:
        """How messages name it."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{self.host}/{self.bucket}/{self.prefix}".rstrip("/")


def parse_address(parts: SplitResult) -> S3Address:
    """The address in a URL of one of SCHEMES.

    Raises InvalidSetting. Its message never shows the URL: it may hold a key that does not belong
    there.
    """
    if "@" in parts.netloc:
        raise InvalidSetting(
            "the URL of the object store holds keys: take them out, and set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY instead"
        )
    bucket, _, prefix = parts.path.removeprefix("/").removesuffix("/").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise _wrong("its bucket is not 3 to 63 lower-case letters, digits, '-' and '.'")
    if prefix:
        try:
            checked_key(prefix)
        except InvalidInput:
            raise _wrong("what follows the bucket is not a plain path") from None
        prefix += "/"
    return S3Address(_host(parts), SCHEMES[parts.scheme], bucket, prefix, _region(parts))


def source_address(bucket: str, prefix: str, endpoint: str, region: str | None) -> S3Address:
    """Where a data set lies: in `bucket`, below `prefix`, on the server at `endpoint`.

    Raises InvalidInput for a bucket that cannot be one, and InvalidSetting for an endpoint or
    region.
    """
    if not _BUCKET.fullmatch(bucket):
        raise InvalidInput(
            f"{bucket[:100]!r} is no name of a bucket: write s3://BUCKET/PREFIX, with 3 to 63 "
            "lower-case letters, digits, '-' and '.' for BUCKET"
        )
    try:
        parts = urlsplit(endpoint)
        place = S3Address(_host(parts), {"http": False, "https": True}[parts.scheme], bucket)
    except (InvalidSetting, KeyError, ValueError):
        place = None
    if place is None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidSetting(
            f"{SOURCE_ENDPOINT_VARIABLE} is not the URL of an S3 server: write https://HOST[:PORT]"
        )
    if region is not None and not _REGION.fullmatch(region):
        raise InvalidSetting("AWS_REGION is not lower-case letters, digits and '-': correct it")
    return replace(place, prefix=prefix, region=region, is_source=True)


def _host(parts: SplitResult) -> str:
    try:
        named = _HOST.fullmatch(parts.netloc) and parts.port != 0
    except ValueError:
        named = None
    if not named:
        raise _wrong("its host or port is missing or wrong")
    return parts.netloc


def _region(parts: SplitResult) -> str | None:
    given = parse_qsl(parts.query, keep_blank_values=True)
    if parts.fragment or any(name != "region" for name, _ in given) or len(given) > 1:
        raise _wrong("only ?region=NAME may follow the path")
    if not given:
        return None
    region = given[0][1]
    if not _REGION.fullmatch(region):
        raise _wrong("its region is not lower-case letters, digits and '-'")
    return region


def _wrong(fault: str) -> InvalidSetting:
    return InvalidSetting(f"the URL of the object store is wrong: {fault}; write {FORM}")
