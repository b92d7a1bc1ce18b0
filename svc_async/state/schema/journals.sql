-- Journals of jobs: records of what is settled and what is in doubt, and rows of sources that can be read only once.

CREATE TABLE journals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 250),
    job text COLLATE "C" NOT NULL GENERATED ALWAYS AS (regexp_replace(name, '/[0-9]{4,}$', '')) STORED, -- of a part
    epoch bigint NOT NULL, -- how often it was taken up
    owner text NOT NULL, -- the host and the process that have taken it up last
    finished boolean NOT NULL DEFAULT false,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    confirmed_at timestamptz -- when a run last committed that it may send requests
) WITH (fillfactor = 50);

CREATE INDEX ON journals (job);

CREATE TABLE journal_records (
    journal bigint NOT NULL REFERENCES journals ON DELETE CASCADE,
    kind text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    body bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (journal, kind, number)
) WITH (fillfactor = 50); -- most commits replace a few of them

CREATE TABLE journal_rows (
    journal bigint NOT NULL REFERENCES journals ON DELETE CASCADE,
    number integer NOT NULL, -- from 0; the record with the number -1 says how many there are
    body bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (journal, number)
);

-- Return whether a run still has a journal. Until the transaction ends, nobody else can take it up.
CREATE FUNCTION hold_journal(held bigint, run bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN -- a commit that was reported must survive a power cut
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    UPDATE journals SET active_at = clock_timestamp() WHERE id = held AND epoch = run;
    RETURN FOUND;
END $$;

-- Insert, replace or (where the body is null) delete records; return false, and do nothing, if another run has it.
CREATE FUNCTION commit_journal(
    held bigint, run bigint, kinds text[], numbers bigint[], bodies bytea[], checksums bigint[], is_last boolean,
    confirms boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT hold_journal(held, run) THEN
        RETURN false;
    END IF;
    IF is_last OR confirms THEN
        UPDATE journals SET
            finished = finished OR is_last,
            confirmed_at = CASE WHEN confirms THEN clock_timestamp() ELSE confirmed_at END
        WHERE id = held;
    END IF;
    DELETE FROM journal_records AS found
        USING unnest(kinds, numbers, bodies) AS given (kind, number, body)
        WHERE found.journal = held AND found.kind = given.kind AND found.number = given.number AND given.body IS NULL;
    INSERT INTO journal_records (journal, kind, number, body, checksum)
        SELECT held, given.kind, given.number, given.body, given.checksum
        FROM unnest(kinds, numbers, bodies, checksums) AS given (kind, number, body, checksum)
        WHERE given.body IS NOT NULL
        ON CONFLICT (journal, kind, number) DO UPDATE SET body = excluded.body, checksum = excluded.checksum;
    RETURN true;
END $$;
