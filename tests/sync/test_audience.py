import hashlib
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async import BatchError, InvalidArgument, Rows, Session
from svc_async.batch.job import StateLocation
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Failure, Progress, Report
from svc_async.errors import Hint, UnusableFile
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Fault, Sandbox
from svc_async.users.identifiers import IDENTIFIERS
from tests.support.call_count import count_calls
from tests.support.errors import has
from tests.support.fake_service import FakeService
from tests.support.files import Write
from tests.support.sync_states import EVERYWHERE

USERS = "*/custom_audiences/*/users"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox) as session:
        yield session


class Audience:
    """An audience that is synced with contents of a file."""

    def __init__(self, session: Session, sandbox: Sandbox, write: Write, state: StateLocation) -> None:
        self.users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        self.sandbox = sandbox
        self.write = write
        self.state = state
        self.failures: list[Failure] = []
        self.removal_failures: list[Failure] = []

    async def sync(self, content: str, *, share: float = 1.0, lifetime: timedelta = timedelta(days=395)) -> SyncReport:
        return await self.users.sync(
            self.write(content),
            state=self.state,
            max_removal_share=share,
            lifetime=lifetime,
            quarantine=0.0,
            on_failure=self.failures.append,
            on_removal_failure=self.removal_failures.append,
        )

    @property
    def members(self) -> list[dict[str, list[str]]]:
        return self.sandbox.audience(self.sandbox.audience_id).users


@pytest.fixture
def audience(session: Session, sandbox: Sandbox, write: Write, location: StateLocation) -> Audience:
    return Audience(session, sandbox, write, location)


def numbered(*numbers: int) -> str:
    return "email\n" + "".join(f"user{number}@example.org\n" for number in numbers)


def emails(*numbers: int) -> list[dict[str, list[str]]]:
    return [{"email": [sha256(f"user{number}@example.org")]} for number in numbers]


async def test_what_was_accepted_is_known_although_an_observer_raises(audience: Audience) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("full")

    file = audience.write(numbered(*range(100)))
    with pytest.raises(BatchError):
        await audience.users.sync(file, state=audience.state, on_receipt=refuse)
    assert (await audience.sync(numbered(*range(100)))).sent.read == 0


@EVERYWHERE
async def test_only_what_changed_is_sent(audience: Audience, sandbox: Sandbox) -> None:
    first = await audience.sync(numbered(*range(100)))
    assert (first.sent.accepted, first.removed.read) == (100, 0)
    before = sandbox.requests.count(USERS)
    again = await audience.sync(numbered(*range(100)))
    assert again.sent.read == again.removed.read == 0
    assert sandbox.requests.count(USERS) == before
    third = await audience.sync(numbered(*range(2, 103)))
    assert (third.sent.accepted, third.removed.accepted) == (3, 2)
    assert sorted(audience.members, key=str) == sorted(emails(*range(2, 103)), key=str)


@pytest.mark.parametrize(("lifetime", "refreshes"), [(30, 1), (31, 0)])
async def test_rows_that_expire_within_30_days_are_sent_again_by_default(
    tmp_path: Path, lifetime: int, refreshes: int
) -> None:
    users = AudienceUsers(FakeService().pipeline, "a1", "c1")
    people, days = Rows(("email",), [("a@example.org",)]), timedelta(days=lifetime)
    await users.sync(people, state=tmp_path / "state", lifetime=days)
    assert (await users.sync(people, state=tmp_path / "state", lifetime=days)).plan.refreshes == refreshes


async def test_a_removal_that_failed_is_reported_apart(audience: Audience, sandbox: Sandbox) -> None:
    await audience.sync(numbered(1, 2))
    sandbox.faults.on("POST", USERS).do(Fault.http(400))
    sync = await audience.sync(numbered(3))
    assert (sync.removed.failed, sync.sent.failed) == (2, 1)
    assert sorted(failure.position for failure in audience.removal_failures) == [0, 1]
    assert [failure.position for failure in audience.failures] == [0]


async def test_an_identifier_that_somebody_no_longer_has_does_not_stay(audience: Audience) -> None:
    await audience.sync("email,phone\na@example.org,+4930123456\nb@example.org,\n")
    sync = await audience.sync("email,phone\nA@example.org,+4930999999\nb@example.org,\n")
    assert (sync.removed.accepted, sync.sent.accepted) == (1, 1)
    assert {"email": [sha256("a@example.org")], "phone_number": [sha256("+4930999999")]} in audience.members
    assert len(audience.members) == 2


