-- Events of webhooks: which are handled, and those that wait to be handled.

-- Receivers that run. Whoever finds a lease expired deletes the row, so that a receiver that was away for too long learns
-- of it; what it had stored and claimed belongs to nobody then.
CREATE TABLE svc_async.event_receivers (
    id uuid PRIMARY KEY,
    receiver text NOT NULL,
    process text NOT NULL,
    expires_at timestamptz NOT NULL
);

-- Events that are claimed (handled_until is null) or handled, by the SHA-256 digest of their key.
CREATE TABLE svc_async.event_claims (
    receiver text NOT NULL,
    digest bytea NOT NULL,
    owner uuid NOT NULL,
    handled_until timestamptz,
    PRIMARY KEY (receiver, digest)
);
CREATE INDEX event_claims_handled ON svc_async.event_claims (handled_until) WHERE handled_until IS NOT NULL;
CREATE INDEX event_claims_open ON svc_async.event_claims (owner) WHERE handled_until IS NULL;

-- The events of a delivery share its body.
CREATE TABLE svc_async.event_bodies (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    body bytea NOT NULL,
    events integer NOT NULL
);

-- attempts: how often handling of an event has begun and not ended; the first time counts from the start.
CREATE TABLE svc_async.event_inbox (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    receiver text NOT NULL,
    digest bytea NOT NULL,
    key bytea NOT NULL,
    body_id bigint NOT NULL REFERENCES svc_async.event_bodies,
    key_id text NOT NULL,
    received_at timestamptz NOT NULL,
    owner uuid NOT NULL,
    attempts integer NOT NULL DEFAULT 1,
    UNIQUE (receiver, digest)
);

-- Ends the receivers whose lease has expired, and one that is leaving. A row that is locked belongs to one that runs, or
-- is being ended.
CREATE FUNCTION svc_async.end_event_receivers(leaving uuid, at timestamptz) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ended uuid[];
BEGIN
    WITH expired AS (
        SELECT id FROM svc_async.event_receivers WHERE expires_at <= at OR id = leaving FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM svc_async.event_receivers AS found USING expired WHERE found.id = expired.id RETURNING found.id
    )
    SELECT array_agg(id) INTO ended FROM gone;
    IF ended IS NOT NULL THEN
        DELETE FROM svc_async.event_claims WHERE owner = ANY (ended) AND handled_until IS NULL;
    END IF;
END $$;

-- Returns whether a receiver runs, and keeps others from ending it until the transaction is over.
CREATE FUNCTION svc_async.lock_event_receiver(the_owner uuid) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM 1 FROM svc_async.event_receivers WHERE id = the_owner FOR KEY SHARE;
    RETURN FOUND;
END $$;

-- Returns taken, held, elsewhere or handled; gone if the owner was ended.
CREATE FUNCTION svc_async.claim_event(
    the_receiver text, the_digest bytea, the_owner uuid, at timestamptz
) RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found_claim svc_async.event_claims;
BEGIN
    PERFORM svc_async.end_event_receivers(NULL, at);
    IF NOT svc_async.lock_event_receiver(the_owner) THEN
        RETURN 'gone';
    END IF;
    FOR attempt IN 1..3 LOOP
        INSERT INTO svc_async.event_claims (receiver, digest, owner) VALUES (the_receiver, the_digest, the_owner)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            RETURN 'taken';
        END IF;
        SELECT * INTO found_claim FROM svc_async.event_claims
        WHERE receiver = the_receiver AND digest = the_digest FOR UPDATE;
        CONTINUE WHEN NOT FOUND;  -- it was released in between
        IF found_claim.handled_until > at THEN
            RETURN 'handled';
        END IF;
        IF found_claim.handled_until IS NULL AND found_claim.owner = the_owner THEN
            RETURN 'held';
        END IF;
        IF found_claim.handled_until IS NULL
            AND EXISTS (SELECT 1 FROM svc_async.event_receivers WHERE id = found_claim.owner) THEN
            RETURN 'elsewhere';
        END IF;
        UPDATE svc_async.event_claims SET owner = the_owner, handled_until = NULL
        WHERE receiver = the_receiver AND digest = the_digest;
        RETURN 'taken';
    END LOOP;
    RETURN 'elsewhere';
