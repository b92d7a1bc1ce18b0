"""Random histories of leases, and what PostgreSQL and the model make of them."""

import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import attrs

from svc_async.state.limits.holding import Lease, LeaseReport, LeaseRequest, SharedLimit
from svc_async.state.limits.postgres_leases import PARAMETERS, list_arguments, parse_lease
from tests.support.lease_model import MILLION, SECOND, LeaseModel

if TYPE_CHECKING:
    from svc_async.store.postgres import Database

__all__ = ["History", "make_history", "run_histories"]

_START = 1_780_000_000 * SECOND
_LIMITS = (None, 1, 5, 20, 100, 450, 1_500, 2_000_000)
_PERIODS = (SECOND, 2 * SECOND, 60 * SECOND, 900 * SECOND)
_STEPS = (0, 1_000, 40_000, 200_000, 700_000, SECOND, 6 * SECOND, 70 * SECOND, -SECOND)
_WEIGHTS = (4, 6, 6, 6, 3, 3, 2, 1, 1)


@attrs.frozen
class History:
    """Leases of one bucket, each at its time, and what the model answers."""

    requests: Sequence[tuple[LeaseRequest, int]]
    leases: Sequence[Lease]


@attrs.define
class _Process:
    """One that sends what it was granted, and answers in bursts."""

    name: UUID
    unused: int = 0
    in_flight: int = 0
    answered: int = 0
    unconfirmed: list[tuple[int, int]] = attrs.field(factory=list[tuple[int, int]])
    generation: int = 0
    refused: bool = False


def make_history(seed: int, length: int) -> History:
    """Return a history that may contain everything that can happen, lost confirmations and odd headers included."""
    rng = random.Random(seed)
    period = rng.choice(_PERIODS)
    limit = SharedLimit(
        bucket=UUID(int=rng.getrandbits(128)),
        name="ads.audience_users",
        limit=rng.choice(_LIMITS),
        period=period,
        headroom=rng.choice((MILLION, 970_000, 500_000)),
        documented=rng.random() < 0.6,
    )
    model, now = LeaseModel(), _START
    processes = [_make_process(rng) for _ in range(rng.randint(1, 4))]
    requests, leases = [], []
    for _ in range(length):
        now += rng.choices(_STEPS, _WEIGHTS)[0] * (1 if period > 2 * SECOND else rng.randint(1, 3)) // rng.randint(1, 3)
        place = rng.randrange(len(processes))
        if rng.random() < 0.03:
            processes[place] = _make_process(rng)
        process = processes[place]
        request = _make_request(rng, limit, process, now)
        lease = model.lease(request, now)
        requests.append((request, now))
        leases.append(lease)
        if rng.random() < 0.9:  # else the answer of the database is lost
            process.unconfirmed.clear()
            process.unused += lease.granted
            process.generation = lease.generation
    return History(requests, leases)


async def run_histories(database: "Database", histories: Sequence[History]) -> int:
    """Run histories in PostgreSQL, in one statement; return how many leases were equal to those of the model.

    Raises:
        AssertionError: one of them differs.
    """
    asked = [pair for history in histories for pair in history.requests]
    columns = ", ".join(f"{name} {kind}" for name, kind in PARAMETERS.items())
    rows = await database.fetch(
        f"SELECT l.* FROM ROWS FROM (jsonb_to_recordset($1::jsonb) AS ({columns}, at bigint)) WITH ORDINALITY AS r, "  # noqa: S608 - names of ours
        f"LATERAL lease({', '.join(f'r.{name}' for name in PARAMETERS)}, "
        "timestamptz 'epoch' + make_interval(secs => r.at / 1000000) + r.at % 1000000 * interval '1 microsecond') AS l",
        json.dumps([dict(zip(PARAMETERS, list_arguments(one), strict=True), at=at) for one, at in asked], default=str),
    )
    found = iter(map(parse_lease, rows))
    for history in histories:
        for place, (expected, (request, at)) in enumerate(zip(history.leases, history.requests, strict=True)):
            lease = next(found)
            assert lease == expected, f"lease {place} at {at}: {request}\nmodel: {expected}\nfound: {lease}"
    return len(asked)


def _make_process(rng: random.Random) -> _Process:
    return _Process(UUID(int=rng.getrandbits(128)))


def _make_request(rng: random.Random, limit: SharedLimit, process: _Process, now: int) -> LeaseRequest:
    used = rng.randint(0, process.unused)
    process.unused = 0 if rng.random() < 0.2 else process.unused - used
    process.in_flight += used + (rng.randint(1, 9) if rng.random() < 0.05 else 0)  # some without a lease
    answered = rng.randint(0, process.in_flight)
    process.in_flight -= answered
    process.answered += answered
    if answered:
        process.unconfirmed.insert(0, (now - rng.choice((0, 2_000, 150_000, 4 * SECOND)), answered))
        process.unconfirmed.sort(reverse=True)
    succeeded = rng.randint(0, answered) if rng.random() < 0.3 else answered
    is_refused = rng.random() < 0.05
    is_described = rng.random() < 0.3
    reset_in = rng.choice((SECOND, limit.period, limit.period // 2 + 1, 30 * SECOND))
    return LeaseRequest(
        limit=limit,
        process=process.name,
        interactive=rng.choice((0, 0, 0, 1, 2, 7)),
        bulk=rng.choice((0, 1, 3, 20, 100, 1_500)),
        report=LeaseReport(
            outstanding=process.unused + process.in_flight,
            answered=process.answered,
            ages=[max(0, now - time) for time, _ in process.unconfirmed],
            counts=[count for _, count in process.unconfirmed],
            generation=process.generation - (rng.random() < 0.1),
            succeeded=succeeded,
            silent=answered if rng.random() < 0.5 else 0,
            retires_guess=rng.random() < 0.2,
            limit=rng.choice((1, 40, 100, 1_500, 10**11)) if is_described else None,
            remaining=rng.choice((0, 1, 5, 90, 1_400)) if is_described and rng.random() < 0.8 else None,
            reset=(now + reset_in) // SECOND // 10 if is_described and rng.random() < 0.9 else None,
            reset_in=reset_in if is_described and rng.random() < 0.9 else None,
            refused=process.generation if is_refused else None,
            closed_for=rng.choice((SECOND, 40 * SECOND)) if is_refused and rng.random() < 0.5 else None,
            jitter=rng.randrange(SECOND) if is_refused else 0,
        ),
    )