async def test_everybody_leaves_by_the_identifier_by_which_they_are_known(audience: Audience) -> None:
    header = "partner_user_id,svc_id,email,phone,handle,device_id"
    people = [
        'ünï"\\1,,x1@example.org,,,',
        ",17,x2@example.org,,,",
        ",,x3@example.org,+4930123456,,",
        ",,,+4930123457,ann,",
        ",,,,bob,",
        ",,,,,00000000-0000-0000-0000-000000000007",
    ]
    people[0] = people[0].replace('ünï"\\1', '"ünï""\\1"')
    await audience.sync("\n".join([header, *people]))
    assert len(audience.members) == 6
    assert {name for member in audience.members for name in member} == {*IDENTIFIERS}
    sync = await audience.sync(f"{header}\n,,last@example.org,,,\n")
    assert sync.removed.accepted == 6
    assert audience.members == [{"email": [sha256("last@example.org")]}]


@pytest.mark.parametrize("kind", [*IDENTIFIERS])
async def test_what_a_row_has_is_compared_without_its_neighbours(audience: Audience, kind: str) -> None:
    values = {
        "partner_user_id": "p{}",
        "email": "u{}@example.org",
        "phone_number": "+493012345{}",
        "svc_id": "1{}",
        "handle": "h{}",
        "device_id": "9774d56d682e54{}",
    }
    first = "email" if kind == "partner_user_id" else "partner_user_id"
    rows = [f"{values[first]},{values[kind]}".format(number, number) for number in range(10, 20)]
    await audience.sync("\n".join([f"{first},{kind}", *rows]))
    sync = await audience.sync("\n".join([f"{first},{kind}", *reversed(rows)]))
    assert (sync.plan.unchanged, sync.plan.changes) == (10, 0)


async def test_failures_are_reported_at_their_position_in_the_file(audience: Audience) -> None:
    await audience.sync(numbered(1, 2, 3))
    content = f"{numbered(1, 2)}nobody\n{numbered(4)[6:]}nobody2\n"
    sync = await audience.sync(content)
    assert [failure.position for failure in audience.failures] == [2, 4]
    assert (sync.sent.read, sync.sent.accepted, sync.sent.failed) == (3, 1, 2)
    again = await audience.sync(content)
    assert (again.sent.read, again.sent.failed) == (2, 2)
    assert sorted(audience.members, key=str) == sorted(emails(1, 2, 4), key=str)


@pytest.mark.long("hundreds of rows fail, so that the costs can be compared")
async def test_a_failure_costs_no_more_in_a_longer_file(audience: Audience) -> None:
    calls = []
    for rows in (300, 900):
        with count_calls() as count:
            sync = await audience.sync("email\n" + "nobody\n" * rows)
        assert [failure.position for failure in audience.failures[-rows:]] == [*range(rows)]
        assert (sync.plan.invalid_rows, sync.sent.failed) == (rows, rows)
        calls.append(count.calls)
    assert calls[1] < 4 * calls[0]


async def test_a_file_that_would_remove_too_much_is_stopped(audience: Audience) -> None:
    await audience.sync(numbered(*range(10)))
    with pytest.raises(InvalidArgument, check=has(parameter="max_removal_share")):
        await audience.sync(numbered(0), share=0.5)
    assert len(audience.members) == 10
    await audience.sync(numbered(0), share=0.9)
    assert audience.members == emails(0)


async def test_who_expires_soon_is_sent_again(audience: Audience) -> None:
    await audience.sync(numbered(1, 2), lifetime=timedelta(days=20))
    assert (await audience.sync(numbered(1, 2, 3))).sent.accepted == 3
    assert (await audience.sync(numbered(1, 2, 3))).sent.accepted == 0


@pytest.mark.parametrize("lifetime", [timedelta(0), timedelta(days=-1), timedelta(hours=23)])
async def test_a_lifetime_that_could_end_during_the_sync_is_refused_before_anything_is_sent(
    audience: Audience, sandbox: Sandbox, lifetime: timedelta
) -> None:
    await audience.sync(numbered(1, 2))
    before = sandbox.requests.count(USERS)

    with pytest.raises(InvalidArgument, check=has(parameter="lifetime")):
        await audience.sync(numbered(2, 3), lifetime=lifetime)

    assert sandbox.requests.count(USERS) == before
    assert sorted(audience.members, key=str) == sorted(emails(1, 2), key=str)


async def test_a_lifetime_without_a_date_at_its_end_is_refused(audience: Audience) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="lifetime")):
        await audience.sync(numbered(1), lifetime=timedelta.max)

    assert (await audience.sync(numbered(1), lifetime=timedelta(days=36_500))).sent.accepted == 1


async def test_a_run_that_was_ended_by_the_service_is_taken_up_again(audience: Audience, sandbox: Sandbox) -> None:
    await audience.sync(numbered(*range(20)))
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.http(403))
    with pytest.raises(BatchError):
        await audience.sync(numbered(*range(10, 30)))
    assert len(audience.members) == 20
    sync = await audience.sync(numbered(*range(10, 30)))
    assert (sync.removed.accepted, sync.sent.accepted) == (10, 10)
    assert sorted(audience.members, key=str) == sorted(emails(*range(10, 30)), key=str)


