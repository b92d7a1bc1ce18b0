"""A journal, finished or not, is of a definite job: its source, host, list, operation and what changes its rows."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest

from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.record import JournalRecord
from svc_async.errors import BatchError, Hint, UnusableFile
from svc_async.wire.base_urls import Endpoints
from tests.support.errors import has
from tests.support.fake_catalog import FakeCatalog, product
from tests.support.fake_service import FakeService, make_error, make_members
from tests.support.journaled_uploads import create_users, make_repeated_rows, upload

END = datetime(2026, 12, 1, 12, tzinfo=UTC)
ROWS = make_repeated_rows(20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.journal"


@pytest.fixture(params=["finished", "unfinished", pytest.param("nothing sent", marks=pytest.mark.long)])
async def used(request: pytest.FixtureRequest, service: FakeService, path: Path) -> FakeService:
    """Return a service that an upload with a journal has used, before all or some of its requests."""
    refused = {"finished": 0, "unfinished": 3, "nothing sent": 1}[request.param]
    service.script[refused] = make_error(403)  # requests count from 1
    try:
        await upload(service, ROWS, path, concurrency=1, expires_at=END, phone_region="DE")
    except BatchError:
        assert request.param != "finished"
    service.script = {}
    return service


async def expect_refusal(
    service: FakeService, path: Path, hint: Hint, rows: Any = ROWS, *, named: str | None = None, **changes: Any
) -> None:
    """Nothing is sent or stored, and the error names the setting that differs."""
    sent, before = len(service.bodies), JournalFile(path).read().bodies
    settings = {"expires_at": END, "phone_region": "DE", **changes}
    with pytest.raises(UnusableFile, match=named, check=has(path=str(path), hint=hint)):
        await upload(service, rows, path, **settings)
    assert (len(service.bodies), JournalFile(path).read().bodies) == (sent, before)


CHANGES: Sequence[tuple[dict[str, Any], str]] = (
    ({"expires_at": END + timedelta(seconds=1)}, "expires_at"),
    ({"expires_at": None}, "expires_at"),
    ({"effective_at": END - timedelta(days=1)}, "effective_at"),
    ({"phone_region": "FR"}, "phone_region"),
    ({"phone_region": None}, "phone_region"),
    ({"bad_identifiers": "drop"}, "bad_identifiers"),
    ({"ordering": "none"}, "ordered"),
)


async def test_other_settings_that_change_requests_are_refused(
    subtests: pytest.Subtests, used: FakeService, path: Path
) -> None:
    for changes, named in CHANGES:
        with subtests.test(changes=changes):
            await expect_refusal(used, path, Hint.KEEP_THE_SETTINGS, named=f"\\b{named} is ", **changes)


async def test_another_host_is_refused(used: FakeService, path: Path) -> None:
    used.endpoints = Endpoints(base_url="https://base.example", ads_url="https://other.example")

    await expect_refusal(
        used, path, Hint.KEEP_THE_SETTINGS, named="host is 'https://ads.example' there, not 'https://o"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [{**rows[0], "svc_id": "7777"}, *rows[1:]],
        pytest.param(lambda rows: [*rows[:-1], {**rows[-1], "svc_id": "7777"}], marks=pytest.mark.long),
        lambda rows: rows[:-1],
        lambda rows: [*rows, rows[0]],
        pytest.param(lambda rows: [*rows, {"email": "no"}], marks=pytest.mark.long),
        pytest.param(lambda _: [], marks=pytest.mark.long),
    ],
    ids=["first", "last", "one less", "one more", "an invalid one more", "none"],
)
async def test_a_finished_journal_does_not_swallow_another_source(
    service: FakeService, path: Path, change: Callable[[Any], Any]
) -> None:
    await upload(service, ROWS, path, expires_at=END, phone_region="DE")

    await expect_refusal(service, path, Hint.NAME_A_NEW_JOURNAL, change(ROWS))


@pytest.mark.parametrize("rows", [[], [{"email": "no"}, {"email": "nor this"}]], ids=["empty", "invalid"])
async def test_a_finished_job_that_sent_nothing_is_recognised_as_well(
    service: FakeService, path: Path, rows: list[Any]
) -> None:
    report = await upload(service, rows, path)

    assert await upload(service, rows, path) == report
    with pytest.raises(UnusableFile, check=has(hint=Hint.NAME_A_NEW_JOURNAL)):
        await upload(service, make_members(1), path)
    assert service.bodies == []


async def test_the_same_instant_in_another_time_zone_is_the_same_setting(used: FakeService, path: Path) -> None:
    elsewhere = END.astimezone(timezone(timedelta(hours=5)))

    report = await upload(used, ROWS, path, expires_at=elsewhere, phone_region="DE")

    assert (report.read, report.pending) == (20, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"users_per_operation": 2},
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ({"concurrency": 7}, {"quarantine": 5}, {"retry_delays": [1]})
        ),
    ],
    ids=lambda settings: next(iter(settings)),
)
async def test_settings_that_change_nothing_of_a_row_may_differ(
    used: FakeService, path: Path, settings: dict[str, Any]
) -> None:
    was_finished, sent = JournalRecord.read(path).finished, len(used.bodies)

    report = await upload(used, ROWS, path, expires_at=END, phone_region="DE", **settings)

    assert (report.read, report.pending) == (20, 0)
    assert (len(used.bodies) == sent) == was_finished


async def test_another_iterator_is_refused_and_an_exhausted_one_stands_for_the_spooled_rows(
    service: FakeService, path: Path
) -> None:
    service.script[2] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, iter(ROWS), path, concurrency=1)
    for finished in (False, True):
        hint = Hint.NAME_A_NEW_JOURNAL if finished else Hint.GIVE_ITS_SOURCE
        with pytest.raises(UnusableFile, check=has(hint=hint)):
            await upload(service, iter(ROWS[1:]), path)
        assert JournalRecord.read(path).finished == finished
        report = await upload(service, iter([] if finished else ROWS), path)
        assert (report.read, report.pending) == (20, 0)
    assert (await upload(service, iter(ROWS), path)) == report


async def test_a_finished_journal_of_products_is_of_its_feed_host_and_catalog(path: Path) -> None:
    shop = FakeCatalog()
    rows = [product(number) for number in range(30)]
    report = await shop.products().upsert(rows, journal=path)

    assert await shop.products().upsert(rows, journal=path) == report
    with pytest.raises(UnusableFile, check=has(hint=Hint.NAME_A_NEW_JOURNAL)):
        await shop.products().upsert([*rows, product(31)], journal=path)
    with pytest.raises(UnusableFile, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await shop.products().delete(["k"], journal=path)
    other = attrs.evolve(shop, endpoints=Endpoints(base_url="https://base.example", ads_url="https://other.example"))
    with pytest.raises(UnusableFile, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await other.products().upsert(rows, journal=path)


class Changing(list[Any]):
    """Rows that are others when they are read for the second time."""

    later: Any = None

    def __iter__(self) -> Iterator[Any]:
        rows, self.later = self.later or [*super().__iter__()], self.later or self.change([*super().__iter__()])
        return iter(rows)

    def change(self, rows: list[Any]) -> list[Any]:
        return [{**rows[0], "svc_id": "7777"}, *rows[1:]]


class Shrinking(Changing):
    def change(self, rows: list[Any]) -> list[Any]:
        return rows[:1]


@pytest.mark.parametrize("kind", [Changing, Shrinking])
async def test_a_source_that_changes_between_its_two_readings_is_refused(
    service: FakeService, path: Path, kind: type[Changing]
) -> None:
    service.script = {5: make_error(403)}
    with pytest.raises(BatchError):
        await upload(service, ROWS, path, concurrency=1, operations=1)

    with pytest.raises(BatchError) as caught:
        await upload(service, kind(ROWS), path, operations=1)

    assert isinstance(caught.value.__cause__, UnusableFile)
    assert not JournalRecord.read(path).finished
    report = await upload(service, ROWS, path, operations=1)
    assert (report.read, report.pending) == (20, 0)


async def test_operations_have_the_settings_that_change_their_users(service: FakeService, path: Path) -> None:
    users = create_users(service)
    operations = [{"operation_type": "Update", "params": {"users": [{"svc_id": "1"}]}}]
    await users.apply(operations, journal=path, phone_region="DE")

    with pytest.raises(UnusableFile, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await users.apply(operations, journal=path)
    with pytest.raises(UnusableFile, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await users.upload([{"svc_id": "1"}], journal=path, phone_region="DE")
