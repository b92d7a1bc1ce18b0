-- Rate limits that several processes count together. Times are microseconds of the clock of this server.

CREATE TABLE limit_buckets (
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
    granted_at bigint[] NOT NULL DEFAULT '{}',      -- cells of a sixtieth of a period, at the time of their last request
    granted bigint[] NOT NULL DEFAULT '{}',
    granted_used bigint NOT NULL DEFAULT 0,         -- the sum of the cells
    granted_since bigint NOT NULL DEFAULT 0,        -- when the newest cell began
    answered_at bigint[] NOT NULL DEFAULT '{}',
    answered bigint[] NOT NULL DEFAULT '{}',
    answered_used bigint NOT NULL DEFAULT 0,
    answered_since bigint NOT NULL DEFAULT 0,
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
    generation bigint NOT NULL DEFAULT 0,           -- how many refusals there were
    streak bigint NOT NULL DEFAULT 0,               -- interactive grants while bulk waited
    virtual_interactive bigint NOT NULL DEFAULT 0,  -- what whoever waits has been granted at least
    virtual_bulk bigint NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 40);

-- The cells of a bucket stay in its row: a lease writes one page.
ALTER TABLE limit_buckets
    ALTER COLUMN granted_at SET STORAGE PLAIN,
    ALTER COLUMN granted SET STORAGE PLAIN,
    ALTER COLUMN answered_at SET STORAGE PLAIN,
    ALTER COLUMN answered SET STORAGE PLAIN;

