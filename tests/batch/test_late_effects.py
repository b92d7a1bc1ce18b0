"""A request that takes effect after its answer was lost, or came from a gateway or for another request."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from svc_async.ads.custom_audiences import BatchCounts
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.settings import JobSizes
from svc_async.errors import BatchError, ErrorDetail, SvcError, UnexpectedAnswer
from tests.support.fake_catalog import FakeCatalog, product
from tests.support.fake_service import (
    LOST,
    FakeService,
    Outcome,
    apply_and_raise,
    apply_late_and_raise,
    make_error,
)
from tests.support.journaled_uploads import create_users

LATE = 100.0
QUARANTINE = 120.0
GATEWAY = (408, 500, 502, 503, 504, 520)
OLD, NEW = ({"partner_user_id": "p1", "svc_id": value} for value in ("1", "2"))


def hash_of(row: dict[str, str]) -> str:
    return sha256(row["svc_id"].encode()).hexdigest()


def make_odd_answer() -> UnexpectedAnswer:
    error = UnexpectedAnswer("no counts", status=200)
    error.repeatable = False  # a single call would not be repeated
    return error


UNKNOWN: list[SvcError] = [*map(make_error, GATEWAY), LOST, make_odd_answer()]


async def upload_twice(service: FakeService, **settings: Any) -> None:
    """Upload two values of one person, in a request each."""
    users = create_users(service, operations=1)
    report = await users.upload([OLD, NEW], users_per_operation=1, concurrency=2, **settings)
    assert (report.accepted, report.in_doubt) == (2, 0)


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
async def test_a_late_effect_does_not_undo_newer_rows(service: FakeService, error: SvcError) -> None:
    service.script[1] = apply_late_and_raise(service, error, LATE)

    await upload_twice(service, quarantine=QUARANTINE)

    assert service.svc_ids == {"p1": hash_of(NEW)}
    assert service.bodies[0] == service.bodies[1]
    assert [time - service.times[0] for time in service.times] == [0, QUARANTINE, QUARANTINE]


async def test_without_a_quarantine_a_late_effect_undoes_newer_rows(service: FakeService) -> None:
    service.script[1] = apply_late_and_raise(service, make_error(504), LATE)

    await upload_twice(service, quarantine=0)
    await service.clock.sleep(LATE)

    assert service.svc_ids == {"p1": hash_of(OLD)}


@pytest.mark.parametrize("status", [423, 429, 503])
async def test_what_was_turned_away_is_repeated_without_a_quarantine(service: FakeService, status: int) -> None:
    service.script[1] = make_error(status, headers={"retry-after": "7"})

    await upload_twice(service, quarantine=10**6, retry_delays=[5])

    assert service.times[-1] - service.times[0] <= 60


async def test_the_answer_to_another_request_settles_nothing(service: FakeService) -> None:
    def answer_for_another(operations: list[dict[str, Any]]) -> BatchCounts:
        service.clock.call_later(LATE, lambda: service.accepted.extend(operations))
        return BatchCounts(success_count=2_500, total_count=2_500)

    service.script[1] = answer_for_another

    await upload_twice(service, quarantine=QUARANTINE)

    assert service.svc_ids == {"p1": hash_of(NEW)}


async def test_a_late_effect_does_not_undo_a_newer_version_of_a_product() -> None:
    shop = FakeCatalog()
    products = shop.products(JobSizes(slice_rows=1, partition_rows=1))

    def lose(status: int) -> Callable[[Any], Any]:
        def outcome(_: Any) -> Any:
            held = dict(shop.held)
            shop.held.clear()  # it was not applied yet
            shop.clock.call_later(LATE, lambda: shop.held.update(held))
            raise make_error(status)

        return outcome

    shop.script[1] = lose(504)
    rows = [product(1, title="old"), product(1, title="new")]
    report = await products.upsert(rows, concurrency=1, quarantine=QUARANTINE)

    assert (report.accepted, [request[0]["title"] for request in shop.requests]) == (2, ["old", "old", "new"])
    assert shop.times[1] - shop.times[0] == QUARANTINE
    assert shop.held["sku-1"]["title"] == "new"


@pytest.mark.parametrize("error", UNKNOWN, ids=repr)
async def test_what_a_gateway_answered_is_in_doubt_in_the_journal_until_it_is_settled(
    service: FakeService, tmp_path: Path, error: SvcError
) -> None:
    path = tmp_path / "journal"
    sent_at = service.clock.now()
    service.script = {1: apply_and_raise(service, error), 2: make_error(403)}
    users = create_users(service, operations=1)
    with pytest.raises(BatchError) as caught:
        await users.upload([OLD, NEW], users_per_operation=1, concurrency=1, journal=path, retry_delays=[0])

    record = JournalRecord.read(path)

    assert caught.value.report.in_doubt == record.report.in_doubt == 1
    assert [doubt.rows for doubt in record.doubts] == [1]
    assert record.doubts[0].sent_at >= sent_at
    report = await users.upload([OLD, NEW], users_per_operation=1, concurrency=1, journal=path)
    assert (report.accepted, report.in_doubt, JournalRecord.read(path).doubts) == (2, 0, ())


async def test_a_refusal_that_follows_a_gateways_answer_says_that_the_rows_may_have_been_applied() -> None:
    service = FakeService()
    refusal: Outcome = make_error(400, operation_errors={0: (ErrorDetail(code="NO", message="no"),)})
    service.script = {1: make_error(504), 2: refusal}
    users = create_users(service, operations=1)

    report = await users.upload([OLD], users_per_operation=1)

    assert [failure.code for failure in report.failures] == ["NO"]
    assert "may have worked" in report.failures[0].reason
