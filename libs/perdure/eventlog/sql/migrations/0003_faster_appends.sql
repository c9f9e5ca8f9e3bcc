-- Appends that cost less. What is stored, and every hash, is as before.

-- Payloads are parsed when somebody asks, not on every append.
ALTER TABLE perdure.event_log DROP COLUMN data_json, DROP COLUMN metadata_json;

-- The log for queries by people: with its payloads as jsonb.
CREATE VIEW perdure.events AS
SELECT
    position, stream, version, type, event_id, hash,
    perdure.queryable(data) AS data, perdure.queryable(metadata) AS metadata
FROM perdure.event_log;

DROP FUNCTION perdure.append_events(int[], text[], bigint[], int[], text[], bigint[], text[], text[], text[], text[]);

-- Append requests in one transaction: each one all or nothing, and independent of the others.
--
-- A request is a number, the streams it touches with the versions they are expected to be at, and its events
-- in order, with the versions they will get. No two requests of one call may share a stream or an event id:
-- the caller sees to that (a breach fails the whole call on a unique constraint).
--
-- Lists of texts come as lines, which are read faster than arrays: no name has a line break, and JSON escapes it.
--
-- The first row tells where the events went, refused or not: request NULL, outcome "appended", and positions and
-- hashes with one entry per event of the call, NULL for one that was refused. The others are those of
-- refused_requests.
CREATE FUNCTION perdure.append_events(
    stream_request int[], stream_lines text, stream_expected bigint[],
    event_request int[], event_stream_lines text, event_version bigint[], event_type_lines text,
    event_id_lines text, event_data_lines text, event_metadata_lines text
) RETURNS SETOF perdure.append_outcome
    LANGUAGE plpgsql
    -- Plans are kept for the life of a connection and made while the log may be small: index lookups always.
    SET enable_seqscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    AS $$
DECLARE
    stream_name text[] := string_to_array(stream_lines, E'\n');
    event_stream text[] := string_to_array(event_stream_lines, E'\n');
    event_type text[] := string_to_array(event_type_lines, E'\n');
    event_id text[] := string_to_array(event_id_lines, E'\n');
    event_data text[] := string_to_array(event_data_lines, E'\n');
    event_metadata text[] := string_to_array(event_metadata_lines, E'\n');
    head_position bigint;
    head_hash text;
    last_position bigint;
    last_hash text;
    refused perdure.append_outcome[] := '{}';
    refused_requests int[] := '{}';
    checked boolean;
    new_positions bigint[];
    new_hashes text[];
BEGIN
    SELECT position, hash INTO STRICT head_position, head_hash FROM perdure.log_head FOR UPDATE;
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

        -- The chain: each hash needs the one before.
        last_position := head_position;
        last_hash := head_hash;
        new_positions := '{}';
        new_hashes := '{}';
        FOR i IN 1 .. cardinality(event_id) LOOP
            IF event_request[i] = ANY (refused_requests) THEN
                new_positions := new_positions || NULL::bigint;
                new_hashes := new_hashes || NULL::text;
            ELSE
                last_position := last_position + 1;
                last_hash := encode(sha256(convert_to(
                    perdure.netstring(last_hash) || perdure.netstring(last_position::text)
                    || perdure.netstring(event_stream[i]) || perdure.netstring(event_version[i]::text)
                    || perdure.netstring(event_type[i]) || perdure.netstring(event_id[i])
                    || perdure.netstring(event_data[i]) || perdure.netstring(event_metadata[i]), 'UTF8'
                )), 'hex');
                new_positions := new_positions || last_position;
                new_hashes := new_hashes || last_hash;
            END IF;
        END LOOP;
        EXIT WHEN last_position = head_position;

        BEGIN
            INSERT INTO perdure.event_log (position, stream, version, type, event_id, data, metadata, hash)
            SELECT event.* FROM unnest(
                new_positions, event_stream, event_version, event_type, event_id, event_data, event_metadata,
                new_hashes
            ) AS event (position, stream, version, type, event_id, data, metadata, hash)
            WHERE event.position IS NOT NULL;
            UPDATE perdure.log_head SET position = last_position, hash = last_hash;
            PERFORM pg_notify('perdure_log', last_position::text);
            EXIT;
        EXCEPTION WHEN unique_violation THEN
            IF checked THEN
                RAISE;
            END IF;
            checked := true; -- an id is known though the streams are as expected: look closely
        END;
    END LOOP;

    RETURN NEXT (NULL, 'appended', new_positions, NULL, new_hashes, NULL, NULL, NULL)::perdure.append_outcome;
    IF checked THEN
        RETURN QUERY SELECT * FROM unnest(refused);
    END IF;
END
$$;
