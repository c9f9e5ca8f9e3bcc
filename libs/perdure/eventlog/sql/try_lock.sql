-- Take the advisory lock $1 for this session, if nobody has it.
SELECT pg_try_advisory_lock($1)