END $$;

-- Stores the events of a delivery for their owner. Returns how often handling of each has begun that was stored before, by
-- the hexadecimal digits of its digest; null if the owner was ended.
CREATE FUNCTION svc_async.store_events(
    the_receiver text, the_owner uuid, the_body bytea, the_digests bytea[], the_keys bytea[], the_key_ids text[],
    the_times timestamptz[]
) RETURNS jsonb LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    the_body_id bigint;
    added integer;
    known jsonb;
BEGIN
    IF NOT svc_async.lock_event_receiver(the_owner) THEN
        RETURN NULL;
    END IF;
    WITH stored AS (
        UPDATE svc_async.event_inbox SET owner = the_owner WHERE receiver = the_receiver AND digest = ANY (the_digests)
        RETURNING digest, attempts
    )
    SELECT coalesce(jsonb_object_agg(encode(digest, 'hex'), attempts), '{}') INTO known FROM stored;
    INSERT INTO svc_async.event_bodies (body, events) VALUES (the_body, 0) RETURNING id INTO the_body_id;
    INSERT INTO svc_async.event_inbox (receiver, digest, key, body_id, key_id, received_at, owner)
    SELECT the_receiver, event.digest, event.key, the_body_id, event.key_id, event.received_at, the_owner
    FROM unnest(the_digests, the_keys, the_key_ids, the_times)
        WITH ORDINALITY AS event (digest, key, key_id, received_at, number)
    ORDER BY event.number
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added = 0 THEN
        DELETE FROM svc_async.event_bodies WHERE id = the_body_id;
    ELSE
        UPDATE svc_async.event_bodies SET events = added WHERE id = the_body_id;
    END IF;
    RETURN known;
END $$;

-- Removes an event; returns whether it was there.
CREATE FUNCTION svc_async.remove_event(the_receiver text, the_digest bytea) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    the_body_id bigint;
    remaining integer;
BEGIN
    DELETE FROM svc_async.event_inbox WHERE receiver = the_receiver AND digest = the_digest
    RETURNING body_id INTO the_body_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE svc_async.event_bodies SET events = events - 1 WHERE id = the_body_id RETURNING events INTO remaining;
    IF remaining = 0 THEN
        DELETE FROM svc_async.event_bodies WHERE id = the_body_id;
    END IF;
    RETURN true;
END $$;

-- Gives an owner the oldest events that belong to no receiver that runs, and returns them without their bodies.
CREATE FUNCTION svc_async.take_events(
    the_receiver text, the_owner uuid, most integer, most_bytes bigint, at timestamptz
) RETURNS TABLE ("position" bigint, key bytea, body_id bigint, key_id text, received_at timestamptz, attempts integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    PERFORM svc_async.end_event_receivers(NULL, at);
    IF NOT svc_async.lock_event_receiver(the_owner) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH free AS (
        SELECT inbox.position, inbox.body_id FROM svc_async.event_inbox AS inbox
        WHERE inbox.receiver = the_receiver
            AND NOT EXISTS (SELECT 1 FROM svc_async.event_receivers AS other WHERE other.id = inbox.owner)
        ORDER BY inbox.position LIMIT most FOR UPDATE OF inbox SKIP LOCKED
    ), sized AS (
        SELECT free.position, CASE
            WHEN free.body_id IS DISTINCT FROM lag(free.body_id) OVER (ORDER BY free.position)
            THEN (SELECT octet_length(body) FROM svc_async.event_bodies AS bodies WHERE bodies.id = free.body_id) ELSE 0
        END AS size FROM free
    ), chosen AS (
        SELECT sized.position, sum(size) OVER (ORDER BY sized.position) - size AS before FROM sized
    )
    UPDATE svc_async.event_inbox AS inbox SET owner = the_owner FROM chosen
    WHERE inbox.position = chosen.position AND chosen.before < most_bytes
    RETURNING inbox.position, inbox.key, inbox.body_id, inbox.key_id, inbox.received_at, inbox.attempts;
END $$;
