-- Rate limits that several processes count together. Times are microseconds of the clock of this server.

-- Requests within the last period; those of a sixtieth of it are together, at the time of the last of them.
CREATE TYPE svc_async.limit_cells AS (
    times bigint[],
    counts bigint[],
    used bigint,                    -- the sum of the counts
    since bigint                    -- when the newest cell began
);

CREATE TABLE svc_async.limit_buckets (
    bucket uuid PRIMARY KEY,
    name text NOT NULL,
    initial_quota bigint,           -- requests a period, as the processes know it; NULL: to be learned
    quota bigint,                   -- requests a period now; NULL: not known
    period bigint NOT NULL CHECK (period > 0),
    headroom bigint NOT NULL,       -- the share of the quota that is used, in millionths
    documented boolean NOT NULL,    -- the service may lower the quota, never raise it
    is_guess boolean NOT NULL,
    guess_until bigint NOT NULL DEFAULT 0,
    tick bigint NOT NULL,           -- the latest time of a lease: time never runs backwards
    shift bigint NOT NULL DEFAULT 0,
    granted svc_async.limit_cells NOT NULL DEFAULT ('{}', '{}', 0, 0),
    answered svc_async.limit_cells NOT NULL DEFAULT ('{}', '{}', 0, 0),
    next_at bigint NOT NULL DEFAULT 0,              -- the next request at an even pace
    remaining bigint NOT NULL DEFAULT 0,            -- what the service reported, until reset_at
    reset bigint NOT NULL DEFAULT 0,
    reset_at bigint NOT NULL DEFAULT 0,
    closed_until bigint NOT NULL DEFAULT 0,         -- the gate after a 429
    stated_until bigint NOT NULL DEFAULT 0,
    refusals bigint NOT NULL DEFAULT 0,             -- 429s in a row that did not say how long to wait
    cut bigint NOT NULL DEFAULT 1000000,            -- the part of the quota that is used after them, in millionths
    cut_at bigint NOT NULL DEFAULT 0,
    ramp bigint DEFAULT 1,                          -- how many may be in flight; NULL: any number
    is_cold boolean NOT NULL DEFAULT true,          -- nothing has succeeded yet
    leased_at bigint NOT NULL DEFAULT 0,            -- the last lease that granted something
    generation bigint NOT NULL DEFAULT 0,           -- how many refusals there were
    streak bigint NOT NULL DEFAULT 0,               -- interactive grants while bulk waited
    virtual_interactive bigint NOT NULL DEFAULT 0,  -- what whoever waits has been granted at least
    virtual_bulk bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 40);

-- The cells of a bucket stay in its row: a lease writes one page.
ALTER TABLE svc_async.limit_buckets ALTER COLUMN granted SET STORAGE PLAIN, ALTER COLUMN answered SET STORAGE PLAIN;

CREATE TABLE svc_async.limit_holders (
    bucket uuid NOT NULL REFERENCES svc_async.limit_buckets ON DELETE CASCADE,
    process uuid NOT NULL,
    seen bigint NOT NULL,                           -- its last lease
    outstanding bigint NOT NULL DEFAULT 0,          -- granted, and neither answered nor given back
    answered bigint NOT NULL DEFAULT 0,             -- in total, as far as it is counted
    leased_at bigint NOT NULL DEFAULT 0,
    interactive bigint NOT NULL DEFAULT 0,          -- how many of its requests wait
    bulk bigint NOT NULL DEFAULT 0,
    ask_at bigint NOT NULL DEFAULT 0,               -- when it will ask again
    served_interactive bigint NOT NULL DEFAULT 0,   -- what it was granted, for turns
    served_bulk bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (bucket, process)
) WITH (fillfactor = 50);

-- What follows from the quota.
CREATE TYPE svc_async.limit_sizes AS (
    target bigint,                  -- how many may be granted within a period
    capacity bigint,                -- how many may be in flight and answered
    step bigint,                    -- from one request to the next; 0 if they are not paced
    ahead bigint,                   -- how far ahead of the pace requests may go
    reserve bigint                  -- what bulk leaves to interactive requests
);

-- The requests of one class that wait in the other processes.
CREATE TYPE svc_async.limit_queue AS (
    served bigint[],                -- what each process was granted so far
    wanted bigint[],                -- how many more it wants
    ask_at bigint[],                -- when it will ask
    total bigint,
    lowest bigint                   -- the least of what was granted
);

