-- Where the log ends, after its head and after its events, at one moment. NULLs: the head is missing.
SELECT head.position, head.hash, coalesce((SELECT max(position) FROM perdure.event_log), 0) AS last
FROM (VALUES (true)) AS one (only_row) LEFT JOIN perdure.log_head AS head USING (only_row)
