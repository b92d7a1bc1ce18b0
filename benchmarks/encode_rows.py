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
from benchmarks.measure import (
    USERS_PER_OPERATION,
    Figure,
    Pairs,
    Scale,
    at_least,
    describe_settings,
    measure_cost,
    measure_pairs,
)
from svc_async import Rows
from svc_async.lists.audience_users import AudienceUsers

__all__ = ["count_users", "join_emails", "measure_emails", "measure_four"]

_OPERATIONS = 2_500
_HEAD = '{"operation_type":"Update","params":{"users":['
_TAIL = '],"effective_at":"2026-01-10T23:00:00Z","expires_at":"2027-02-10T23:00:00Z"}}'
_USER = '{"email":["' + 64 * "0" + '"]}'
_BAD, _BAD_EVERY = "no address", 512
_BETWEEN = f"{_TAIL},{_HEAD}"

Row = Sequence[str | None]


def measure_emails(scale: Scale) -> list[Figure]:
    """Measure one e-mail a row, with the default of 25 users an operation and with one."""
    rows = [(email,) for email in make_emails(scale.pick(20_000, 400_000))]
    packed = _measure_encoding(("email",), rows, scale)
    single = _measure_encoding(("email",), rows[: len(rows) // 2], scale, users_per_operation=1)
    return [
        packed.report_speed(
            "rows → bodies, one e-mail", at_least(0.7), fast_target=at_least(0.85), floor="template join"
        ),
        Figure(
            job="the same, users/s of one core",
            value=len(rows) / statistics.median(packed.ours) / 1e6,
            unit="M users/s",
            target=at_least(1.05),
            fast_target=at_least(1.3),
        ),
        single.report_speed(
            "rows → bodies, one e-mail",
            at_least(0.7),
            fast_target=at_least(0.85),
            settings=describe_settings(1),
            floor="template join",
        ),
    ]


def measure_four(scale: Scale) -> list[Figure]:
    """Measure four identifiers: all present, some missing, and one bad row in 512."""
    count = scale.pick(5_000, 80_000)
    full = make_four_identifiers(count, missing=0.0)
    gaps = make_four_identifiers(count, missing=0.3)
    figures = []
    for users_per_operation in (USERS_PER_OPERATION, 1):
        for job, rows, floor, fast in (
            ("all present", full, "fixed-column template", 0.85),
            ("some missing", gaps, "template with gaps", 0.75),
        ):
            pairs = _measure_encoding(FOUR_COLUMNS, rows, scale, users_per_operation=users_per_operation)
            figures.append(
                pairs.report_speed(
                    f"rows → bodies, four identifiers, {job}",
                    at_least(0.6),
                    fast_target=at_least(fast),
                    settings=describe_settings(users_per_operation),
                    floor=floor,
                )
            )
    bad = [(_BAD, *row[1:]) if index % _BAD_EVERY == 0 else row for index, row in enumerate(full)]
    pairs = measure_pairs(lambda: _measure_ours(FOUR_COLUMNS, bad), lambda: _measure_ours(FOUR_COLUMNS, full), scale)
    return [*figures, pairs.report_speed("the same with one bad row in 512", floor="the same without bad rows")]


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


def count_users(size: int) -> int:
    """Return how many users with one e-mail a request of this many bytes holds, 25 an operation."""
    frame, user = len(f"{_HEAD}{_TAIL},"), len(f"{_USER},")
    operations, rest = divmod(size - 1, frame + USERS_PER_OPERATION * user - 1)
    return operations * USERS_PER_OPERATION + max(0, (rest - frame + 1) // user)


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


def _measure_encoding(
    columns: Sequence[str], rows: Sequence[Row], scale: Scale, *, users_per_operation: int = USERS_PER_OPERATION
) -> Pairs:
    def floor() -> float:
        return measure_cost(lambda: sum(map(len, _encode_floor(columns, rows, users_per_operation))))

    return measure_pairs(lambda: _measure_ours(columns, rows, users_per_operation), floor, scale)


def _measure_ours(columns: Sequence[str], rows: Sequence[Row], users_per_operation: int = USERS_PER_OPERATION) -> float:
    service = Service()
    started = time.process_time()
    asyncio.run(_upload(service, columns, rows, users_per_operation))
    return time.process_time() - started - service.spent


async def _upload(service: Service, columns: Sequence[str], rows: Sequence[Row], users_per_operation: int) -> None:
    users = AudienceUsers(build_pipeline(service), "18ce54d4x5t", "1nmth")
    report = await users.upload(Rows(columns, rows), users_per_operation=users_per_operation)
    assert report.accepted == service.rows
    assert report.accepted + report.failed == len(rows)
