-- Move projection $1 from position $2 to $3 and write its documents (keys $4, created $5, bodies $6), or neither.
SELECT perdure.commit_projection($1, $2, $3, $4, $5, $6) AS moved
