-- Where the log ends.
SELECT position, hash FROM perdure.log_head
