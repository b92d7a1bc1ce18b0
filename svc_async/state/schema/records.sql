-- Records of journals, of the states of lists and of jobs on a cluster. `svc_async/store` says what a record is.

CREATE TABLE svc_async.stores (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    what text COLLATE "C" NOT NULL, -- journal, sync or job
    name text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 500),
    job text COLLATE "C" NOT NULL GENERATED ALWAYS AS (regexp_replace(name, '/[0-9]{4,}$', '')) STORED, -- of a part
    epoch bigint NOT NULL, -- how often it was taken up
    owner text NOT NULL, -- the host and the process that have taken it up last
    finished boolean NOT NULL DEFAULT false,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    confirmed_at timestamptz, -- when a process last committed that it may send requests
    UNIQUE (what, name)
) WITH (fillfactor = 50);

CREATE INDEX ON svc_async.stores (job);

CREATE TABLE svc_async.records (
    store bigint NOT NULL REFERENCES svc_async.stores ON DELETE CASCADE,
    kind text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL CHECK (octet_length(body) <= 67108864),
    checksum bigint NOT NULL,
    PRIMARY KEY (store, kind, number)
) WITH (fillfactor = 50); -- most commits replace a few of them

-- Hashes do not become smaller.
ALTER TABLE svc_async.records ALTER COLUMN body SET STORAGE EXTERNAL;

-- Return whether a process still has a store. Until the transaction ends, nobody else can take it up.
CREATE FUNCTION svc_async.hold_store(held bigint, since bigint) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN -- a commit that was reported must survive a power cut
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE svc_async.stores SET active_at = clock_timestamp() WHERE id = held AND epoch = since;
    RETURN FOUND;
END $$;

-- Insert, replace or (where the body is null) delete records; return false, and do nothing, if another process has them.
CREATE FUNCTION svc_async.commit_records(
    held bigint, since bigint, kinds text[], numbers bigint[], bodies bytea[], checksums bigint[], is_last boolean,
    confirms boolean
) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT svc_async.hold_store(held, since) THEN
        RETURN false;
    END IF;
    IF is_last OR confirms THEN
        UPDATE svc_async.stores SET
            finished = finished OR is_last,
            confirmed_at = CASE WHEN confirms THEN clock_timestamp() ELSE confirmed_at END
        WHERE id = held;
    END IF;
    DELETE FROM svc_async.records AS found
        USING unnest(kinds, numbers, bodies) AS given (kind, number, body)
        WHERE found.store = held AND found.kind = given.kind AND found.number = given.number AND given.body IS NULL;
    INSERT INTO svc_async.records (store, kind, number, body, checksum)
        SELECT held, given.kind, given.number, given.body, given.checksum
        FROM unnest(kinds, numbers, bodies, checksums) AS given (kind, number, body, checksum)
        WHERE given.body IS NOT NULL
        ON CONFLICT (store, kind, number) DO UPDATE SET body = excluded.body, checksum = excluded.checksum;
    RETURN true;
END $$;
