-- The event log: append-only, gapless in position, hash-chained (docs/decisions/0001-log-order-and-chain.md).

DO $$
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'the database has encoding %, but events are UTF-8: make one with ENCODING ''UTF8''',
            current_setting('server_encoding');
    END IF;
END
$$;

-- JSON text as jsonb, for queries only. jsonb cannot hold the character U+0000, which a log tail may contain:
-- there, and only there, it reads as U+FFFD. The text that was hashed keeps it.
CREATE FUNCTION perdure.queryable(text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN replace($1, '\u0000', '\ufffd')::jsonb;

CREATE TABLE perdure.event_log (
    position bigint NOT NULL PRIMARY KEY CHECK (position > 0),
    stream text COLLATE "C" NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    type text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL UNIQUE,
    data text NOT NULL,      -- canonical JSON (RFC 8785), exactly as hashed
    metadata text NOT NULL,  -- the same: time, correlation_id, causation_id, source
    hash text COLLATE "C" NOT NULL CHECK (length(hash) = 64),
    data_json jsonb NOT NULL GENERATED ALWAYS AS (perdure.queryable(data)) STORED,
    metadata_json jsonb NOT NULL GENERATED ALWAYS AS (perdure.queryable(metadata)) STORED,
    UNIQUE (stream, version)
);

-- One row, locked by every append: positions are handed out in the order of the commits.
CREATE TABLE perdure.log_head (
    only_row boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (only_row),
    position bigint NOT NULL,
    hash text COLLATE "C" NOT NULL
) WITH (fillfactor = 10); -- updated by every append: room for the old versions on its one page

INSERT INTO perdure.log_head (position, hash) VALUES (0, repeat('0', 64));

CREATE FUNCTION perdure.refuse_change() RETURNS trigger
    LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: the event log is append-only', TG_OP, TG_TABLE_NAME
        USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON perdure.event_log
    FOR EACH STATEMENT EXECUTE FUNCTION perdure.refuse_change();
CREATE TRIGGER one_row BEFORE DELETE OR TRUNCATE ON perdure.log_head
    FOR EACH STATEMENT EXECUTE FUNCTION perdure.refuse_change();
CREATE TRIGGER only_forward BEFORE UPDATE ON perdure.log_head
    FOR EACH ROW WHEN (NEW.position <= OLD.position) EXECUTE FUNCTION perdure.refuse_change();
-- ALWAYS: also for a session that calls itself a replica.
ALTER TABLE perdure.event_log ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE perdure.log_head ENABLE ALWAYS TRIGGER one_row;
ALTER TABLE perdure.log_head ENABLE ALWAYS TRIGGER only_forward;

-- What became of one append request.
--   appended   positions, versions, hashes: one entry per event, in order
--   duplicate  the same, as recorded the first time: all its ids are known, with the same content
--   conflict   stream: the first one that is not at its expected version; actual: the version it is at
--   reused     event_id: the first one that is in the log with other content, or missing though others are there
CREATE TYPE perdure.append_outcome AS (
    request int, outcome text,
    positions bigint[], versions bigint[], hashes text[],
    stream text, actual bigint, event_id text
);

-- A field of a hash, as a netstring: "<length in bytes>:<text>,". Lengths make sure that no two different events
-- are the same bytes.
CREATE FUNCTION perdure.netstring(text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN octet_length($1)::text || ':' || $1 || ',';

-- The outcomes of those requests that cannot be appended: repeated ones, and those of which some stream is not at
-- the version that was expected. The arguments are those of append_events.
CREATE FUNCTION perdure.refused_requests(
    stream_request int[], stream_name text[], stream_expected bigint[],
    event_request int[], event_stream text[], event_type text[],
    event_id text[], event_data text[], event_metadata text[]
) RETURNS SETOF perdure.append_outcome
    LANGUAGE sql STABLE
    BEGIN ATOMIC
    WITH compared AS (
        SELECT
            given.request, given.ordinal, given.event_id, old.position, old.version, old.hash,
            coalesce(
                (old.stream, old.type, old.data, old.metadata)
                = (given.stream, given.type, given.data, given.metadata), false
            ) AS same
        FROM unnest(event_request, event_stream, event_type, event_id, event_data, event_metadata)
            WITH ORDINALITY AS given (request, stream, type, event_id, data, metadata, ordinal)
        LEFT JOIN perdure.event_log AS old ON old.event_id = given.event_id
    ),
    repeated AS (
        SELECT
            request,
            CASE WHEN bool_and(same) THEN 'duplicate' ELSE 'reused' END AS outcome,
            array_agg(position ORDER BY ordinal) AS positions,
            array_agg(version ORDER BY ordinal) AS versions,
            array_agg(hash ORDER BY ordinal) AS hashes,
            (array_agg(event_id ORDER BY ordinal) FILTER (WHERE NOT same))[1] AS event_id
        FROM compared
        GROUP BY request
        HAVING count(position) > 0
    ),
    conflicting AS (
        SELECT DISTINCT ON (asked.request) asked.request, asked.stream, coalesce(last.version, 0) AS actual
        FROM unnest(stream_request, stream_name, stream_expected)
            WITH ORDINALITY AS asked (request, stream, expected, ordinal)
        LEFT JOIN LATERAL (
            SELECT old.version FROM perdure.event_log AS old
            WHERE old.stream = asked.stream ORDER BY old.version DESC LIMIT 1
        ) AS last ON true
        WHERE coalesce(last.version, 0) <> asked.expected
        ORDER BY asked.request, asked.ordinal
    )
    SELECT request, outcome, positions, versions, hashes, NULL::text, NULL::bigint, event_id FROM repeated
    UNION ALL
    SELECT request, 'conflict', NULL, NULL, NULL, stream, actual, NULL FROM conflicting
    WHERE request NOT IN (SELECT request FROM repeated);
    END;

-- Append requests in one transaction: each one all or nothing, and independent of the others.
--
-- A request is a number, the streams it touches with the versions they are expected to be at, and its events
-- in order, with the versions they will get. No two requests of one call may share a stream or an event id:
-- the caller sees to that (a breach fails the whole call on a unique constraint).
-- A request without an outcome had no events, and its streams were as expected.
CREATE FUNCTION perdure.append_events(
    stream_request int[], stream_name text[], stream_expected bigint[],
    event_request int[], event_stream text[], event_version bigint[], event_type text[],
    event_id text[], event_data text[], event_metadata text[]
) RETURNS SETOF perdure.append_outcome
    LANGUAGE plpgsql
    -- Plans are kept for the life of a connection and made while the log may be small: index lookups always.
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    AS $$
DECLARE
    head perdure.log_head;
    last perdure.log_head;
    refused perdure.append_outcome[] := '{}';
    refused_requests int[] := '{}';
    checked boolean;
    given record;
    new_positions bigint[];
    new_hashes text[];
BEGIN
    SELECT * INTO STRICT head FROM perdure.log_head FOR UPDATE;
    -- From here on, every statement sees all that was committed before the lock was given.

    -- Mostly, all streams are as expected and all ids are new: so only the first is looked up, and the second is
    -- left to the unique index. An append that is repeated has in general found its streams moved on.
    checked := EXISTS (
        SELECT FROM unnest(stream_name, stream_expected) AS asked (stream, expected)
        WHERE asked.expected <> coalesce((
            SELECT old.version FROM perdure.event_log AS old
            WHERE old.stream = asked.stream ORDER BY old.version DESC LIMIT 1
        ), 0)
    );
    LOOP
        IF checked THEN
            SELECT coalesce(array_agg(one), '{}'), coalesce(array_agg(one.request), '{}')
            INTO refused, refused_requests
            FROM perdure.refused_requests(
                stream_request, stream_name, stream_expected,
                event_request, event_stream, event_type, event_id, event_data, event_metadata
            ) AS one;
        END IF;

        -- The chain: each hash needs the one before; the other fields are put together beforehand.
        last := head;
        new_positions := '{}';
        new_hashes := '{}';
        FOR given IN
            SELECT
                event.request = ANY (refused_requests) AS refused,
                perdure.netstring(event.stream) || perdure.netstring(event.version::text)
                || perdure.netstring(event.type) || perdure.netstring(event.event_id)
                || perdure.netstring(event.data) || perdure.netstring(event.metadata) AS fields
            FROM unnest(
                event_request, event_stream, event_version, event_type, event_id, event_data, event_metadata
            ) AS event (request, stream, version, type, event_id, data, metadata)
        LOOP
            IF given.refused THEN
                new_positions := new_positions || NULL::bigint;
                new_hashes := new_hashes || NULL::text;
            ELSE
                last.position := last.position + 1;
                last.hash := encode(sha256(convert_to(
                    perdure.netstring(last.hash) || perdure.netstring(last.position::text) || given.fields, 'UTF8'
                )), 'hex');
                new_positions := new_positions || last.position;
                new_hashes := new_hashes || last.hash;
            END IF;
        END LOOP;
        EXIT WHEN last.position = head.position;

        BEGIN
            INSERT INTO perdure.event_log (position, stream, version, type, event_id, data, metadata, hash)
            SELECT event.* FROM unnest(
                new_positions, event_stream, event_version, event_type, event_id, event_data, event_metadata,
                new_hashes
            ) AS event (position, stream, version, type, event_id, data, metadata, hash)
            WHERE event.position IS NOT NULL;
            UPDATE perdure.log_head SET position = last.position, hash = last.hash;
            PERFORM pg_notify('perdure_log', last.position::text);
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            IF checked THEN
                RAISE;
            END IF;
            checked := true; -- an id is known though the streams are as expected: look closely
        END;
    END LOOP;

    RETURN QUERY SELECT * FROM unnest(refused);
    RETURN QUERY
    SELECT
        event.request, 'appended', array_agg(event.position ORDER BY event.position),
        array_agg(event.version ORDER BY event.position), array_agg(event.hash ORDER BY event.position),
        NULL::text, NULL::bigint, NULL::text
    FROM unnest(event_request, new_positions, event_version, new_hashes)
        AS event (request, position, version, hash)
    WHERE event.position IS NOT NULL
    GROUP BY event.request;
END
$$;
