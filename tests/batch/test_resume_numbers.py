"""The numbers of a resumed job are true from its first progress on, and never go back."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from svc_async.batch.journal.journal import JournalLocation
from svc_async.batch.report import Progress, Wait
from svc_async.errors import BatchError
from svc_async.sandbox import VirtualClock
from tests.support.fake_service import LOST, REFUSED, FakeService, adds_up, answer_counts, make_error, make_members
from tests.support.journaled_uploads import create_users, make_repeated_rows, upload
from tests.support.journals import EVERYWHERE, Death, Place, read_record

QUARANTINE = 101.0


def check(seen: Sequence[Progress]) -> None:
    """Check that every row is accounted for and that no number goes back."""
    assert all(map(adds_up, seen))
    for name in ("read", "accepted", "coalesced", "failed", "requests"):
        numbers = [getattr(progress, name) for progress in seen]
        assert numbers == sorted(numbers), name
    for progress in seen:
        assert progress.in_doubt <= progress.pending
        # After a kill a job waits also when no row is known to be in doubt, and nothing is in flight then.
        is_waiting = progress.in_doubt or not progress.in_flight
        assert progress.resend_in is None or (is_waiting and progress.resend_in >= 0)


async def test_a_resumed_job_begins_with_what_was_read_and_what_is_in_doubt(journal: JournalLocation) -> None:
    service = FakeService()
    service.script = {3: LOST, 4: make_error(403)}
    rows: list[Any] = [*make_members(30), {"email": "no"}]
    with pytest.raises(BatchError) as caught:
        await upload(service, rows, journal, concurrency=1, quarantine=0, retry_delays=[0])
    ended, known = caught.value.report, (await read_record(journal)).report
    seen: list[Progress] = []

    report = await upload(service, rows, journal, progress=seen.append, quarantine=QUARANTINE)

    assert list(dict.fromkeys(progress.phase for progress in seen)) == ["reading", "sending"]
    first = seen[0]
    assert (first.accepted, first.in_doubt, first.requests) == (8, 4, ended.requests)
    assert first.read == known.read <= ended.read
    assert (report.read, report.accepted, report.failed) == (31, 30, 1)
    waiting = [progress for progress in seen if progress.resend_in is not None]
    assert waiting[0].in_doubt == 4
    assert waiting[0].resend_in == pytest.approx(QUARANTINE, abs=1)
    check(seen)


async def test_a_resumed_job_begins_with_the_rows_that_broke_a_rule(journal: JournalLocation) -> None:
    service = FakeService()
    service.script = {3: make_error(403), 4: make_error(403)}
    rows: list[Any] = [{"email": "no"}, {"email": "nor this"}, *make_members(30)]
    with pytest.raises(BatchError):
        await upload(service, rows, journal, concurrency=1)
    known = (await read_record(journal)).report
    seen: list[Progress] = []

    with pytest.raises(BatchError) as second:
        await upload(service, rows, journal, progress=seen.append)
    report = await upload(service, rows, journal, progress=seen.append)

    assert known.failed == seen[0].failed == 2
    assert (seen[0].read, seen[0].pending) == (known.read, known.pending)
    assert second.value.report.failed == 2
    assert (report.read, report.accepted, report.failed, report.pending) == (32, 30, 2, 0)
    assert [failure.position for failure in report.failures] == [0, 1]
    check(seen)


async def test_the_time_until_rows_are_sent_again_is_that_of_the_lane_that_waits_least() -> None:
    service = FakeService(latency=10)
    service.script = {1: LOST, 5: LOST}  # of two lanes, one after the other
    seen: list[Progress] = []

    users = create_users(service)  # without a journal, whose commits take no virtual time
    await users.upload(
        make_members(60), users_per_operation=1, concurrency=3, quarantine=QUARANTINE, progress=seen.append
    )

    times = [progress.resend_in for progress in seen if progress.resend_in is not None]
    assert max(times) == QUARANTINE
    assert min(times) < QUARANTINE
    assert seen[-1].in_doubt == 0
    assert seen[-1].resend_in is None
    check(seen)


class BusyClock(VirtualClock):
    """A jumping clock whose sleepers may be late, as in a process that is busy."""

    late = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.late


async def test_the_time_until_rows_are_sent_again_is_never_negative() -> None:
    clock = BusyClock(mode="jump")
    service = FakeService(clock=clock, latency=10)
    service.script = {1: LOST}
    seen: list[Progress] = []

    def progress(now: Progress) -> None:
        seen.append(now)
        clock.late = 0.0 if now.resend_in is None else 2 * QUARANTINE

    await create_users(service).upload(
        make_members(60), users_per_operation=1, concurrency=3, quarantine=QUARANTINE, progress=progress
    )

    assert [each.resend_in for each in seen if each.resend_in is not None][:2] == [QUARANTINE, 0]
    check(seen)


async def test_what_is_sent_again_without_doubt_tells_when_and_why(journal: JournalLocation) -> None:
    service = FakeService()
    service.script = {1: make_error(503, headers={"retry-after": "5"}), 2: REFUSED}
    seen: list[Progress] = []

    await upload(service, make_members(3), journal, retry_delays=[5, 7], progress=seen.append)

    waits = [each for each in seen if each.resend_in is not None]
    told = [(each.waiting, each.resend_in, each.resend_after, each.attempts, each.in_doubt) for each in waits]
    assert told == [(1, 5, "HTTP 503", 1, 0), (1, 7, "connection refused", 2, 0)]
    assert (seen[-1].waiting, seen[-1].resend_after, seen[-1].attempts) == (0, None, 0)


async def test_of_requests_that_wait_the_first_is_told() -> None:
    service = FakeService(latency=10)
    service.script = {1: make_error(503, headers={"retry-after": "5"}), 2: LOST, 3: make_error(504)}
    seen: list[Progress] = []

    await create_users(service).upload(
        make_members(60),
        users_per_operation=1,
        concurrency=3,
        quarantine=QUARANTINE,
        retry_delays=[50],
        progress=seen.append,
    )

    most = max(seen, key=lambda each: each.waiting)
    assert (most.waiting, most.resend_after, most.attempts) == (3, "HTTP 503", 1)


async def test_a_request_that_is_given_up_after_its_quarantine_is_not_sent_again() -> None:
    service = FakeService(always=answer_counts(0, 1))
    seen: list[Progress] = []

    await create_users(service).upload(
        make_members(1), concurrency=1, quarantine=QUARANTINE, retry_delays=[], progress=seen.append
    )

    (wait,) = (each for each in seen if each.resend_in is not None)
    assert (wait.waiting, wait.resend_in, wait.resend_after) == (0, QUARANTINE, None)


def test_parts_of_a_job_tell_the_first_wait_of_all() -> None:
    early = Progress(accepted=1, wait=Wait(until=15.0, requests=1, after="HTTP 503", attempts=2), at=10.0)
    late = Progress(accepted=2, wait=Wait(until=19.0, requests=2, after="HTTP 502", attempts=1), at=10.0)
    quarantine = Progress(wait=Wait(until=11.0), at=10.0)
    for total in (early + late, late + early, quarantine + early + late):
        assert (total.accepted, total.waiting) == (3, 3)
        assert (total.resend_in, total.resend_after, total.attempts) == (5.0, "HTTP 503", 2)
    assert (early + Progress()).resend_after == "HTTP 503"


async def test_a_resumed_job_that_stops_at_once_reports_what_was_read_before(journal: JournalLocation) -> None:
    service = FakeService()
    service.script = {9: make_error(403)}
    with pytest.raises(BatchError) as first:
        await upload(service, make_members(60), journal, concurrency=1, operations=1)
    service.always = make_error(403)

    with pytest.raises(BatchError) as second:
        await upload(service, make_members(60), journal, operations=1)

    assert second.value.report.read >= first.value.report.read > 8
    assert second.value.report.accepted == 8
    assert adds_up(second.value.report)


@EVERYWHERE
async def test_a_job_that_was_killed_says_how_long_it_waits_also_if_no_row_is_in_doubt(place: Place) -> None:
    for commit in place.choose(1, 1000, few=False):
        journal, service, death = place.journal(f"{commit}"), FakeService(), Death(commit, after=True)
        with suppress(BatchError):
            await upload(service, make_members(9), journal, concurrency=1, death=death)
        record = await read_record(journal)
        if record.report.accepted and not record.report.in_doubt:
            break
    assert not record.finished
    seen: list[Progress] = []

    await upload(service, make_members(9), journal, quarantine=QUARANTINE, progress=seen.append)

    (wait,) = {progress.resend_in for progress in seen if progress.resend_in is not None}
    assert QUARANTINE / 2 < wait < QUARANTINE * 3 / 2, "a shared state adds its grace, and counts from the last commit"


@pytest.mark.parametrize("after", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("lanes", "few"), [(3, True), *(pytest.param(lanes, False, marks=pytest.mark.long) for lanes in (1, 3))]
)
async def test_numbers_never_go_back_wherever_a_job_is_killed(
    place: Place, lanes: int, *, few: bool, after: bool
) -> None:
    rows: list[Any] = [*make_repeated_rows(40, keys=25), {"email": "no"}, {"email": "nor this"}]
    for commit in place.choose(1, 1000, few=few):
        journal, service, death = place.journal(f"{commit}"), FakeService(), Death(commit, after=after)
        service.script = {2: LOST, 3: make_error(504)}
        try:
            await upload(service, rows, journal, concurrency=lanes, quarantine=5, death=death)
        except BatchError:
            record = await read_record(journal)
        else:
            return
        if record.finished:
            continue
        known = (record.report.read, record.report.accepted, record.report.in_doubt)
        seen: list[Progress] = []

        report = await upload(service, rows, journal, quarantine=5, progress=seen.append)

        check(seen)
        assert (seen[0].read, seen[0].accepted, seen[0].in_doubt) == known
        assert (report.read, report.pending, report.in_doubt) == (42, 0, 0)
