-- Document $2 of projection $1.
SELECT key, created, body FROM perdure.document WHERE projection = $1 AND key = $2
