"""Jobs that are killed and resumed: nothing is lost or out of order, and only what is in doubt is sent twice."""

import asyncio
import gc
import itertools
import random
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.journal.file import JournalFile
from svc_async.batch.journal.journal import JournalLocation, JournalPath
from svc_async.batch.journal.resume import SourceReplay
from svc_async.batch.packing.batch import Batch, Limits
from svc_async.batch.report import Failure, Progress
from svc_async.errors import BatchError, ErrorDetail, Hint
from svc_async.handles import CustomAudienceHandle
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.clock import MachineClock
from tests.support.errors import has
from tests.support.fake_catalog import FakeCatalog, change_results, product
from tests.support.fake_service import (
    LOST,
    REFUSED,
    FakeService,
    Outcome,
    adds_up,
    answer_counts,
    apply_and_raise,
    make_error,
    make_members,
)
from tests.support.journaled_uploads import (
    SMALL,
    create_users,
    find_expected,
    hash_id,
    make_repeated_rows,
    read_values,
    upload,
)
from tests.support.journals import EVERYWHERE, FEW, UNUSABLE, Death, Place, hold_clock
from tests.support.properties import FEWER
from tests.support.tasks import wait_until


def parse_identities(body: bytes) -> list[tuple[str, str]]:
    return [
        (user["partner_user_id"][0], user["svc_id"][0])
        for operation in msgspec.json.decode(body)
        for user in operation["params"]["users"]
    ]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("lanes", "per_operation", "few"),
    [
        (3, 1, True),
        *(pytest.param(*each, False, marks=pytest.mark.long) for each in ((1, 2), (3, 1), (5, 3))),
    ],
)
async def test_a_kill_at_any_commit_loses_nothing_and_repeats_only_what_was_in_doubt(
    place: Place, lanes: int, per_operation: int, *, few: bool, after: bool
) -> None:
    rows = make_repeated_rows(30 if few else 60)
    for commit in place.choose(1, 1000, few=few):
        journal = place.journal(f"{commit}")
        service = FakeService()
        how: dict[str, Any] = {"concurrency": lanes, "users_per_operation": per_operation}
        death = Death(commit, after=after)
        try:
            await upload(service, rows, journal, death=death, **how)
        except BatchError as error:
            assert adds_up(error.report)
        seen: list[Progress] = []
        report = await upload(service, rows, journal, progress=seen.append, **how)
        assert read_values(service) == find_expected(rows), f"killed at commit {commit}"
        assert (report.read, report.pending, report.failed) == (len(rows), 0, 0)
        assert adds_up(report)
        assert all(map(adds_up, seen))
        sent = Counter(itertools.chain.from_iterable(map(parse_identities, dict.fromkeys(service.bodies))))
        assert sent <= Counter((row["partner_user_id"], hash_id(row)) for row in rows)
        assert max(Counter(service.bodies).values()) <= 2
        if not death.happened:
            return
    pytest.fail("the job does not end")


@FEW
async def test_a_kill_while_lanes_share_several_requests_loses_nothing(place: Place, few: bool) -> None:
    rows, operations = make_members(126), 7  # what is left of most of the lanes fills more than half of a request
    for commit in place.choose(10, 1000, few=few):
        journal = place.journal(f"{commit}")
        service = FakeService()
        death = Death(commit)
        how: dict[str, Any] = {"operations": operations, "concurrency": 12}
        with suppress(BatchError):
            await upload(service, rows, journal, death=death, **how)
        if not death.happened:
            break
        report = await upload(service, rows, journal, **how)
        assert (report.accepted, report.pending) == (126, 0), f"killed at commit {commit}"
        assert set(service.partner_user_ids) == {row["partner_user_id"] for row in rows}
    assert len(service.bodies) == 126 // operations + 1


