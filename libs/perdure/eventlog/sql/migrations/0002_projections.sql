-- Read models: documents, and the position up to which each projection was built. All of it can be rebuilt.

CREATE TABLE perdure.projection (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    position bigint NOT NULL CHECK (position >= 0)
) WITH (fillfactor = 50);

CREATE TABLE perdure.document (
    projection text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    created bigint NOT NULL, -- position of the event that made the key appear
    body text NOT NULL,      -- JSON; as text, because jsonb cannot hold every string
    body_json jsonb NOT NULL GENERATED ALWAYS AS (perdure.queryable(body)) STORED,
    PRIMARY KEY (projection, key)
) WITH (fillfactor = 70); -- no index on the body: an update then stays on its page

CREATE INDEX document_newest_first ON perdure.document (projection, created DESC, key);

-- Move a checkpoint and write documents, or neither: false when the checkpoint was not at `expected`.
CREATE FUNCTION perdure.commit_projection(
    projection_name text, expected bigint, new_position bigint, keys text[], created bigint[], bodies text[]
) RETURNS boolean
    LANGUAGE plpgsql AS $$
BEGIN
    IF expected = 0 THEN
        INSERT INTO perdure.projection (name, position) VALUES (projection_name, 0) ON CONFLICT DO NOTHING;
    END IF;
    UPDATE perdure.projection SET position = new_position
    WHERE name = projection_name AND position = expected;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO perdure.document (projection, key, created, body)
    SELECT projection_name, given.key, given.created, given.body
    FROM unnest(keys, created, bodies) AS given (key, created, body)
    ON CONFLICT (projection, key) DO UPDATE SET created = excluded.created, body = excluded.body;
    RETURN true;
END
$$;

-- Forget a projection. The checkpoint goes first: its row's lock keeps a projector from writing in between.
CREATE FUNCTION perdure.reset_projection(projection_name text) RETURNS void
    LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM perdure.projection WHERE name = projection_name;
    DELETE FROM perdure.document WHERE projection = projection_name;
END
$$;
