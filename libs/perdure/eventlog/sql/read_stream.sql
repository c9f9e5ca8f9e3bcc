-- Events of stream $1, versions $2 to $3. Columns in the order of StoredEvent.
SELECT position, stream, version, type, event_id, data, metadata, hash
FROM perdure.event_log
WHERE stream = $1 AND version BETWEEN $2 AND $3
ORDER BY version
