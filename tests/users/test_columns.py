"""Members given as columns, or as a table of Arrow: the same job as with rows."""

import asyncio
import random
from array import array
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from svc_async import BatchError, Columns, InvalidArgument, Rows
from svc_async.batch.report import Report
from svc_async.errors import Hint
from svc_async.handles import CustomAudienceHandle
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sources.rows import from_arrow
from tests.support.clock import MachineClock
from tests.support.errors import has
from tests.support.fake_service import FakeService
from tests.support.journaled_uploads import upload
from tests.support.tasks import wait_until

NAMES = ("email", "svc_id")
Batch = Sequence[Sequence[object]]


def make_rows(count: int) -> list[tuple[object, ...]]:
    """Return rows of which some lack an identifier, break a rule or repeat another."""
    dice = random.Random(count)
    emails = [f"user{number}@example.org" for number in range(count)]
    return [
        (
            dice.choice([email, email.upper(), None, "", "no address", [email, "other@example.org"], emails[0]]),
            dice.choice([str(number), number, None, "", "x1"]),
        )
        for number, email in enumerate(emails)
    ]


def split(rows: Sequence[tuple[object, ...]], size: int) -> list[Batch]:
    return [list(zip(*rows[start : start + size], strict=True)) for start in range(0, len(rows), size)]


async def iterate(batches: Sequence[Batch]) -> AsyncIterator[Batch]:
    for batch in batches:
        yield batch


async def send(members: Any, **settings: Any) -> tuple[list[bytes], Report]:
    service = FakeService()
    users = AudienceUsers(service.pipeline, "a1", "c1")
    return service.bodies, await users.upload(members, **settings)


@pytest.mark.parametrize(
    ("size", "give", "bad_identifiers"),
    [
        (1, iter, "fail"),
        (7, list, "drop"),
        (512, iterate, "drop"),
        (1_000, list, "fail"),
        *(
            pytest.param(size, give, bad_identifiers, marks=pytest.mark.long)
            for size in (1, 7, 512, 1_000)
            for give in (list, iter, iterate)
            for bad_identifiers in ("fail", "drop")
        ),
    ],
)
async def test_columns_are_the_job_that_their_rows_are(
    size: int, give: Callable[[list[Batch]], Any], bad_identifiers: str
) -> None:
    rows = make_rows(700)
    bodies, expected = await send(Rows(NAMES, rows), bad_identifiers=bad_identifiers)
    found, report = await send(Columns(NAMES, give(split(rows, size))), bad_identifiers=bad_identifiers)

    assert found == bodies
    assert report == expected
    assert report.failed


async def test_columns_may_be_arrays(users: AudienceUsers, service: FakeService) -> None:
    texts, numbers = ["a@example.org", None, "c@example.org"], [1, 2, 3]
    batches: list[Any] = [
        [texts, array("q", numbers)],
        [pa.array(texts), pa.array(numbers)],
        [pa.chunked_array([texts[:1], texts[1:]]), tuple(numbers)],
        [pa.array(texts).dictionary_encode(), range(1, 4)],
        pa.record_batch([pa.array(texts), pa.array(numbers)], names=["a", "b"]),
        [[], []],
        [],
    ]
    report = await users.upload(Columns(NAMES, batches), ordering="none")

    assert (report.read, report.accepted) == (15, 15)
    assert service.users == service.users[:3] * 5


async def test_a_row_of_a_table_with_one_column_must_have_one_value(users: AudienceUsers) -> None:
    report = await users.upload(Rows(["email"], [("a@example.org",), ("b@example.org", "1")]))
    assert [(each.position, each.code) for each in report.failures] == [(1, "INVALID_ROW")]


async def test_rows_without_a_value_in_each_column_fail_at_their_position(users: AudienceUsers) -> None:
    batches: list[Batch] = [
        [["a@example.org"], ["1"]],
        [["b@example.org", "c@example.org"], ["2"]],
        [["d@example.org"]],
    ]
    report = await users.upload(Columns(NAMES, batches))

    assert report.accepted == 2
    assert [(each.position, each.code) for each in report.failures] == [(2, "INVALID_ROW"), (3, "INVALID_ROW")]


