-- Which migrations were applied.
CREATE SCHEMA IF NOT EXISTS perdure;
CREATE TABLE perdure.migration (
    number int NOT NULL PRIMARY KEY,
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)