-- Lock the row of a bucket for the rest of the transaction, and set the time.
CREATE FUNCTION svc_async.lock_bucket(
    p_bucket uuid, p_name text, p_quota bigint, p_period bigint, p_headroom bigint, p_documented boolean, at timestamptz
) RETURNS svc_async.limit_buckets LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    clock bigint := (extract(epoch FROM at) * 1000000)::bigint;
    b svc_async.limit_buckets;
BEGIN
    SELECT * INTO b FROM svc_async.limit_buckets WHERE bucket = p_bucket FOR UPDATE;
    IF NOT FOUND THEN
        p_quota := CASE WHEN p_quota > 1000000 THEN 1000000 ELSE p_quota END;
        INSERT INTO svc_async.limit_buckets
            (bucket, name, initial_quota, quota, period, headroom, documented, is_guess, tick, updated_at)
        VALUES (p_bucket, p_name, p_quota, p_quota, p_period, p_headroom,
            p_documented, p_quota IS NOT NULL AND NOT p_documented, clock, at)
        ON CONFLICT DO NOTHING;
        SELECT * INTO STRICT b FROM svc_async.limit_buckets WHERE bucket = p_bucket FOR UPDATE;
    END IF;
    b.shift := greatest(b.shift, b.tick - clock);
    b.tick := clock + b.shift;
    RETURN b;
END
$$;

-- Return cells without those that have left: the cells up to a time.
CREATE FUNCTION svc_async.drop_requests(cells svc_async.limit_cells, until bigint)
RETURNS svc_async.limit_cells LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    place int := 1;
BEGIN
    WHILE cells.times[place] <= until LOOP
        cells.used := cells.used - cells.counts[place];
        place := place + 1;
    END LOOP;
    cells.times := cells.times[place:];
    cells.counts := cells.counts[place:];
    RETURN cells;
END
$$;

-- Return cells with the newest of some requests, up to a number of them; those that are given begin with the newest.
CREATE FUNCTION svc_async.add_requests(
    cells svc_async.limit_cells, ages bigint[], numbers bigint[], most bigint, now bigint, period bigint
) RETURNS svc_async.limit_cells LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    part bigint;
    surplus bigint := -most;
    moment bigint;
    place int;
BEGIN
    FOREACH part IN ARRAY numbers LOOP
        surplus := surplus + part;
    END LOOP;
    FOR i IN REVERSE cardinality(ages) .. 1 LOOP
        part := least(numbers[i], numbers[i] - surplus);
        surplus := surplus - numbers[i];
        CONTINUE WHEN part <= 0 OR ages[i] >= period;
        moment := now - ages[i];
        place := cardinality(cells.times) + 1;
        WHILE cells.times[place - 1] >= moment LOOP
            place := place - 1;
        END LOOP;
        IF place <= cardinality(cells.times) THEN
            cells.counts[place] := cells.counts[place] + part;
        ELSIF moment < cells.since + period / 60 AND place > 1 THEN
            cells.times[place - 1] := moment;
            cells.counts[place - 1] := cells.counts[place - 1] + part;
        ELSE
            cells.times := cells.times || moment;
            cells.counts := cells.counts || part;
            cells.since := moment;
        END IF;
        cells.used := cells.used + part;
    END LOOP;
    RETURN cells;
END
$$;

-- Return cells without a number of requests that were added at a time; if there are fewer, earlier ones leave.
CREATE FUNCTION svc_async.remove_requests(cells svc_async.limit_cells, number bigint, moment bigint)
RETURNS svc_async.limit_cells LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    part bigint;
    place int := cardinality(cells.times);
BEGIN
    WHILE cells.times[place - 1] >= moment LOOP
        place := place - 1;
    END LOOP;
    WHILE number > 0 AND place >= 1 LOOP
        part := least(number, cells.counts[place]);
        cells.counts[place] := cells.counts[place] - part;
        cells.used := cells.used - part;
        number := number - part;
        place := place - 1;
    END LOOP;
    RETURN cells;
END
$$;

