"""Measures how rows of a table become request bodies; no network.

Ours is the whole of `users.upload(...)`: normalising, validating, hashing, lanes, packing, intents, governor,
signature, verified counts and the report, with a fake service in place of the network (its own time is subtracted).
The floor joins hashes with a template and checks nothing.
"""

import asyncio
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice

from benchmarks.data import FOUR_COLUMNS, make_emails, make_four_identifiers
from benchmarks.fake_transport import Service, build_pipeline
from benchmarks.measure import Figure, Pairs, Scale, at_least, measure_cost, measure_pairs
from svc_async import Rows
from svc_async.batch.lists.audience_users import AudienceUsers

__all__ = ["join_emails", "measure_four", "measure_one", "measure_packed"]

_OPERATIONS = 2_500
_HEAD = '{"operation_type":"Update","params":{"users":['
_TAIL = '],"effective_at":"2026-01-10T23:00:00Z","expires_at":"2027-02-10T23:00:00Z"}}'
_BETWEEN = f"{_TAIL},{_HEAD}"

Row = Sequence[str | None]


def measure_one(scale: Scale) -> list[Figure]:
    """Measure one e-mail a row, one user an operation."""
    rows = [(email,) for email in make_emails(scale.pick(20_000, 200_000))]
    pairs = _measure_encoding(("email",), rows, scale, users_per_operation=1)
    return [
        pairs.report_speed(
            "rows → bodies, one e-mail, 1 an operation",
            at_least(0.75),
            floor="template join",
            **_compute_rates(pairs, len(rows)),
        )
    ]


def measure_packed(scale: Scale) -> list[Figure]:
    """Measure one e-mail a row, 25 users an operation."""
    rows = [(email,) for email in make_emails(scale.pick(80_000, 400_000))]
    pairs = _measure_encoding(("email",), rows, scale, users_per_operation=25)
    rates = _compute_rates(pairs, len(rows))
    return [
        pairs.report_speed("rows → bodies, one e-mail, 25 an operation", None, floor="template join", **rates),
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
    gaps = make_four_identifiers(count, missing=0.3)
    full = make_four_identifiers(count, missing=0.0)
    with_gaps = _measure_encoding(FOUR_COLUMNS, gaps, scale, users_per_operation=1)
    without = _measure_encoding(FOUR_COLUMNS, full, scale, users_per_operation=1)
    return [
        with_gaps.report_speed(
            "rows → bodies, four identifiers, some missing",
            at_least(0.65),
            floor="template with gaps",
            **_compute_rates(with_gaps, count),
        ),
        without.report_speed(
            "rows → bodies, four identifiers, all present",
            at_least(0.65),
            floor="fixed-column template",
            **_compute_rates(without, count),
        ),
    ]


def _encode_emails(rows: Iterable[Row]) -> Iterator[str]:
    """Encode users with one e-mail, without what is the same for all."""
    return (sha256(row[0].strip().lower().encode()).hexdigest() for row in rows if row[0])


def _encode_four(rows: Iterable[Row]) -> Iterator[str]:
    """Encode users of `FOUR_COLUMNS` where none is missing."""
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


def _encode_with_gaps(rows: Iterable[Row]) -> Iterator[str]:
    """Encode users of `FOUR_COLUMNS` where any may be missing."""
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


def _join_bodies(users: Iterator[str], users_per_operation: int, before: str = "", after: str = "") -> Iterator[bytes]:
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


def join_emails(rows: Iterable[Row], users_per_operation: int) -> Iterator[bytes]:
    """Join users with one e-mail to bodies: the floor."""
    return _join_bodies(_encode_emails(rows), users_per_operation, '{"email":["', '"]}')


def _encode_floor(columns: Sequence[str], rows: Sequence[Row], users_per_operation: int) -> Iterator[bytes]:
    if len(columns) == 1:
        return join_emails(rows, users_per_operation)
    has_gaps = any(None in row for row in rows[:1_000])
    return _join_bodies((_encode_with_gaps if has_gaps else _encode_four)(rows), users_per_operation)


def _measure_encoding(columns: Sequence[str], rows: Sequence[Row], scale: Scale, *, users_per_operation: int) -> Pairs:
    def ours() -> float:
        service = Service()
        started = time.process_time()
        asyncio.run(_upload(service, columns, rows, users_per_operation))
        return time.process_time() - started - service.spent

    def floor() -> float:
        return measure_cost(lambda: sum(map(len, _encode_floor(columns, rows, users_per_operation))))

    return measure_pairs(ours, floor, scale.pick(1, 7))


async def _upload(service: Service, columns: Sequence[str], rows: Sequence[Row], users_per_operation: int) -> None:
    users = AudienceUsers(build_pipeline(service), "18ce54d4x5t", "1nmth")
    report = await users.upload(Rows(columns, rows), users_per_operation=users_per_operation)
    assert report.accepted == service.rows == len(rows)


def _compute_rates(pairs: Pairs, rows: int) -> dict[str, float]:
    return {
        "rows_per_second": rows / statistics.median(pairs.ours),
        "floor_rows_per_second": rows / statistics.median(pairs.floor),
    }
