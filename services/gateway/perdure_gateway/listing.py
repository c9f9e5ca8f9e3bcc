"""Pages of a read model."""

from collections.abc import Mapping
from typing import Annotated, Final

from fastapi import Query

from perdure.eventlog.port import Document
from perdure_gateway.context import Gateway

MAX_PAGE: Final = 500
SCAN_PAGE: Final = 500
# Above it JSON numbers lose digits in many clients; the database itself ends at 2**63 - 1.
MAX_POSITION: Final = 2**53 - 1

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Before = Annotated[int | None, Query(ge=1, le=MAX_POSITION)]
Prefix = Annotated[str, Query(max_length=128)]


async def page(
    gateway: Gateway,
    projection: str,
    *,
    limit: int,
    before: int | None,
    prefix: str = "",
    where: Mapping[str, str] | None = None,
) -> tuple[list[Document], int | None]:
    """Up to `limit` documents, newest first, whose key starts with `prefix`, and the next page's
    `before`.
    """
    await gateway.settle(projection)
    found: list[Document] = []
    while len(found) <= limit:
        size = SCAN_PAGE if prefix else limit + 1
        documents = await gateway.read_models.find(
            projection, where=where, before=before, limit=size
        )
        found += [document for document in documents if document.key.startswith(prefix)]
        if len(documents) < size:
            break
        before = documents[-1].created
    return found[:limit], (found[limit - 1].created if len(found) > limit else None)
