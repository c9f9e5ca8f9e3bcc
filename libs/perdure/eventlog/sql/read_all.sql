-- Up to $2 events above position $1. Columns in the order of StoredEvent.
SELECT position, stream, version, type, event_id, data, metadata, hash
FROM perdure.event_log
WHERE position > $1
ORDER BY position
LIMIT $2
