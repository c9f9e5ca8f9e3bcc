"""What goes wrong between us and an S3 server, as errors of Perdure."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from xml.etree.ElementTree import ParseError

from minio.error import InvalidResponseError, MinioException, S3Error
from urllib3.exceptions import HTTPError, ProtocolError, SSLError

from perdure.artifacts.s3_address import S3Address
from perdure.errors import NotFound, StoreDenied, StoreUnavailable

DENIED: Final = frozenset({401, 403})
_MISSING_OBJECT: Final = frozenset({"NoSuchKey", "NoSuchVersion"})
_MISSING_BUCKET: Final = "NoSuchBucket"
_PRECONDITION: Final = "PreconditionFailed"
_STORAGE_FULL: Final = 507


class BucketMissing(StoreUnavailable):
    """The bucket of the object store is gone."""


class Replaced(StoreUnavailable):
    """The object was replaced while it was being read: read it again."""


@contextmanager
def asking(address: S3Address, doing: str, key: str = "") -> Iterator[None]:
    """Turn what the S3 client raises in the block into NotFound (of `key`), StoreDenied,
    StoreUnavailable, BucketMissing or Replaced. `doing` completes "failed while ...".
    """
    try:
        yield
    except S3Error as error:
        if error.code in _MISSING_OBJECT:
            raise NotFound(f"the object store has no object {key}") from error
        raise _refusal(address, doing, error) from error
    except InvalidResponseError:
        # Without the answer itself, which may be any page of any program.
        raise unavailable(address, doing, "what answers is no S3 server") from None
    except HTTPError as error:
        raise unavailable(address, doing, _reason(error)) from error
    except (MinioException, ParseError, ValueError) as error:
        # The client's ValueErrors are about our arguments, which were checked, or about answers.
        raise unavailable(address, doing, f"its answer is not understood ({error})") from error


def unavailable(address: S3Address, doing: str, reason: str) -> StoreUnavailable:
    """The error for a store that does not do its work now."""
    return StoreUnavailable(
        f"the object store at {address} failed while {doing}: {reason}; see that it runs and that "
        f"{address.named_by} names it, then try again"
    )


def _refusal(address: S3Address, doing: str, error: S3Error) -> StoreUnavailable:
    status = error.response.status
    if error.code == _MISSING_BUCKET:
        return BucketMissing(f"the bucket of the object store at {address} is gone ({doing})")
    if error.code == _PRECONDITION:
        return Replaced(f"the object was replaced in the object store while {doing}: try again")
    if status in DENIED:
        uses = "read" if address.is_source else "read, write and delete"
        return StoreDenied(
            f"the object store at {address} denies access while {doing} ({error.code}): see that "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are right, that the clocks agree, and "
            f"that the key may list the bucket and {uses} its objects"
        )
    if status == _STORAGE_FULL:
        return unavailable(address, doing, "it is full: free some space")
    return unavailable(
        address,
        doing,
        f"it refuses the request ({status} {error.code}); a wrong server or region (?region=NAME) "
        "can be the reason",
    )


def _reason(error: HTTPError) -> str:
    if isinstance(error, SSLError):
        return f"no secure connection can be made ({error})"
    if isinstance(error, ProtocolError) and len(error.args) > 1:
        return f"the connection broke ({error.args[1]})"
    return str(error)