@pytest.mark.parametrize(
    ("batch", "parameter"),
    [
        (5, "batches[1]"),
        ("ab", "batches[1]"),
        ({"email": ["a"]}, "batches[1]"),
        ([("a", "1"), "b"], "batches[1][1]"),
        ([["a"], iter("1")], "batches[1][1]"),
        ([["a"], None], "batches[1][1]"),
    ],
)
async def test_what_is_no_batch_ends_the_reading(users: AudienceUsers, batch: Any, parameter: str) -> None:
    first: Batch = [["a@example.org"], ["1"]]
    with pytest.raises(BatchError) as caught:
        await users.upload(Columns(NAMES, [first, batch]))

    cause = caught.value.__cause__
    assert isinstance(cause, InvalidArgument)
    assert (cause.parameter, caught.value.report.accepted) == (parameter, 1)


async def test_what_was_read_before_a_source_fails_is_sent(users: AudienceUsers) -> None:
    def read() -> Iterator[Batch]:
        yield [["a@example.org"], ["1"]]
        raise ZeroDivisionError

    with pytest.raises(BatchError) as caught:
        await users.upload(Columns(NAMES, read()))

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.report.accepted == 1


@pytest.mark.parametrize(
    ("columns", "parameter"),
    [
        (Columns(("email", "mail"), []), "columns"),
        (Columns(("email",), 5), "batches"),  # type: ignore[arg-type]  # the mistake
        (Columns(("email",), "ab"), "batches"),
    ],
)
async def test_wrong_columns_are_refused_before_anything_is_read(
    users: AudienceUsers, columns: Columns, parameter: str
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
        await users.upload(columns)


@pytest.mark.parametrize("give", [list, pytest.param(iter, marks=pytest.mark.long)])
async def test_a_job_begun_with_rows_is_resumed_with_their_columns(
    tmp_path: Path, give: Callable[[list[Any]], Any]
) -> None:
    rows = [(f"user{number % 20}@example.org", str(number)) for number in range(1, 61)]
    service, journal = FakeService(clock=MachineClock(), latency=1), tmp_path / "journal"
    job = asyncio.create_task(upload(service, Rows(NAMES, give(rows)), journal))
    await wait_until(lambda: len(service.bodies) > 3)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    report = await upload(service, Columns(NAMES, give(split(rows, 7))), journal)

    assert (report.read, report.accepted + report.coalesced) == (60, 60)


async def test_a_table_of_arrow_is_read_like_a_file(audience: CustomAudienceHandle) -> None:
    table = pa.table({"E-Mail": ["a@example.org", "no", None], "Phone": [None, None, "+4930123456"]})

    report = await audience.users.upload(table)

    assert (report.accepted, [each.position for each in report.failures]) == (2, [1])
    assert (await audience.users.remove(table.to_reader())).accepted == 2
    with pytest.raises(InvalidArgument, check=has(parameter="table", hint=Hint.MAP_OR_IGNORE)):
        await audience.users.upload(table.add_column(0, "Notes", [["x", "y", "z"]]))


async def test_columns_of_arrow_are_mapped_and_ignored() -> None:
    table = pa.table({"Adresse": ["a@example.org"], "Notes": ["x"]})
    columns = from_arrow(table, mapping={"Adresse": "email", "*": "-"})

    assert columns.names == ["email"]
    assert await send(columns) == await send(columns) == await send(Rows(["email"], [("a@example.org",)]))


async def test_columns_and_tables_are_synced(audience: CustomAudienceHandle, tmp_path: Path) -> None:
    addresses = [f"user{number}@example.org" for number in range(1_000)]
    columns = Columns(("email",), [[addresses[:300]], [addresses[300:]]])
    first = await audience.users.sync(columns, state=tmp_path / "state")
    second = await audience.users.sync(pa.table({"email": addresses[1:]}), state=tmp_path / "state")
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await audience.users.sync(Columns(("email",), iter(())), state=tmp_path / "state")

    assert (first.sent.accepted, second.plan.unchanged, second.removed.accepted) == (1_000, 999, 1)
