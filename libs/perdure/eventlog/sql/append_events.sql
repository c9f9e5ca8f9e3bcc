-- Append requests: what became of them.
SELECT request, outcome, positions, versions, hashes, stream, actual, event_id
FROM perdure.append_events($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
