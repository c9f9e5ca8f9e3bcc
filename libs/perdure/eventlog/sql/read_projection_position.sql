-- The checkpoint of projection $1; no row: it has not begun.
SELECT position FROM perdure.projection WHERE name = $1
