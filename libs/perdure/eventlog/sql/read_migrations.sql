-- The migrations that were applied, in order.
SELECT number, name, checksum FROM perdure.migration ORDER BY number
