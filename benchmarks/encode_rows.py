"""Rows of a table become the bodies of requests; no network.

Ours is the whole of `users.upload(...)`: normalising, validating, hashing, lanes, packing, intents, governor,
signature, verified counts and the report, with a service that stands in for the network (its own time is taken off).
The floor joins hashes with a template and checks nothing.
"""

import asyncio
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from benchmarks.data import FOUR_COLUMNS, emails, four_identifiers
from benchmarks.fake_transport import Service, pipeline
from benchmarks.measure import Figure, Pairs, Scale, at_least, cost_of, paired
from svc_async import Rows
from svc_async.batch.lists.audience_users import AudienceUsers

__all__ = ["joined_emails", "measure_four", "measure_one", "measure_packed"]

_OPERATIONS = 2_500
_HEAD = '{"operation_type":"Update","params":{"users":['
_TAIL = '],"effective_at":"2026-01-10T23:00:00Z","expires_at":"2027-02-10T23:00:00Z"}}'
_BETWEEN = f"{_TAIL},{_HEAD}"

Row = Sequence[str | None]


def measure_one(scale: Scale) -> list[Figure]:
    """Measure one e-mail a row, one user an operation."""
    rows = [(email,) for email in emails(scale.pick(20_000, 200_000))]
    pairs = _pairs(("email",), rows, scale, users_per_operation=1)
    return [
        pairs.speed(
            "rows → bodies, one e-mail, 1 an operation",
            at_least(0.75),
            floor="template join",
            **_rates(pairs, len(rows)),
        )
    ]


def measure_packed(scale: Scale) -> list[Figure]:
    """Measure one e-mail a row, 25 users an operation."""
    rows = [(email,) for email in emails(scale.pick(80_000, 400_000))]
    pairs = _pairs(("email",), rows, scale, users_per_operation=25)
    rates = _rates(pairs, len(rows))
    return [
        pairs.speed("rows → bodies, one e-mail, 25 an operation", None, floor="template join", **rates),
        Figure(
            job="rows → bodies, one e-mail, 25 an operation, one core",
            value=rates["rows_per_second"] / 1e6,
            unit="M users/s",
            target=at_least(1.0),
        ),
    ]


def measure_four(scale: Scale) -> list[Figure]:
    """Measure four identifiers, with and without gaps."""
    count = scale.pick(10_000, 80_000)
    gaps = four_identifiers(count, missing=0.3)
    full = four_identifiers(count, missing=0.0)
    with_gaps = _pairs(FOUR_COLUMNS, gaps, scale, users_per_operation=1)
    without = _pairs(FOUR_COLUMNS, full, scale, users_per_operation=1)
    return [
        with_gaps.speed(
            "rows → bodies, four identifiers, some missing",
            at_least(0.65),
            floor="template with gaps",
            **_rates(with_gaps, count),
        ),
        without.speed(
            "rows → bodies, four identifiers, all present",
            at_least(0.65),
            floor="fixed-column template",
            **_rates(without, count),
        ),
    ]


def _one_email(rows: Iterable[Row]) -> Iterator[str]:
    """Write users with one e-mail, without what is the same for all."""
    return (sha256(row[0].strip().lower().encode()).hexdigest() for row in rows if row[0])


def _four(rows: Iterable[Row]) -> Iterator[str]:
    """Write users of `FOUR_COLUMNS` where none is missing."""
    for email, phone, handle, svc_id in rows:
        assert email
        assert phone
        assert handle
        assert svc_id
        yield (
            f'{{"svc_id":["{sha256(svc_id.strip().encode()).hexdigest()}"],'
            f'"email":["{sha256(email.strip().lower().encode()).hexdigest()}"],'
            f'"phone_number":["{sha256(phone.strip().encode()).hexdigest()}"],'
            f'"handle":["{sha256(handle.strip().lower().removeprefix("@").encode()).hexdigest()}"]}}'
        )


def _four_with_gaps(rows: Iterable[Row]) -> Iterator[str]:
    """Write users of `FOUR_COLUMNS` where any may be missing."""
    for email, phone, handle, svc_id in rows:
        members = []
        if svc_id:
            members.append(f'"svc_id":["{sha256(svc_id.strip().encode()).hexdigest()}"]')
        if email:
            members.append(f'"email":["{sha256(email.strip().lower().encode()).hexdigest()}"]')
        if phone:
            members.append(f'"phone_number":["{sha256(phone.strip().encode()).hexdigest()}"]')
        if handle:
            members.append(f'"handle":["{sha256(handle.strip().lower().removeprefix("@").encode()).hexdigest()}"]')
        yield f"{{{','.join(members)}}}"


def _joined(users: Iterator[str], users_per_operation: int, before: str = "", after: str = "") -> Iterator[bytes]:
    """Join users to bodies: the floor."""
    between = f"{after},{before}"
    while body := list(islice(users, _OPERATIONS * users_per_operation)):
        if users_per_operation > 1:
            body = [
                between.join(body[start : start + users_per_operation])
                for start in range(0, len(body), users_per_operation)
            ]
        inside = f"{after}{_BETWEEN}{before}".join(body)
        yield f"[{_HEAD}{before}{inside}{after}{_TAIL}]".encode()


def joined_emails(rows: Iterable[Row], users_per_operation: int) -> Iterator[bytes]:
    """Join users with one e-mail to bodies: the floor."""
    return _joined(_one_email(rows), users_per_operation, '{"email":["', '"]}')


def _floor(columns: Sequence[str], rows: Sequence[Row], users_per_operation: int) -> Iterator[bytes]:
    if len(columns) == 1:
        return joined_emails(rows, users_per_operation)
    has_gaps = any(None in row for row in rows[:1_000])
    return _joined((_four_with_gaps if has_gaps else _four)(rows), users_per_operation)


def _pairs(columns: Sequence[str], rows: Sequence[Row], scale: Scale, *, users_per_operation: int) -> Pairs:
    def ours() -> float:
        service = Service()
        started = time.process_time()
        asyncio.run(_upload(service, columns, rows, users_per_operation))
        return time.process_time() - started - service.spent

    def floor() -> float:
        return cost_of(lambda: sum(map(len, _floor(columns, rows, users_per_operation))))

    return paired(ours, floor, scale.pick(1, 7))


async def _upload(service: Service, columns: Sequence[str], rows: Sequence[Row], users_per_operation: int) -> None:
    users = AudienceUsers(pipeline(service), "18ce54d4x5t", "1nmth")
    report = await users.upload(Rows(columns, rows), users_per_operation=users_per_operation)
    assert report.accepted == service.rows == len(rows)


def _rates(pairs: Pairs, rows: int) -> dict[str, float]:
    return {
        "rows_per_second": rows / statistics.median(pairs.ours),
        "floor_rows_per_second": rows / statistics.median(pairs.floor),
    }
