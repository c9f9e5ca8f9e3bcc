-- The session that holds the advisory lock $1 of this database, and whether it is this one. No row: nobody has it.
-- pg_locks shows a bigint key as two halves, with objsubid 1. Sessions of other accounts show no address.
SELECT pid, pid = pg_backend_pid() AS own, activity.application_name,
    CASE WHEN activity.client_port = -1 THEN 'a local socket' ELSE host(activity.client_addr) END AS address
FROM pg_locks
LEFT JOIN pg_stat_activity AS activity USING (pid)
WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32) | objid::bigint = $1
