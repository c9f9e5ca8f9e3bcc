-- Drop the documents and the checkpoint of projection $1.
SELECT perdure.reset_projection($1)
