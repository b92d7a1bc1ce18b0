"""Whose a journal is, wherever it is kept: that of one job, with one source."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from svc_async.batch.journal.journal import JournalLocation
from svc_async.errors import BatchError, Hint
from tests.support.errors import has
from tests.support.fake_service import FakeService, make_error, make_members
from tests.support.journaled_uploads import Row, create_users, find_expected, make_repeated_rows, read_values, upload
from tests.support.journals import EVERYWHERE, UNUSABLE, hold_clock


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: [{**rows[0], "svc_id": "7777"}, *rows[1:]],
        pytest.param(lambda rows: rows[1:], marks=pytest.mark.long),
        pytest.param(lambda rows: [{"email": "bad"}, *rows[1:]], marks=pytest.mark.long),
        lambda _: [],
    ],
    ids=["another value", "a row less", "a bad row", "nothing"],
)
async def test_a_changed_source_is_refused_and_nothing_is_sent(
    journal: JournalLocation, change: Callable[[Any], Any]
) -> None:
    service = FakeService()
    rows = make_repeated_rows()
    service.script[9] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, rows, journal, concurrency=2)
    sent = len(service.bodies)
    with pytest.raises(UNUSABLE, check=has(hint=Hint.GIVE_ITS_SOURCE)):
        await upload(service, change(rows), journal)
    assert len(service.bodies) == sent
    await upload(service, rows, journal)
    assert read_values(service) == find_expected(rows)


class Ending(list[Row]):
    """Rows that know whether they were read to their end."""

    ended = False

    def __iter__(self) -> Iterator[Row]:
        yield from super().__iter__()
        self.ended = True


async def test_a_source_that_has_grown_after_its_end_is_refused(journal: JournalLocation) -> None:
    service = FakeService()
    rows = Ending(make_repeated_rows())
    answers = itertools.count()

    def refuse(_: object) -> None:
        if rows.ended and next(answers):  # the first may have been sent before
            raise make_error(403)

    service.always = refuse
    with pytest.raises(BatchError):
        await upload(service, rows, journal, concurrency=1)
    with pytest.raises(UNUSABLE, check=has(hint=Hint.GIVE_ITS_SOURCE)):
        await upload(service, [*rows, {"partner_user_id": "new"}], journal)
    service.always = None
    await upload(service, rows, journal)
    assert read_values(service) == find_expected(rows)


@EVERYWHERE
async def test_a_journal_of_another_job_is_refused(journal: JournalLocation) -> None:
    service = FakeService()
    await upload(service, make_members(3), journal)
    other = create_users(service, "c2")
    with pytest.raises(UNUSABLE, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await other.upload(make_members(3), journal=hold_clock(journal, service.clock))
    with pytest.raises(UNUSABLE, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await upload(service, make_members(3), journal, ordering="none")


async def test_a_removal_is_not_taken_for_an_upload(journal: JournalLocation) -> None:
    service = FakeService()
    service.script[2] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, make_members(60), journal, concurrency=1, users_per_operation=1)
    with pytest.raises(UNUSABLE, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await create_users(service).remove(make_members(60), journal=hold_clock(journal, service.clock))
    await upload(service, make_members(60), journal)
    with pytest.raises(UNUSABLE, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await create_users(service).remove(make_members(60), journal=hold_clock(journal, service.clock))
