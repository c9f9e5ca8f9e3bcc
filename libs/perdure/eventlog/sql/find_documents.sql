-- Up to $4 documents of projection $1 whose fields equal those of the JSON object $2, created below $3 if given.
SELECT key, created, body
FROM perdure.document
WHERE projection = $1 AND body_json @> $2::text::jsonb AND ($3::bigint IS NULL OR created < $3)
ORDER BY created DESC, key
LIMIT $4