async def test_who_changed_and_is_in_doubt_is_removed_before_being_added(audience: Audience, sandbox: Sandbox) -> None:
    await audience.sync("email,phone\na@example.org,+4930123456\n")
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.drop_connection(), stage="after")
    sandbox.faults.on("POST", USERS).nth(3).do(Fault.http(403))
    with pytest.raises(BatchError):
        await audience.sync("email,phone\na@example.org,+4930999999\n")

    sync = await audience.sync("email,phone\na@example.org,+4930777777\n")

    assert (sync.removed.accepted, sync.sent.accepted) == (1, 1)
    assert audience.members == [{"email": [sha256("a@example.org")], "phone_number": [sha256("+4930777777")]}]


async def test_the_order_of_several_values_makes_no_other_person(audience: Audience) -> None:
    await audience.users.sync([{"email": ["a@b.de", "c@d.de"]}], state=audience.state)
    report = await audience.users.sync([{"email": ["c@d.de", "a@b.de"]}], state=audience.state, max_removal_share=0.0)
    assert report.plan.unchanged == 1


async def test_a_key_of_three_rows_that_differ_identifies_nobody(audience: Audience) -> None:
    rows = [f"unknown,{name}@example.org" for name in "abc"]
    content = "\n".join(["partner_user_id,email", "p1,p@example.org", *rows])
    with pytest.raises(InvalidArgument, check=has(parameter="partner_user_id", hint=Hint.LEAVE_OUT_THE_COLUMN)):
        await audience.sync(content)
    assert [(each.position, each.code, each.attribute) for each in audience.failures] == [
        (position, "REPEATED_KEY", "partner_user_id") for position in (1, 2, 3)
    ]
    assert audience.members == []

    plan = (await audience.users.sync(audience.write(content), state=audience.state, dry_run=True)).plan
    assert (plan.additions, plan.clashing, plan.invalid_rows, plan.repeated) == (1, 3, 3, 0)


@pytest.mark.parametrize("addresses", ["ab", "aaa", "aab", "abab"])
async def test_a_row_that_comes_again_or_is_corrected_counts_once(audience: Audience, addresses: str) -> None:
    rows = [f"p1,{name}@example.org" for name in addresses]
    plan = (await audience.sync("\n".join(["partner_user_id,email", *rows]))).plan
    assert (plan.additions, plan.clashing, plan.repeated) == (1, 0, len(addresses) - 1)


async def test_the_same_text_as_two_kinds_of_identifier_is_two_people(audience: Audience) -> None:
    await audience.sync("svc_id,handle\n17,\n,17\n")
    assert len(audience.members) == 2
    await audience.sync("svc_id,handle\n17,\n")
    assert audience.members == [{"svc_id": [sha256("17")]}]


async def test_failures_of_the_report_are_at_their_position_in_the_file(audience: Audience) -> None:
    await audience.sync(numbered(1, 2))
    sync = await audience.sync(f"{numbered(1, 2)}nobody\n")
    assert [failure.position for failure in sync.sent.failures] == [2]


async def test_an_answer_that_was_lost_loses_nobody(audience: Audience, sandbox: Sandbox) -> None:
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.drop_connection(), stage="after")
    sync = await audience.sync(numbered(*range(50)))
    assert sync.sent.accepted == 50
    assert (await audience.sync(numbered(*range(50)))).sent.read == 0


async def test_who_was_refused_after_an_unclear_answer_may_be_there_and_is_removed(
    audience: Audience, sandbox: Sandbox
) -> None:
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.drop_connection(), stage="after")
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.http(400))
    sync = await audience.sync(numbered(1))
    assert (sync.sent.failed, audience.members) == (1, emails(1))
    await audience.sync(numbered(2))
    assert audience.members == emails(2)


# --- the call


async def test_members_may_be_mappings_or_rows(audience: Audience) -> None:
    people: list[dict[str, object]] = [{"email": "user1@example.org"}, {"email": ["user2@example.org"]}]
    first = await audience.users.sync(people, state=audience.state)
    table = Rows(("email",), [("user2@example.org",), ("user3@example.org",)])

    second = await audience.users.sync(table, state=audience.state, max_removal_share=0.5)

    assert (first.plan.additions, second.plan.unchanged, second.plan.removals) == (2, 1, 1)
    assert sorted(audience.members, key=str) == sorted(emails(2, 3), key=str)


class CountedMembers:
    def __init__(self) -> None:
        self.readings = 0

    def __iter__(self) -> Iterator[dict[str, str]]:
        self.readings += 1
        return iter([{"email": "user1@example.org"}])


