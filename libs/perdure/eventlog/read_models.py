"""The read models on PostgreSQL."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perdure.eventlog.connection import fetch
from perdure.eventlog.port import Document
from perdure.eventlog.statements import statement


class PostgresReadModels:
    """ReadModels on a pool of connections, which belongs to the log that was opened with it."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def position(self, projection: str) -> int:
        """The checkpoint. See the port."""
        rows = await fetch(self._pool, statement("read_projection_position"), projection)
        return rows[0]["position"] if rows else 0

    async def commit(
        self, projection: str, *, expected: int, position: int, documents: Sequence[Document] = ()
    ) -> bool:
        """Write documents and move the checkpoint, or neither. See the port."""
        last_of_key = {document.key: document for document in documents}.values()
        rows = await fetch(
            self._pool,
            statement("commit_projection"),
            projection,
            expected,
            position,
            [document.key for document in last_of_key],
            [document.created for document in last_of_key],
            [json.dumps(document.body) for document in last_of_key],
        )
        return bool(rows[0]["moved"])

    async def get(self, projection: str, key: str) -> Document | None:
        """One document. See the port."""
        rows = await fetch(self._pool, statement("read_document"), projection, key)
        return _document(rows[0]) if rows else None

    async def find(
        self,
        projection: str,
        *,
        where: Mapping[str, str] | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[Document]:
        """Documents by their fields, newest first. See the port."""
        fields = json.dumps(dict(where or {}))
        rows = await fetch(
            self._pool, statement("find_documents"), projection, fields, before, limit
        )
        return [_document(row) for row in rows]

    async def reset(self, projection: str) -> None:
        """Drop a projection. See the port."""
        await fetch(self._pool, statement("reset_projection"), projection)


def _document(row: Any) -> Document:
    return Document(key=row["key"], created=row["created"], body=json.loads(row["body"]))
