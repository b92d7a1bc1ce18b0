-- States of lists between two syncs. `svc_async/batch/sync/pages/records.py` says what the tables hold.

CREATE TABLE sync_lists (
    sync bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    target text NOT NULL UNIQUE CHECK (length(target) <= 500),
    epoch bigint NOT NULL,
    used_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE sync_about (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    target text NOT NULL CHECK (length(target) <= 500),
    pages bigint NOT NULL,
    rows bigint NOT NULL,
    expires bigint NOT NULL,
    monotonic double precision,
    boot text CHECK (length(boot) <= 500),
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id)
);

CREATE TABLE sync_page (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    ids bytea NOT NULL,
    rests bytea NOT NULL,
    names bytea NOT NULL,
    service_keys bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id),
    CHECK (octet_length(ids) + octet_length(rests) + octet_length(names) + octet_length(service_keys) <= 67108864)
);

-- Hashes do not become smaller.
ALTER TABLE sync_page ALTER COLUMN ids SET STORAGE EXTERNAL, ALTER COLUMN rests SET STORAGE EXTERNAL;

CREATE TABLE sync_mark (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    days bytea NOT NULL,
    flags bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id),
    CHECK (octet_length(days) + octet_length(flags) <= 67108864)
);

CREATE TABLE sync_plan (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    places bytea NOT NULL,
    actions bytea NOT NULL,
    positions bytea NOT NULL,
    flags bytea NOT NULL,
    days bytea NOT NULL,
    contents bytea NOT NULL,
    added_places bytea NOT NULL,
    added_positions bytea NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id),
    CHECK (
        octet_length(places) + octet_length(actions) + octet_length(positions) + octet_length(flags)
        + octet_length(days) + octet_length(contents) + octet_length(added_places) + octet_length(added_positions)
        <= 67108864
    )
);

CREATE TABLE sync_selection (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    codes bytea NOT NULL CHECK (octet_length(codes) <= 2097152),
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id)
);

CREATE TABLE sync_outcome (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    part bigint NOT NULL,
    outcome bigint NOT NULL,
    first bigint NOT NULL,
    count bigint NOT NULL,
    numbers bytea NOT NULL CHECK (octet_length(numbers) <= 67108864),
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id)
);

CREATE TABLE sync_sending (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    stage bigint NOT NULL,
    part bigint NOT NULL,
    monotonic double precision NOT NULL,
    boot text CHECK (length(boot) <= 500),
    ended bigint NOT NULL,
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id)
);

CREATE TABLE sync_sent (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    part bigint NOT NULL,
    moment double precision NOT NULL,
    count bigint NOT NULL,
    governor text NOT NULL CHECK (length(governor) <= 500),
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id)
);

CREATE TABLE sync_service_key (
    sync bigint NOT NULL REFERENCES sync_lists ON DELETE CASCADE,
    id bigint NOT NULL,
    keys bytea NOT NULL CHECK (octet_length(keys) <= 65536),
    service_keys bytea NOT NULL CHECK (octet_length(service_keys) <= 16777216),
    checksum bigint NOT NULL,
    PRIMARY KEY (sync, id)
);
