"""Comparing what was read with what was stored. One rule for all backends."""

from perdure.errors import DamagedObject


def check_digest(key: str, actual: str, *, recorded: str | None, expected: str | None) -> None:
    """Raise DamagedObject unless an object's digest is the one it was stored with and the one that
    was asked for. None: nothing is known, or was asked for.
    """
    for digest, origin in ((recorded, "it was stored with"), (expected, "was asked for")):
        if digest is not None and digest != actual:
            raise DamagedObject(
                f"object {key} has digest {actual}, but {digest} {origin}: "
                "its bytes have changed; store it again"
            )