-- Return when a number of requests have left; 0 if there are not so many.
CREATE FUNCTION svc_async.find_leaving(cells svc_async.limit_cells, number bigint, period bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    place int := 0;
BEGIN
    IF number <= 0 OR number > cells.used THEN
        RETURN 0;
    END IF;
    WHILE number > 0 LOOP
        place := place + 1;
        number := number - cells.counts[place];
    END LOOP;
    RETURN cells.times[place] + period;
END
$$;

-- Return when a process has missed its heartbeat. One that waits for its turn comes when it was told to.
CREATE FUNCTION svc_async.find_death(seen bigint, ask_at bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT greatest(seen + 5 * 1000000, least(ask_at, seen + 10 * 1000000) + 1000000)
$$;

-- Count what processes had in flight that missed their heartbeat: return the answers with it.
CREATE FUNCTION svc_async.expire_holders(b svc_async.limit_buckets) RETURNS svc_async.limit_cells LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dead record;
BEGIN
    WITH missed AS (
        SELECT process, outstanding, svc_async.find_death(seen, ask_at) AS died_at FROM svc_async.limit_holders
        WHERE bucket = b.bucket AND outstanding > 0 AND svc_async.find_death(seen, ask_at) <= b.tick
    ), noted AS (
        UPDATE svc_async.limit_holders AS h SET answered = h.answered + h.outstanding, outstanding = 0
        FROM missed WHERE h.bucket = b.bucket AND h.process = missed.process
    )
    SELECT array_agg(b.tick - died_at ORDER BY died_at DESC) AS ages,
        array_agg(outstanding ORDER BY died_at DESC) AS numbers, sum(outstanding)::bigint AS total
    INTO dead FROM missed;
    RETURN svc_async.add_requests(b.answered, dead.ages, dead.numbers, dead.total, b.tick, b.period);
END
$$;

-- The other processes: what they have in flight, and what waits in those that come in time for their turn.
CREATE TYPE svc_async.limit_others AS (
    outstanding bigint,
    recent bigint,                  -- how many have used the bucket within a period
    has_dead boolean,               -- one missed its heartbeat, and has something in flight
    has_old boolean,                -- one was not there for so long that it can be forgotten
    interactive svc_async.limit_queue,
    bulk svc_async.limit_queue
);

CREATE FUNCTION svc_async.read_others(b svc_async.limit_buckets, p_process uuid)
RETURNS svc_async.limit_others LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    others svc_async.limit_others;
BEGIN
    SELECT coalesce(sum(outstanding), 0), count(*) FILTER (WHERE seen + greatest(b.period, 5 * 1000000) > b.tick),
        coalesce(bool_or(outstanding > 0 AND svc_async.find_death(seen, ask_at) <= b.tick), false),
        coalesce(bool_or(seen + b.period + 60 * 1000000 <= b.tick), false),
        ROW (array_agg(served_interactive) FILTER (WHERE waits_interactive),
            array_agg(interactive) FILTER (WHERE waits_interactive), array_agg(ask_at) FILTER (WHERE waits_interactive),
            coalesce(sum(interactive) FILTER (WHERE waits_interactive), 0),
            min(served_interactive) FILTER (WHERE waits_interactive)),
        ROW (array_agg(served_bulk) FILTER (WHERE waits_bulk),
            array_agg(bulk) FILTER (WHERE waits_bulk), array_agg(ask_at) FILTER (WHERE waits_bulk),
            coalesce(sum(bulk) FILTER (WHERE waits_bulk), 0),
            min(served_bulk) FILTER (WHERE waits_bulk))
    INTO others
    FROM svc_async.limit_holders, LATERAL (SELECT interactive > 0 AND ask_at + 1000000 > b.tick AS waits_interactive,
        bulk > 0 AND ask_at + 1000000 > b.tick AS waits_bulk) AS w
    WHERE bucket = b.bucket AND process <> p_process;
    RETURN others;
END
$$;

-- Take over what the service said of its limit.
CREATE FUNCTION svc_async.note_headers(
    b svc_async.limit_buckets, said_quota bigint, said_remaining bigint, said_reset bigint, said_reset_in bigint,
    silent bigint, retires_guess boolean
) RETURNS svc_async.limit_buckets LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF said_quota IS NOT NULL THEN
        IF b.initial_quota IS NULL AND said_reset_in IS NOT NULL THEN
            b.period := greatest(b.period, said_reset_in);
        END IF;
        b.quota := least(said_quota, 1000000, CASE WHEN b.documented THEN b.initial_quota END);
        b.is_guess := false;
    END IF;
    IF said_remaining IS NOT NULL AND said_reset IS NOT NULL AND said_reset_in IS NOT NULL THEN
        IF b.tick >= b.reset_at OR said_reset > b.reset THEN
            b.reset := said_reset;
            b.reset_at := b.tick + said_reset_in;
            b.remaining := said_remaining;
        ELSIF said_reset = b.reset THEN
            b.remaining := least(b.remaining, said_remaining);
        END IF;
    END IF;
    b.remaining := b.remaining - silent;
    IF retires_guess AND b.is_guess AND b.tick >= b.guess_until THEN
        b.quota := NULL;
    END IF;
    RETURN b;
END
$$;

-- Let more be in flight after successes; close the bucket after a 429.
CREATE FUNCTION svc_async.note_outcomes(
    b svc_async.limit_buckets, p_generation bigint, succeeded bigint, refused bigint, closed_for bigint, jitter bigint
) RETURNS svc_async.limit_buckets LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    closure bigint := closed_for;
BEGIN
    IF succeeded > 0 AND p_generation = b.generation THEN
        b.refusals := 0;
        b.ramp := b.ramp + succeeded;
        IF b.is_cold OR b.ramp >= 100 THEN
            b.ramp := NULL;
            b.is_cold := false;
        END IF;
    END IF;
    IF refused IS NULL THEN
        RETURN b;
    END IF;
    IF closed_for > 0 THEN
        b.stated_until := greatest(b.stated_until, b.tick + closed_for + jitter);
    ELSE
        b.guess_until := b.tick + b.period;
        b.quota := coalesce(b.quota, b.initial_quota);
        IF refused = b.generation THEN
            b.refusals := b.refusals + 1;
            b.cut := b.cut * 7 / 10;
            b.cut_at := b.tick;
        END IF;
        closure := least(1000000::bigint << least(greatest(b.refusals - 1, 0), 6)::int, greatest(b.period, 1000000));
    END IF;
    b.closed_until := greatest(b.closed_until, b.tick + closure + jitter);
    b.generation := b.generation + 1;
    b.ramp := 1;
    b.is_cold := false;
    RETURN b;
END
$$;

-- Use more of a quota again that was cut after refusals.
CREATE FUNCTION svc_async.recover_quota(b svc_async.limit_buckets)
RETURNS svc_async.limit_buckets LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    gain bigint := 300000 * least(b.tick - b.cut_at, b.period) / b.period;
BEGIN
    IF gain > 0 THEN
        b.cut := least(1000000, b.cut + gain);
        b.cut_at := b.tick;
    END IF;
    RETURN b;
END
$$;

CREATE FUNCTION svc_async.find_sizes(b svc_async.limit_buckets)
RETURNS svc_async.limit_sizes LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    sizes svc_async.limit_sizes := ROW (0, 0, 0, 0, 0);
BEGIN
    IF b.quota * 60 * 1000000 >= 100 * b.period THEN
        sizes.target := greatest(1, b.quota * b.cut * b.headroom / 1000000000000);
        sizes.capacity := b.quota;
        sizes.step := b.period / sizes.target;
        sizes.ahead := greatest(1, sizes.target / 50, sizes.target * 200000 / b.period) * sizes.step;
    ELSIF b.quota IS NOT NULL THEN
        sizes.target := greatest(1, b.quota * b.cut / 1000000);
        sizes.capacity := sizes.target;
        sizes.reserve := CASE WHEN b.quota > 1 THEN greatest(1, sizes.target / 20) ELSE 0 END;
    END IF;
    RETURN sizes;
END
$$;

-- Return how many requests may be granted now, whatever waits. The pace lets one more go that comes in its turn: another
-- may have gone in its place.
CREATE FUNCTION svc_async.count_free(
    b svc_async.limit_buckets, sizes svc_async.limit_sizes, in_flight bigint, is_in_turn boolean
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    free bigint := 4611686018427387904;
    early bigint;
BEGIN
    IF b.closed_until > b.tick THEN
        RETURN 0;
    END IF;
    IF b.quota IS NOT NULL THEN
        free := least(sizes.target - (b.granted).used, sizes.capacity - (b.answered).used - in_flight);
        IF sizes.step > 0 THEN
            early := b.next_at - sizes.ahead - b.tick;
            IF early <= 0 THEN
                free := least(free, 1 - early / sizes.step);
            ELSIF is_in_turn AND early <= greatest(sizes.step, 200000) THEN
                free := least(free, 1);
            ELSE
                RETURN 0;
            END IF;
        END IF;
    END IF;
    IF b.tick < b.reset_at THEN
        free := least(free, b.remaining - in_flight);
    END IF;
    RETURN greatest(0, free);
END
$$;

-- Return how much of what others want goes before the next request of a process that was granted so much and asks then.
CREATE FUNCTION svc_async.count_before(others svc_async.limit_queue, level bigint, own_at bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN coalesce((
        SELECT sum(least(wanted, greatest(1, level - served)))
        FROM unnest(others.served, others.wanted, others.ask_at) AS w (served, wanted, ask_at)
        WHERE served < level OR served = level AND ask_at < own_at), 0);
END
$$;

-- Return how much a process gets if what is free goes, one by one, to who was granted least.
CREATE FUNCTION svc_async.divide(free bigint, others svc_async.limit_queue, granted bigint, wanted bigint)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    share bigint := 0;
BEGIN
    IF others.total = 0 OR others.total + wanted <= free THEN
        RETURN least(wanted, free);
    END IF;
    WHILE share < least(wanted, free) AND share + 1 + svc_async.count_before(others, granted + share, 0) <= free LOOP
        share := share + 1;
    END LOOP;
    RETURN share;
END
$$;

-- Return when a number of requests may go, if nothing changes.
CREATE FUNCTION svc_async.find_opening(
    b svc_async.limit_buckets, sizes svc_async.limit_sizes, in_flight bigint, number bigint
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    opens bigint := b.closed_until;
BEGIN
    IF b.tick < b.reset_at AND b.remaining < number THEN
        opens := greatest(opens, b.reset_at);
    END IF;
    IF b.quota IS NULL THEN
        RETURN opens;
    END IF;
    IF sizes.step > 0 THEN
        opens := greatest(opens, b.next_at - sizes.ahead + (number - 1) * sizes.step);
    END IF;
    RETURN greatest(opens,
        svc_async.find_leaving(b.granted, least(number, sizes.target) - sizes.target + (b.granted).used, b.period),
        svc_async.find_leaving(b.answered,
            least(number, sizes.capacity) - sizes.capacity + in_flight + (b.answered).used, b.period));
END
$$;

-- Return when a process that waits has its turn. `own` has asked and was granted what there was; own_at is its place among
-- those that were granted as much.
CREATE FUNCTION svc_async.find_turn(
    b svc_async.limit_buckets, sizes svc_async.limit_sizes, in_flight bigint, own svc_async.limit_holders,
    others svc_async.limit_others, own_at bigint, opens bigint
) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    number bigint := 1;
    crowd bigint := greatest(cardinality((others.interactive).served), cardinality((others.bulk).served), 0);
BEGIN
    IF own.interactive > 0 THEN
        number := number + svc_async.count_before(others.interactive, own.served_interactive, own_at);
    ELSE
        IF sizes.reserve > 0 THEN
            number := number + sizes.reserve;
            opens := svc_async.find_opening(b, sizes, in_flight, number);
        END IF;
        number := number + (others.interactive).total + svc_async.count_before(others.bulk, own.served_bulk, own_at);
    END IF;
    RETURN greatest(opens, least(svc_async.find_opening(b, sizes, in_flight, number), b.tick + 10 * 1000000),
        b.tick + least(200000, b.period / 100), b.tick + least(1000000, sizes.step * crowd / 8));
END
$$;

-- Take a report of a process, and grant what it may send. It holds the lock of one bucket. What each part is for is said
-- in svc_async/governor/parts.py; tests/support/lease_model.py does the same in Python.
CREATE FUNCTION svc_async.lease(
    p_bucket uuid, p_name text, p_quota bigint, p_period bigint, p_headroom bigint, p_documented boolean,
    p_process uuid, p_interactive bigint, p_bulk bigint,
    p_outstanding bigint, p_answered bigint, p_ages bigint[], p_counts bigint[],
    p_generation bigint, p_succeeded bigint, p_silent bigint, p_retires_guess boolean,
    p_said_quota bigint, p_said_remaining bigint, p_said_reset bigint, p_said_reset_in bigint,
    p_refused bigint, p_closed_for bigint, p_jitter bigint,
    at timestamptz DEFAULT clock_timestamp(),
    OUT granted bigint, OUT ask_in bigint, OUT opens_in bigint, OUT closed_for bigint, OUT firm_for bigint,
    OUT generation bigint, OUT allowed bigint, OUT quota bigint, OUT period bigint, OUT is_guess boolean,
    OUT remaining bigint, OUT used bigint, OUT processes bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    b svc_async.limit_buckets := svc_async.lock_bucket(
        p_bucket, p_name, p_quota, p_period, p_headroom, p_documented, at);
    now CONSTANT bigint := b.tick;
    own svc_async.limit_holders;
    others svc_async.limit_others;
    sizes svc_async.limit_sizes;
    part bigint;
    reported bigint := 0;
    newly bigint;
    surplus bigint;
    in_flight bigint;
    is_waiting boolean;
    free bigint;
    ramp bigint;
    wanted_interactive bigint;
    free_bulk bigint;
    take_interactive bigint;
    take_bulk bigint;
    opens bigint;
BEGIN
    -- What the service said, and what has left.
    IF p_said_quota IS NOT NULL OR p_said_remaining IS NOT NULL OR p_silent > 0 OR p_retires_guess THEN
        b := svc_async.note_headers(
            b, p_said_quota, p_said_remaining, p_said_reset, p_said_reset_in, p_silent, p_retires_guess);
    END IF;
    IF (b.granted).times[1] + b.period <= now THEN
        b.granted := svc_async.drop_requests(b.granted, now - b.period);
    END IF;
    IF (b.answered).times[1] + b.period <= now THEN
        b.answered := svc_async.drop_requests(b.answered, now - b.period);
    END IF;

    -- The processes; what those had in flight that are dead counts as answered.
    FOREACH part IN ARRAY p_counts LOOP
        reported := reported + part;
    END LOOP;
    LOOP
        SELECT * INTO own FROM svc_async.limit_holders WHERE bucket = p_bucket AND process = p_process;
        IF NOT FOUND THEN
            INSERT INTO svc_async.limit_holders (bucket, process, seen, answered)
            VALUES (p_bucket, p_process, now, p_answered - reported) RETURNING * INTO own;
        END IF;
        others := svc_async.read_others(b, p_process);
        EXIT WHEN NOT (others.has_dead OR own.outstanding > 0 AND svc_async.find_death(own.seen, own.ask_at) <= now);
        b.answered := svc_async.expire_holders(b);
    END LOOP;

    -- What this process reports: answers, and leases that it did not use or did without.
    newly := greatest(0, least(p_answered - own.answered, reported));
    surplus := own.outstanding - newly - p_outstanding;
    own.answered := p_answered;  -- less than is counted if it missed its heartbeat and did not use its lease
    IF newly > 0 THEN
        b.answered := svc_async.add_requests(b.answered, p_ages, p_counts, newly, now, b.period);
    END IF;
    IF surplus > 0 THEN
        b.granted := svc_async.remove_requests(b.granted, surplus, own.leased_at);
    ELSIF surplus < 0 THEN
        b.granted := svc_async.add_requests(b.granted, p_ages, p_counts, -surplus - p_outstanding, now, b.period);
        b.granted := svc_async.add_requests(b.granted, '{0}', ARRAY[p_outstanding], -surplus, now, b.period);
    END IF;
    IF p_refused IS NOT NULL OR b.ramp IS NOT NULL OR b.refusals > 0 THEN
        b := svc_async.note_outcomes(b, p_generation, least(p_succeeded, newly), p_refused, p_closed_for, p_jitter);
    END IF;
    IF b.cut < 1000000 THEN
        b := svc_async.recover_quota(b);
    END IF;
    sizes := svc_async.find_sizes(b);
    b.next_at := CASE WHEN p_refused IS NULL THEN b.next_at - greatest(0, surplus) * sizes.step
        ELSE b.closed_until + sizes.ahead END;

    -- A crash of the server loses less than a second of this, and processes report as much again. A gate is not lost.
    IF sizes.step > 0 AND p_refused IS NULL THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;

    -- Turns: whoever begins to wait counts as granted as much as those that wait were at least.
    is_waiting := own.interactive + own.bulk > 0 AND own.ask_at + 1000000 > now;
    own.served_interactive := greatest(own.served_interactive, b.virtual_interactive);
    own.served_bulk := greatest(own.served_bulk, b.virtual_bulk);
    own.interactive := least(p_interactive, 1000);
    own.bulk := least(p_bulk, 1000);
    IF own.interactive > 0 THEN
        b.virtual_interactive := least(own.served_interactive, (others.interactive).lowest);
    END IF;
    IF own.bulk > 0 THEN
        b.virtual_bulk := least(own.served_bulk, (others.bulk).lowest);
    END IF;

    -- What this process gets. The reserve is one of the limit: it must not keep bulk from the few requests of a ramp.
    in_flight := p_outstanding + others.outstanding;
    free := svc_async.count_free(b, sizes, in_flight, is_waiting AND own.ask_at <= now);
    ramp := greatest(0, coalesce(b.ramp - in_flight, 4611686018427387904));
    IF ramp = 0 AND b.leased_at + 5 * 1000000 <= now THEN
        ramp := 1;  -- the answers of all in flight may be lost
    END IF;
    wanted_interactive := own.interactive + (others.interactive).total;
    free_bulk := least(own.bulk + (others.bulk).total, greatest(0, least(b.streak / 9, free, ramp),
        least(free - greatest(wanted_interactive, sizes.reserve), ramp - wanted_interactive)));
    take_interactive := svc_async.divide(
        least(free, ramp) - free_bulk, others.interactive, own.served_interactive, own.interactive);
    take_bulk := svc_async.divide(free_bulk, others.bulk, own.served_bulk, own.bulk);
    b.streak := CASE WHEN own.bulk + (others.bulk).total > 0
        THEN greatest(0, b.streak + take_interactive - 9 * take_bulk) ELSE 0 END;
    own.interactive := own.interactive - take_interactive;
    own.bulk := own.bulk - take_bulk;
    own.served_interactive := own.served_interactive + take_interactive;
    own.served_bulk := own.served_bulk + take_bulk;
    granted := take_interactive + take_bulk;
    IF granted > 0 THEN
        own.leased_at := now;
        b.leased_at := now;
        in_flight := in_flight + granted;
        b.granted := svc_async.add_requests(b.granted, '{0}', ARRAY[granted], granted, now, b.period);
        b.next_at := greatest(b.next_at, now) + granted * sizes.step;
    END IF;

    -- When it asks again.
    opens := svc_async.find_opening(b, sizes, in_flight, 1);
    IF own.interactive + own.bulk > 0 THEN
        own.ask_at := svc_async.find_turn(b, sizes, in_flight, own, others, CASE WHEN is_waiting AND granted = 0
            THEN own.ask_at ELSE 4611686018427387904 END, opens);
        ask_in := own.ask_at - now;
    ELSE
        own.ask_at := now;
    END IF;

    -- What is stored, and what is answered.
    UPDATE svc_async.limit_holders SET seen = now, outstanding = p_outstanding + lease.granted, answered = own.answered,
        leased_at = own.leased_at, interactive = own.interactive, bulk = own.bulk, ask_at = own.ask_at,
        served_interactive = own.served_interactive, served_bulk = own.served_bulk
    WHERE bucket = p_bucket AND process = p_process;
    IF others.has_old THEN
        DELETE FROM svc_async.limit_holders WHERE bucket = p_bucket AND seen + b.period + 60 * 1000000 <= now;
    END IF;
    UPDATE svc_async.limit_buckets SET
        quota = b.quota, period = b.period, is_guess = b.is_guess, guess_until = b.guess_until, tick = now,
        shift = b.shift, granted = b.granted, answered = b.answered, next_at = b.next_at,
        remaining = b.remaining, reset = b.reset, reset_at = b.reset_at, closed_until = b.closed_until,
        stated_until = b.stated_until, refusals = b.refusals, cut = b.cut, cut_at = b.cut_at, ramp = b.ramp,
        is_cold = b.is_cold, leased_at = b.leased_at, generation = b.generation, streak = b.streak,
        virtual_interactive = b.virtual_interactive, virtual_bulk = b.virtual_bulk, updated_at = at
    WHERE bucket = p_bucket;

    opens_in := greatest(0, opens - now);
    closed_for := greatest(0, b.closed_until - now);
    firm_for := opens_in;
    IF b.is_guess OR b.quota IS NULL THEN
        firm_for := greatest(0, b.stated_until - now,
            CASE WHEN now < b.reset_at AND b.remaining < 1 THEN b.reset_at - now END);
    END IF;
    generation := b.generation;
    allowed := b.ramp;
    quota := b.quota;
    period := b.period;
    is_guess := b.is_guess;
    remaining := CASE WHEN now < b.reset_at THEN greatest(0, b.remaining) END;
    used := in_flight + (b.answered).used;
    processes := others.recent + 1;
END
$$;
