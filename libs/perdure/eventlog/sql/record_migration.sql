-- Migration number $1, name $2, checksum $3 has been applied.
INSERT INTO perdure.migration (number, name, checksum) VALUES ($1, $2, $3)