async def cancel_in_flight(service: FakeService, rows: Any, journal: JournalLocation, **settings_: Any) -> float:
    """End a job as a kill would while a request is under way; give the time at which that was sent."""
    task = asyncio.create_task(upload(service, rows, journal, **settings_))
    await wait_until(lambda: service.in_flight == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return service.times[-1]


@EVERYWHERE
async def test_an_intent_waits_out_its_quarantine_then_sends_the_same_bytes(journal: JournalLocation) -> None:
    service = FakeService(clock=MachineClock(), latency=1)
    rows = make_repeated_rows(20)
    sent_at = await cancel_in_flight(service, rows, journal, concurrency=1, quarantine=100)
    await service.clock.sleep(30)
    await upload(service, rows, journal, concurrency=1, quarantine=100)
    assert service.bodies[1] == service.bodies[0]
    assert service.times[1] - sent_at == pytest.approx(100)
    assert read_values(service) == find_expected(rows)


@FEW
async def test_unsettled_rows_that_are_not_read_again_yet_stay_unsettled(place: Place, few: bool) -> None:
    rows = make_repeated_rows(40 if few else 90, keys=20)
    for commit in place.choose(1, 40, few=few):
        journal = place.journal(f"{commit}")
        service = FakeService()
        with suppress(BatchError):
            death = Death(3)
            await upload(service, rows, journal, concurrency=1, users_per_operation=25, death=death)
        with suppress(BatchError):
            await upload(service, rows, journal, users_per_operation=1, death=Death(commit))
        report = await upload(service, rows, journal, users_per_operation=1)
        assert (report.read, report.pending) == (len(rows), 0)
        assert read_values(service) == find_expected(rows), f"killed at commit {commit}"


@FEW
async def test_superseded_rows_of_a_request_that_was_halved_are_counted_once(place: Place, few: bool) -> None:
    rows = [{"partner_user_id": f"p{n % 3}", "svc_id": f"1{n % 3}"} for n in range(24)]
    for commit in place.choose(1, 20, few=few):
        journal = place.journal(f"{commit}")
        service = FakeService()
        service.script[1] = make_error(400)
        with suppress(BatchError):
            await upload(service, rows, journal, concurrency=1, death=Death(commit, after=True))
        seen: list[Progress] = []
        report = await upload(service, rows, journal, progress=seen.append)
        assert all(map(adds_up, seen))
        assert (report.read, report.failed, report.pending) == (24, 0, 0), f"killed at commit {commit}"
        assert read_values(service) == find_expected(rows)


async def test_what_is_sent_again_is_not_kept_while_the_rest_is_sent(
    journal: JournalLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService(latency=1)
    rows = make_repeated_rows(20)
    await cancel_in_flight(service, rows, journal, concurrency=1)
    rebuild, rebuilt = SourceReplay.rebuild, list[weakref.ref[Any]]()

    def rebuild_and_watch(replay: SourceReplay, *of: Any) -> Batch:
        batch = rebuild(replay, *of)
        rebuilt.extend((weakref.ref(replay), weakref.ref(batch)))
        return batch

    monkeypatch.setattr(SourceReplay, "rebuild", rebuild_and_watch)
    kept: list[object] = []

    def collect(_: object) -> None:
        gc.collect()
        kept.extend(each() for each in rebuilt if each() is not None)

    service.script[3] = collect

    report = await upload(service, rows, journal)

    assert report.requests > 3
    assert rebuilt
    assert kept == []


async def test_what_is_older_than_the_quarantine_is_sent_at_once(journal: JournalLocation) -> None:
    service = FakeService(clock=MachineClock(), latency=1)
    await cancel_in_flight(service, make_members(3), journal)
    await service.clock.sleep(1000)
    before = service.clock.monotonic()
    await upload(service, make_members(3), journal)
    assert service.times[1] == before


async def test_what_was_certainly_refused_is_not_in_doubt(journal: JournalLocation) -> None:
    service = FakeService()
    service.script[1] = make_error(401)
    with pytest.raises(BatchError):
        await upload(service, make_members(3), journal)
    before = service.clock.monotonic()
    report = await upload(service, make_members(3), journal)
    assert (report.accepted, report.requests, service.times[-1]) == (3, 2, before)


@EVERYWHERE
async def test_a_finished_job_returns_its_report_at_once(journal: JournalLocation) -> None:
    service = FakeService()
    rows: list[Any] = [*make_members(20), {"email": "no"}, {"partner_user_id": "p1"}]
    report = await upload(service, rows, journal)
    sent = len(service.bodies)
    again = await upload(service, rows, journal)
    assert again == report
    assert again.failures[0].position == 20
    assert len(service.bodies) == sent
    stream = create_users(service).stream(rows, journal=journal)
    assert [receipt async for receipt in stream] == []
    assert stream.report == report


async def test_times_stay_pinned_over_a_restart(journal: JournalLocation) -> None:
    service = FakeService()
    with pytest.raises(BatchError):
        await upload(service, make_members(3), journal, death=Death(2))
    await service.clock.sleep(10_000)
    await upload(service, make_members(3), journal)
    assert len(service.bodies) == 2
    assert service.bodies[0] == service.bodies[1]


async def test_other_settings_continue_with_the_lanes_of_the_first_run(journal: JournalLocation) -> None:
    service = FakeService()
    rows = make_repeated_rows(100, keys=60)
    service.script[7] = make_error(403)
    with pytest.raises(BatchError):
        await upload(service, rows, journal, concurrency=3, users_per_operation=1)
    service.latency = 1
    service.most_in_flight = 0
    await upload(service, rows, journal, concurrency=50, users_per_operation=2, retry_delays=[1])
    assert service.most_in_flight <= 3
    assert read_values(service) == find_expected(rows)


async def test_failures_are_reported_again_and_counted_once(journal: JournalLocation) -> None:
    service = FakeService()
    bad = make_error(400, errors=[ErrorDetail(code="BAD", message="no")])
    rows: list[Any] = [{"email": "no"}, *make_members(30)]
    service.script = {1: bad, 2: bad, 3: bad, 12: make_error(403)}
    with pytest.raises(BatchError) as caught:
        await upload(service, rows, journal, concurrency=1, users_per_operation=1)
    (known,) = [failure for failure in caught.value.report.failures if failure.code == "BAD"]
    reported: list[Failure] = []
    report = await upload(service, rows, journal, on_failure=reported.append)
    assert sorted(failure.position for failure in reported) == [0, known.position]
    assert (report.failed, report.accepted, report.read) == (2, 29, 31)
    assert report.requests == len(service.bodies)


async def test_a_job_without_order_can_be_resumed_as_well(journal: JournalLocation) -> None:
    service = FakeService()
    service.script = {4: make_error(403)}
    with pytest.raises(BatchError):
        await upload(service, make_members(100), journal, concurrency=3, users_per_operation=1, ordering="none")
    report = await upload(service, make_members(100), journal, ordering="none")
    assert (report.accepted, len(service.users)) == (100, 100)


async def test_a_cancelled_job_can_be_resumed(journal: JournalLocation) -> None:
    service = FakeService(latency=5)
    rows = make_repeated_rows(100, keys=80)
    task = asyncio.create_task(upload(service, rows, journal, concurrency=2))
    await wait_until(lambda: len(service.bodies) >= 4)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [thread for thread in threading.enumerate() if thread.name == "svc-async sqlite"]
    report = await upload(service, rows, journal)
    assert report.pending == 0
    assert read_values(service) == find_expected(rows)


async def test_jobs_of_products_can_be_resumed(journal: JournalLocation) -> None:
    shop = FakeCatalog()
    kept = hold_clock(journal, shop.clock)
    dice = random.Random(2)
    rows = [product(dice.randrange(30), title=f"t{number}") for number in range(60)]
    products = shop.products(SMALL)
    for commit in (2, 3, 5):
        dying = Death(commit, after=True).wrap(kept)
        with pytest.raises(BatchError):
            await products.upsert(rows, journal=dying, concurrency=4)
    report = await products.upsert(rows, journal=kept)
    assert (report.read, report.pending, report.failed) == (60, 0, 0)
    assert {name: row["title"] for name, row in shop.held.items()} == {row["id"]: row["title"] for row in rows}
    again = shop.products(SMALL)
    with pytest.raises(UNUSABLE, check=has(hint=Hint.KEEP_THE_SETTINGS)):
        await again.delete(["k"], journal=journal)


async def test_products_that_an_answer_leaves_out_stay_in_doubt_over_a_restart(journal: JournalLocation) -> None:
    shop = FakeCatalog()
    kept = hold_clock(journal, shop.clock)
    shop.script[1] = change_results(lambda found: found[2:])
    products = shop.products(SMALL)
    rows = [product(number) for number in range(10)]
    death = Death(10**9)
    task = asyncio.create_task(products.upsert(rows, journal=death.wrap(kept), concurrency=1, quarantine=10**6))
    await wait_until(lambda: len(shop.requests) == 1)
    death.commit = 0  # from now on
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    report = await products.upsert(rows, journal=kept, quarantine=50)
    assert (report.accepted, report.read) == (10, 10)


async def _kill_and_resume(
    audience: CustomAudienceHandle, journal: JournalPath, commit: int, *, count: int, after: bool
) -> None:
    rows: list[dict[str, object]] = [
        {"partner_user_id": f"p{n % 37}", "email": f"u{n}@b.de", "handle": f"h{n % 5}"} for n in range(count)
    ]
    users = attrs.evolve(audience.users, limits=Limits(operations=4), sizes=SMALL)
    dying = Death(commit, after=after).wrap(journal)
    how: dict[str, Any] = {"concurrency": 3, "users_per_operation": 2, "retry_delays": [0] * 20}
    with suppress(BatchError):
        await users.upload(rows, journal=dying, **how)
    report = await users.upload(rows, journal=journal, **how)
    assert (report.read, report.pending, report.failed) == (count, 0, 0)


@pytest.mark.parametrize("after", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("count", "commits"),
    [(60, (5, 10**6)), pytest.param(150, (1, 2, 3, 5, 8, 13, 21, 10**6), marks=pytest.mark.long)],
)
async def test_the_sandbox_holds_the_same_audience_whenever_the_job_was_killed(
    sandbox: Sandbox, audience: CustomAudienceHandle, place: Place, count: int, commits: Sequence[int], *, after: bool
) -> None:
    whole: set[str] | None = None
    for commit in commits:
        await audience.users.remove([{"partner_user_id": f"p{n}"} for n in range(37)])
        sandbox.faults.on("POST", "*/users").probability(0.1, seed=commit).do(Fault.drop_connection(), stage="after")
        await _kill_and_resume(
            audience,
            hold_clock(place.journal(str(commit)), cast("VirtualClock", sandbox.clock)),
            commit,
            count=count,
            after=after,
        )
        sandbox.faults.clear()
        found = {value for user in sandbox.audience(sandbox.audience_id).users for value in user["email"]}
        whole = whole or found
        assert found == whole


OUTCOMES = ["fine", "fine", "503", "lost", "lost after", "refused", "429", "counts", "400", "403"]


@FEWER
@pytest.mark.usefixtures("examples")
@given(
    keys=st.lists(st.integers(0, 25), max_size=120),
    values=st.integers(1, 200),
    outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=10),
    kills=st.lists(st.tuples(st.integers(1, 25), st.booleans()), max_size=4),
    shape=st.tuples(st.sampled_from([1, 3]), st.integers(1, 5), st.booleans()),
)
async def test_any_faults_and_any_kills_leave_the_last_of_each_key(  # noqa: PLR0917 - hypothesis gives them
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[int],
    values: int,
    outcomes: list[str],
    kills: list[tuple[int, bool]],
    shape: tuple[int, int, bool],
) -> None:
    per_operation, lanes, replayable = shape
    journal = JournalFile(tmp_path_factory.mktemp("job") / "journal")
    service = FakeService()
    errors: dict[str, Outcome | None] = {
        "fine": None,
        "503": make_error(503),
        "lost": LOST,
        "lost after": apply_and_raise(service, LOST),
        "refused": REFUSED,
        "429": make_error(429),
        "counts": answer_counts(0, 0),
        "400": make_error(400),
        "403": make_error(403),
    }
    service.script = {number: outcome for number, each in enumerate(outcomes, 1) if (outcome := errors[each])}
    rows = [
        {"partner_user_id": f"p{key}", "svc_id": str(number % values + 1)} if key else {"email": "no"}
        for number, key in enumerate(keys)
    ]
    how: dict[str, Any] = {"users_per_operation": per_operation, "concurrency": lanes, "retry_delays": [0] * 9}
    failed: set[str] = set()
    for commit, after in [*kills, *[(10**9, False)] * 8]:
        seen: list[Progress] = []
        death = Death(commit, after=after)
        try:
            source = rows if replayable else iter(rows)
            report = await upload(service, source, journal, progress=seen.append, death=death, **how)
        except BatchError as error:
            report = error.report
            assert adds_up(report)
        assert all(map(adds_up, seen))
        failed |= {rows[each.position]["partner_user_id"] for each in report.failures if each.code != "INVALID_ROW"}
        if not report.pending and report.read == len(rows) and commit == 10**9:
            break
    assert (report.read, report.pending) == (len(rows), 0)
    assert adds_up(report)
    assert report.failed == keys.count(0) + len([each for each in report.failures if each.code != "INVALID_ROW"])
    # A kill between the intent and the request cannot be distinguished from one after it.
    assert len(service.bodies) - lanes * len(kills) <= report.requests <= len(service.bodies) + lanes * len(kills)
    wanted = find_expected([row for row in rows if "svc_id" in row])
    assert {name: value for name, value in read_values(service).items() if name not in failed} == {
        name: value for name, value in wanted.items() if name not in failed
    }