async def test_members_are_read_once(audience: Audience) -> None:
    members = CountedMembers()
    await audience.users.sync(members, state=audience.state)

    assert (members.readings, audience.members) == (1, emails(1))


async def test_members_that_can_be_read_only_once_are_refused(audience: Audience, sandbox: Sandbox) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="members")):
        await audience.users.sync(iter([{"email": "user1@example.org"}]), state=audience.state)

    assert not sandbox.requests.count(USERS)


async def test_a_dry_run_returns_the_plan_and_changes_nothing(audience: Audience, sandbox: Sandbox) -> None:
    await audience.sync(numbered(1, 2))
    before = sandbox.requests.count(USERS)

    report = await audience.users.sync(audience.write(numbered(2, 3)), state=audience.state, dry_run=True)

    assert (report.plan.additions, report.plan.removals, report.plan.unchanged) == (1, 1, 1)
    assert report.total == Report()
    assert sandbox.requests.count(USERS) == before
    assert (await audience.sync(numbered(2, 3))).total.accepted == 2


async def test_by_default_a_fifth_of_the_list_may_be_removed(audience: Audience) -> None:
    await audience.sync(numbered(*range(10)))

    with pytest.raises(InvalidArgument, check=has(parameter="max_removal_share")):
        await audience.users.sync(audience.write(numbered(*range(7))), state=audience.state)
    report = await audience.users.sync(audience.write(numbered(*range(8))), state=audience.state)

    assert report.removed.accepted == 2


async def test_the_plan_is_announced_first_and_progress_counts_both_parts(audience: Audience) -> None:
    await audience.sync(numbered(1, 2, 3))
    news: list[object] = []

    report = await audience.users.sync(
        audience.write(numbered(3, 4)),
        state=audience.state,
        max_removal_share=1,
        on_plan=news.append,
        progress=news.append,
    )

    phases = [each.phase if isinstance(each, Progress) else "plan" for each in news]
    assert [*dict.fromkeys(phases)] == ["reading", "comparing", "plan", "recording", "sending", "settling"]
    assert report.plan in news
    last = news[-1]
    assert isinstance(last, Progress)
    assert [each.phase_done for each in news if isinstance(each, Progress) and each.phase == "sending"][-1] == 3
    assert all(each.phase_total == 3 for each in news if isinstance(each, Progress) and each.phase == "sending")
    assert (last.read, last.accepted, last.pending) == (3, 3, 0)
    assert (report.total.read, report.total.accepted, report.total.requests) == (3, 3, last.requests)


async def test_a_report_has_the_plan_and_both_parts(audience: Audience) -> None:
    report = await audience.sync(f"{numbered(1)}nobody\n")
    plain = report.as_dict()

    assert (plain["plan"]["invalid_rows"], plain["sent"]["accepted"], plain["removed"]["read"]) == (1, 1, 0)
    assert [failure["position"] for failure in plain["sent"]["failures"]] == [1]
    assert not report.complete
    with pytest.raises(BatchError, check=has(report=report)):
        report.raise_for_failures()
    (await audience.sync(numbered(1))).raise_for_failures()


async def test_a_sync_that_could_not_be_finished_reports_both_parts(audience: Audience, sandbox: Sandbox) -> None:
    await audience.sync(numbered(*range(20)))
    sandbox.faults.on("POST", USERS).nth(2).do(Fault.http(403))

    with pytest.raises(BatchError) as caught:
        await audience.sync(numbered(*range(10, 30)))

    report = caught.value.report
    assert isinstance(report, SyncReport)
    assert (report.removed.accepted, report.sent.pending, report.plan.additions) == (10, 10, 10)


@pytest.mark.parametrize("location", ["state_path"], indirect=True)
@pytest.mark.parametrize(
    "settings",
    [
        {"max_removal_share": 1.1},
        {"refresh_within": timedelta(days=-1)},
        {"refresh_within": timedelta.max},
        {"concurrency": 0},
        {"concurrency": 1.5},
        {"users_per_operation": 1.5},
    ],
)
async def test_a_setting_that_breaks_its_rule_leaves_no_state(
    audience: Audience, state_path: Path, settings: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=next(iter(settings)))):
        await audience.users.sync(audience.write(numbered(1)), state=audience.state, **settings)

    assert not state_path.exists()


@pytest.mark.parametrize("location", ["state_path"], indirect=True)
async def test_the_state_of_another_host_is_refused(audience: Audience) -> None:
    await audience.sync(numbered(1, 2))
    async with Sandbox() as other, Session.sandbox(other) as session:
        assert (other.account_id, other.audience_id) == (audience.sandbox.account_id, audience.sandbox.audience_id)
        users = session.account(other.account_id).custom_audience(other.audience_id).users
        with pytest.raises(UnusableFile, check=has(path=str(audience.state))):
            await users.sync(audience.write(numbered(1, 2)), state=audience.state)
