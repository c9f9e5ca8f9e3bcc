"""A bucket on an S3 server, and a client to ask it."""

from collections.abc import Callable
from typing import Final, TypeVar

from minio import Minio
from minio.error import S3Error

from perdure.artifacts.credentials import Credentials
from perdure.artifacts.keys import MAX_KEY_CHARACTERS, checked_key
from perdure.artifacts.s3_address import FORM, S3Address
from perdure.artifacts.s3_errors import DENIED, BucketMissing, asking
from perdure.artifacts.s3_transport import PatientPool
from perdure.errors import InvalidInput, InvalidSetting, StoreDenied

_EXISTS: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})

Result = TypeVar("Result")


def client_of(address: S3Address, credentials: Credentials) -> Minio:
    """A client of a bucket's server; it connects to nothing yet.

    Raises InvalidSetting when the host's name cannot be one.
    """
    try:
        return Minio(
            address.host,
            credentials.access_key,
            credentials.secret_key,
            credentials.session_token,
            secure=address.secure,
            region=address.region,
            http_client=PatientPool(),
        )
    except ValueError as error:
        form = "https://HOST[:PORT]" if address.is_source else FORM
        raise InvalidSetting(
            f"the URL of the object store is wrong: {error}; write {form} ({address.named_by})"
        ) from None


class S3Bucket:
    """A bucket, which is made at the first use when it is missing and the key may. Thread-safe."""

    def __init__(self, address: S3Address, credentials: Credentials) -> None:
        """Connects to nothing yet. Raises InvalidSetting when the host's name cannot be one."""
        self.address = address
        self.name = address.bucket
        self._found = False
        self.client = client_of(address, credentials)

    def place(self, key: str) -> str:
        """Where in the bucket the object `key` lies. Raises InvalidInput when that is no key."""
        place = self.address.prefix + checked_key(key)
        if len(place) > MAX_KEY_CHARACTERS:
            raise InvalidInput(
                f"object key {key[:200]!r} is refused: with the store's prefix in front, it has "
                f"more than {MAX_KEY_CHARACTERS} characters"
            )
        return place

    def ask(self, doing: str, call: Callable[[], Result], key: str = "") -> Result:
        """What `call`, which asks the client, gives; it may be called twice.

        Raises what s3_errors.asking does.
        """
        self._find()
        try:
            with asking(self.address, doing, key):
                return call()
        except BucketMissing:  # deleted, or the server was emptied, since we found it
            self._found = False
        self._find()
        with asking(self.address, doing, key):
            return call()

    def _find(self) -> None:
        if self._found:
            return
        with asking(self.address, "looking for its bucket"):
            try:
                exists = self.client.bucket_exists(self.name)
            except S3Error as error:
                if error.response.status not in DENIED:
                    raise
                exists = True  # the key may not ask, and may still use it; else the next call tells
            if not exists:
                self._make()
        self._found = True

    def _make(self) -> None:
        try:
            self.client.make_bucket(self.name)
        except S3Error as error:
            if error.response.status in DENIED:
                raise StoreDenied(
                    f"the object store at {self.address} has no bucket {self.name}, and our key "
                    f"may not make one ({error.code}): make it, or correct PERDURE_STORE_URL"
                ) from error
            if error.code not in _EXISTS:  # another process was faster
                raise