CREATE TABLE limit_holders (
    bucket uuid NOT NULL REFERENCES limit_buckets ON DELETE CASCADE,
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

-- Take a report of a process, and grant what it may send. It holds the lock of one bucket. What each part is for is said
-- in svc_async/governor/parts.py; tests/support/lease_model.py does the same in Python.
CREATE FUNCTION lease(
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
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    second CONSTANT bigint := 1000000;
    heartbeat CONSTANT bigint := 5 * second;
    grace CONSTANT bigint := second;
    longest_ask CONSTANT bigint := 10 * second;
    renewal CONSTANT bigint := second / 5;
    never CONSTANT bigint := 4611686018427387904;
    clock CONSTANT bigint := (extract(epoch FROM at) * 1000000)::bigint;
    b limit_buckets%ROWTYPE;
    own limit_holders%ROWTYPE;
    others record;
    each record;
    reported CONSTANT bigint := coalesce((SELECT sum(c) FROM unnest(p_counts) AS c), 0);
    want_interactive CONSTANT bigint := least(p_interactive, 1000);
    want_bulk CONSTANT bigint := least(p_bulk, 1000);
    now bigint;
    newly bigint;
    surplus bigint;
    unleased bigint;
    rest bigint;
    part bigint;
    place int;
    until bigint;
    was_refused boolean := false;
    is_even boolean := false;
    target bigint := 0;
    capacity bigint := 0;
    step bigint := 0;
    ahead bigint := 0;
    reserve bigint := 0;
    added_log int[] := '{}';
    added_at bigint[] := '{}';
    added bigint[] := '{}';
    cells_used bigint;
    times bigint[];
    counts bigint[];
    since bigint;
    in_flight bigint;
    own_at bigint;
    free bigint;
    free_bulk bigint;
    ramp bigint;
    take_interactive bigint := 0;
    take_bulk bigint := 0;
    taken bigint;
    costs bigint[];
    openings bigint[] := '{}';
    opens bigint;
BEGIN
    SELECT * INTO b FROM limit_buckets WHERE bucket = p_bucket FOR UPDATE;
    IF NOT FOUND THEN
        p_quota := CASE WHEN p_quota > 1000000 THEN 1000000 ELSE p_quota END;
        INSERT INTO limit_buckets
            (bucket, name, initial_quota, quota, period, headroom, documented, is_guess, tick, updated_at)
        VALUES (p_bucket, p_name, p_quota, p_quota, p_period, p_headroom,
            p_documented, p_quota IS NOT NULL AND NOT p_documented, clock, at)
        ON CONFLICT DO NOTHING;
        SELECT * INTO STRICT b FROM limit_buckets WHERE bucket = p_bucket FOR UPDATE;
    END IF;
    b.shift := greatest(b.shift, b.tick - clock);
    now := clock + b.shift;

    -- What this process reports, and what processes had in flight that missed their heartbeat: it counts as answered.
    -- One that waits for its turn comes when it was told to.
    SELECT * INTO own FROM limit_holders WHERE bucket = p_bucket AND process = p_process;
    IF NOT FOUND THEN
        INSERT INTO limit_holders (bucket, process, seen, answered)
        VALUES (p_bucket, p_process, now, p_answered - reported) RETURNING * INTO own;
    END IF;
    FOR each IN
        SELECT process, ended_at, outstanding
        FROM limit_holders, greatest(seen + heartbeat, least(ask_at, seen + longest_ask) + grace) AS ended_at
        WHERE bucket = p_bucket AND outstanding > 0 AND ended_at <= now
    LOOP
        added_log := added_log || 2;
        added_at := added_at || each.ended_at;
        added := added || each.outstanding;
        IF each.process = p_process THEN
            own.answered := own.answered + own.outstanding;
            own.outstanding := 0;
        ELSE
            UPDATE limit_holders SET answered = answered + outstanding, outstanding = 0
            WHERE bucket = p_bucket AND process = each.process;
        END IF;
    END LOOP;
    newly := greatest(0, least(p_answered - own.answered, reported));
    surplus := own.outstanding - newly - p_outstanding;
    own.answered := greatest(own.answered, p_answered);

    -- What the service said.
    IF p_said_quota IS NOT NULL THEN
        IF b.initial_quota IS NULL AND p_said_reset_in IS NOT NULL THEN
            b.period := greatest(b.period, p_said_reset_in);
        END IF;
        b.quota := least(p_said_quota, 1000000, CASE WHEN b.documented THEN b.initial_quota END);
        b.is_guess := false;
    END IF;
    IF p_said_remaining IS NOT NULL AND p_said_reset IS NOT NULL AND p_said_reset_in IS NOT NULL THEN
        IF now >= b.reset_at OR p_said_reset > b.reset THEN
            b.reset := p_said_reset;
            b.reset_at := now + p_said_reset_in;
            b.remaining := p_said_remaining;
        ELSIF p_said_reset = b.reset THEN
            b.remaining := least(b.remaining, p_said_remaining);
        END IF;
    END IF;
    b.remaining := b.remaining - p_silent;
    IF p_retires_guess AND b.is_guess AND now >= b.guess_until THEN
        b.quota := NULL;
    END IF;
    IF least(p_succeeded, newly) > 0 AND p_generation = b.generation THEN
        b.refusals := 0;
        b.ramp := b.ramp + least(p_succeeded, newly);
        IF b.is_cold OR b.ramp >= 100 THEN
            b.ramp := NULL;
            b.is_cold := false;
        END IF;
    END IF;
    IF p_refused IS NOT NULL THEN
        was_refused := true;
        IF p_closed_for > 0 THEN
            until := now + p_closed_for + p_jitter;
            b.stated_until := greatest(b.stated_until, until);
        ELSE
            b.guess_until := now + b.period;
            b.quota := coalesce(b.quota, b.initial_quota);
            IF p_refused = b.generation THEN
                b.refusals := b.refusals + 1;
                b.cut := b.cut * 7 / 10;
                b.cut_at := now;
            END IF;
            until := now + p_jitter
                + least(second << least(greatest(b.refusals - 1, 0), 6)::int, greatest(b.period, second));
        END IF;
        b.closed_until := greatest(b.closed_until, until);
        b.generation := b.generation + 1;
        b.ramp := 1;
        b.is_cold := false;
    END IF;

    -- The sizes that follow from the quota.
    IF b.cut < 1000000 THEN
        part := 300000 * least(now - b.cut_at, b.period) / b.period;
        IF part > 0 THEN
            b.cut := least(1000000, b.cut + part);
            b.cut_at := now;
        END IF;
    END IF;
    IF b.quota IS NOT NULL THEN
        is_even := b.quota * 60 * second >= 100 * b.period;
        target := greatest(1, b.quota * b.cut / 1000000);
        capacity := target;
        IF is_even THEN
            target := greatest(1, b.quota * b.cut * b.headroom / 1000000000000);
            capacity := b.quota;
            step := b.period / target;
            ahead := greatest(1, target / 50, target * renewal / b.period) * step;
        ELSIF b.quota > 1 THEN
            reserve := greatest(1, target / 20);
        END IF;
    END IF;

    -- The two counts: what was granted, and what was answered.
    rest := newly;
    unleased := -surplus - p_outstanding;
    FOR i IN 1 .. cardinality(p_ages) LOOP
        IF rest > 0 THEN
            part := least(p_counts[i], rest);
            added_log := added_log || 2;
            added_at := added_at || now - p_ages[i];
            added := added || part;
            rest := rest - part;
        END IF;
        IF unleased > 0 THEN
            part := least(p_counts[i], unleased);
            added_log := added_log || 1;
            added_at := added_at || now - p_ages[i];
            added := added || part;
            unleased := unleased - part;
        END IF;
    END LOOP;
    IF least(-surplus, p_outstanding) > 0 THEN
        added_log := added_log || 1;
        added_at := added_at || now;
        added := added || least(-surplus, p_outstanding);
    END IF;
    FOR which IN 1 .. 2 LOOP
        IF which = 1 THEN
            times := b.granted_at; counts := b.granted; since := b.granted_since; cells_used := b.granted_used;
        ELSE
            times := b.answered_at; counts := b.answered; since := b.answered_since; cells_used := b.answered_used;
        END IF;
        place := 1;
        WHILE times[place] + b.period <= now LOOP
            cells_used := cells_used - counts[place];
            place := place + 1;
        END LOOP;
        IF place > 1 THEN
            times := times[place:];
            counts := counts[place:];
        END IF;
        rest := surplus;
        IF which = 1 AND rest > 0 THEN
            place := cardinality(times);
            WHILE times[place - 1] >= own.leased_at LOOP
                place := place - 1;
            END LOOP;
            WHILE rest > 0 AND place >= 1 LOOP
                part := least(rest, counts[place]);
                counts[place] := counts[place] - part;
                cells_used := cells_used - part;
                rest := rest - part;
                place := place - 1;
            END LOOP;
        END IF;
        FOR each IN
            SELECT a.time, a.cost FROM unnest(added_log, added_at, added) AS a (log, time, cost)
            WHERE a.log = which AND a.time + b.period > now ORDER BY a.time
        LOOP
            cells_used := cells_used + each.cost;
            place := cardinality(times) + 1;
            WHILE times[place - 1] >= each.time LOOP
                place := place - 1;
            END LOOP;
            IF place <= cardinality(times) THEN
                counts[place] := counts[place] + each.cost;
            ELSIF place > 1 AND each.time < since + b.period / 60 THEN
                times[place - 1] := each.time;
                counts[place - 1] := counts[place - 1] + each.cost;
            ELSE
                times := times || each.time::bigint;
                counts := counts || each.cost::bigint;
                since := each.time;
            END IF;
        END LOOP;
        IF which = 1 THEN
            b.granted_at := times; b.granted := counts; b.granted_since := since; b.granted_used := cells_used;
        ELSE
            b.answered_at := times; b.answered := counts; b.answered_since := since; b.answered_used := cells_used;
        END IF;
    END LOOP;
    b.next_at := b.next_at - greatest(0, surplus) * step;
    IF was_refused THEN
        b.next_at := b.closed_until + ahead;
    END IF;

    -- The other processes: what they have in flight, and what those that wait were granted and want.
    SELECT coalesce(sum(outstanding), 0)::bigint AS outstanding,
        count(*) FILTER (WHERE seen + greatest(b.period, heartbeat) > now) AS recent,
        coalesce(bool_or(seen + b.period + 60 * second <= now), false) AS has_old,
        array_agg(served_interactive) FILTER (WHERE interactive > 0 AND ask_at + grace > now) AS interactive_served,
        array_agg(interactive) FILTER (WHERE interactive > 0 AND ask_at + grace > now) AS interactive_wants,
        array_agg(ask_at) FILTER (WHERE interactive > 0 AND ask_at + grace > now) AS interactive_ask_at,
        coalesce(sum(interactive) FILTER (WHERE ask_at + grace > now), 0)::bigint AS interactive,
        min(served_interactive) FILTER (WHERE interactive > 0 AND ask_at + grace > now) AS lowest_interactive,
        array_agg(served_bulk) FILTER (WHERE bulk > 0 AND ask_at + grace > now) AS bulk_served,
        array_agg(bulk) FILTER (WHERE bulk > 0 AND ask_at + grace > now) AS bulk_wants,
        array_agg(ask_at) FILTER (WHERE bulk > 0 AND ask_at + grace > now) AS bulk_ask_at,
        coalesce(sum(bulk) FILTER (WHERE ask_at + grace > now), 0)::bigint AS bulk,
        min(served_bulk) FILTER (WHERE bulk > 0 AND ask_at + grace > now) AS lowest_bulk
    INTO others FROM limit_holders WHERE bucket = p_bucket AND process <> p_process;
    in_flight := p_outstanding + others.outstanding;
    own_at := CASE WHEN own.interactive + own.bulk > 0 AND own.ask_at + grace > now THEN own.ask_at ELSE never END;
    IF want_interactive > 0 THEN
        IF own.interactive = 0 OR own.ask_at + grace <= now THEN
            own.served_interactive := greatest(own.served_interactive, b.virtual_interactive);
        END IF;
        b.virtual_interactive :=
            greatest(b.virtual_interactive, least(own.served_interactive, others.lowest_interactive));
    END IF;
    IF want_bulk > 0 THEN
        IF own.bulk = 0 OR own.ask_at + grace <= now THEN
            own.served_bulk := greatest(own.served_bulk, b.virtual_bulk);
        END IF;
        b.virtual_bulk := greatest(b.virtual_bulk, least(own.served_bulk, others.lowest_bulk));
    END IF;

    -- What is free, and the share of this process if it goes, one by one, to who was served least.
    free := never;
    IF b.quota IS NOT NULL THEN
        free := least(target - b.granted_used, capacity - b.answered_used - in_flight);
        IF step > 0 THEN
            free := CASE WHEN b.next_at - ahead <= now
                THEN least(free, (now + ahead - b.next_at) / step + 1) ELSE 0 END;
        END IF;
    END IF;
    IF now < b.reset_at THEN
        free := least(free, b.remaining - in_flight);
    END IF;
    IF b.closed_until > now THEN
        free := 0;
    END IF;
    free := greatest(0, free);
    ramp := greatest(0, coalesce(b.ramp - in_flight, never));
    -- The reserve is one of the limit: it must not keep bulk from the few requests of a ramp.
    free_bulk := least(want_bulk + others.bulk, greatest(0, least(b.streak / 9, free, ramp),
        least(free - greatest(want_interactive + others.interactive, reserve),
            ramp - want_interactive - others.interactive)));
    free := least(free, ramp) - free_bulk;
    IF others.interactive = 0 THEN
        take_interactive := least(want_interactive, free);
    END IF;
    WHILE take_interactive < least(want_interactive, free) AND take_interactive + 1 + coalesce((
        SELECT sum(least(w.wanted, greatest(0, own.served_interactive + take_interactive - w.served)))
        FROM unnest(others.interactive_served, others.interactive_wants) AS w (served, wanted)), 0) <= free
    LOOP
        take_interactive := take_interactive + 1;
    END LOOP;
    IF others.bulk = 0 THEN
        take_bulk := least(want_bulk, free_bulk);
    END IF;
    WHILE take_bulk < least(want_bulk, free_bulk) AND take_bulk + 1 + coalesce((
        SELECT sum(least(w.wanted, greatest(0, own.served_bulk + take_bulk - w.served)))
        FROM unnest(others.bulk_served, others.bulk_wants) AS w (served, wanted)), 0) <= free_bulk
    LOOP
        take_bulk := take_bulk + 1;
    END LOOP;
    taken := take_interactive + take_bulk;
    b.streak := CASE WHEN want_bulk + others.bulk > 0
        THEN greatest(0, b.streak + take_interactive - 9 * take_bulk) ELSE 0 END;
    own.served_interactive := own.served_interactive + take_interactive;
    own.served_bulk := own.served_bulk + take_bulk;
    own.interactive := want_interactive - take_interactive;
    own.bulk := want_bulk - take_bulk;
    own.outstanding := p_outstanding + taken;
    own.seen := now;
    in_flight := in_flight + taken;
    IF taken > 0 THEN
        own_at := never;
        own.leased_at := now;
        b.next_at := greatest(b.next_at, now) + taken * step;
        b.granted_used := b.granted_used + taken;
        place := cardinality(b.granted_at);
        IF place > 0 AND (b.granted_at[place] = now OR now < b.granted_since + b.period / 60) THEN
            b.granted_at[place] := now;
            b.granted[place] := b.granted[place] + taken;
        ELSE
            b.granted_at := b.granted_at || now;
            b.granted := b.granted || taken;
            b.granted_since := now;
        END IF;
    END IF;

    -- When one request may go, one that leaves the reserve, and the next one of this process in its turn. Others that
    -- were served as often and have an earlier time go before.
    costs := ARRAY[1, 1 + reserve, CASE
        WHEN own.interactive > 0 THEN 1 + coalesce((
            SELECT sum(least(w.wanted, greatest(1, own.served_interactive - w.served)))
            FROM unnest(others.interactive_served, others.interactive_wants, others.interactive_ask_at)
                AS w (served, wanted, ask_at)
            WHERE w.served < own.served_interactive OR w.served = own.served_interactive AND w.ask_at < own_at), 0)
        WHEN own.bulk > 0 THEN 1 + reserve + others.interactive + coalesce((
            SELECT sum(least(w.wanted, greatest(1, own.served_bulk - w.served)))
            FROM unnest(others.bulk_served, others.bulk_wants, others.bulk_ask_at) AS w (served, wanted, ask_at)
            WHERE w.served < own.served_bulk OR w.served = own.served_bulk AND w.ask_at < own_at), 0)
        ELSE 1 END];
    FOR i IN 1 .. 3 LOOP
        IF i > 1 AND costs[i] = costs[i - 1] THEN
            openings := openings || openings[i - 1];
            CONTINUE;
        END IF;
        until := greatest(b.closed_until, CASE WHEN now < b.reset_at AND b.remaining < costs[i] THEN b.reset_at END);
        IF b.quota IS NOT NULL THEN
            IF step > 0 THEN
                until := greatest(until, b.next_at - ahead + (costs[i] - 1) * step);
            END IF;
            rest := least(costs[i], target) - target + b.granted_used;
            IF rest > 0 AND rest <= b.granted_used THEN
                place := 0;
                WHILE rest > 0 LOOP
                    place := place + 1;
                    rest := rest - b.granted[place];
                END LOOP;
                until := greatest(until, b.granted_at[place] + b.period);
            END IF;
            rest := least(costs[i], capacity) - capacity + in_flight + b.answered_used;
            IF rest > 0 AND rest <= b.answered_used THEN
                place := 0;
                WHILE rest > 0 LOOP
                    place := place + 1;
                    rest := rest - b.answered[place];
                END LOOP;
                until := greatest(until, b.answered_at[place] + b.period);
            END IF;
        END IF;
        openings := openings || until;
    END LOOP;
    opens := openings[1];
    own.ask_at := now;
    IF own.interactive > 0 OR own.bulk > 0 THEN
        own.ask_at := greatest(CASE WHEN own.interactive > 0 THEN opens ELSE openings[2] END,
            least(openings[3], now + longest_ask), now + least(renewal, b.period / 100),
            now + least(second, step * greatest(coalesce(cardinality(others.interactive_served), 0),
                coalesce(cardinality(others.bulk_served), 0)) / 8));
        ask_in := own.ask_at - now;
    END IF;

    UPDATE limit_holders SET seen = own.seen, outstanding = own.outstanding, answered = own.answered,
        leased_at = own.leased_at, interactive = own.interactive, bulk = own.bulk, ask_at = own.ask_at,
        served_interactive = own.served_interactive, served_bulk = own.served_bulk
    WHERE bucket = p_bucket AND process = p_process;
    IF others.has_old THEN
        DELETE FROM limit_holders WHERE bucket = p_bucket AND seen + b.period + 60 * second <= now;
    END IF;
    UPDATE limit_buckets SET quota = b.quota, period = b.period, is_guess = b.is_guess, guess_until = b.guess_until,
        tick = now, shift = b.shift, granted_at = b.granted_at, granted = b.granted, granted_used = b.granted_used,
        granted_since = b.granted_since,
        answered_at = b.answered_at, answered = b.answered, answered_used = b.answered_used,
        answered_since = b.answered_since, next_at = b.next_at,
        remaining = b.remaining, reset = b.reset, reset_at = b.reset_at, closed_until = b.closed_until,
        stated_until = b.stated_until, refusals = b.refusals, cut = b.cut, cut_at = b.cut_at, ramp = b.ramp,
        is_cold = b.is_cold, generation = b.generation, streak = b.streak,
        virtual_interactive = b.virtual_interactive, virtual_bulk = b.virtual_bulk, updated_at = at
    WHERE bucket = p_bucket;

    granted := taken;
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
    used := in_flight + b.answered_used;
    processes := others.recent + 1;
END
$$;
