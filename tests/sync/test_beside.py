"""Uploads and removals beside a sync: the next sync leaves nobody of its source out."""

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from itertools import chain, count
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async import BatchError, InvalidArgument, Rows, UnusableFile
from svc_async.batch.job import StateLocation
from svc_async.batch.packing.batch import Limits
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Report
from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.do_not_reach_users import DoNotReachUsers
from svc_async.lists.user_list import USER_LIMITS
from svc_async.sync import beside
from svc_async.sync.entries import WrittenIdentifiers
from svc_async.sync.state import SyncState
from svc_async.users.identifiers import IDENTIFIERS
from tests.support.errors import has
from tests.support.fake_service import LOST, FakeService, Operations, make_error
from tests.support.tasks import wait_until

COLUMNS = ("partner_user_id", "email", "phone_number")
Person = tuple[str | None, str | None, str | None]
ADA: Person = (None, "ada@example.org", None)
BOB: Person = (None, "bob@example.org", "+4930123450")
OTHER_BOB: Person = (None, "bob@example.org", "+4930123451")
CARL: Person = (None, "carl@example.org", "+4930123450")
DAN: Person = ("p1", "dan@example.org", None)
FILE = [ADA, BOB, CARL, DAN]
QUARANTINE = 120.0
_NUMBERS = count()


def identify(person: Person) -> frozenset[tuple[str, str]]:
    """Return the identifiers of a person as the service has them."""
    return frozenset(
        (name, value if name == "partner_user_id" else sha256(value.encode()).hexdigest())
        for name, value in zip(COLUMNS, person, strict=True)
        if value
    )


@attrs.define
class Audience:
    """An audience, and the state of its syncs.

    Attributes:
        state: where the state is.
        service: receives the requests of all jobs, so that time goes on from one to the next.
        applied: the operations that took effect, or will, and when.
        limits: what one request may hold.
    """

    state: StateLocation
    service: FakeService = attrs.field(factory=FakeService)
    applied: list[tuple[float, Operations]] = attrs.field(factory=list)
    limits: Limits = USER_LIMITS

    def __attrs_post_init__(self) -> None:
        self.service.always = self.answer()

    def answer(
        self, *, after: int = 0, applies: bool = True, late: float = 0.0, error: BaseException | None = None
    ) -> Any:
        """Return what a service does with a request: it may apply it, perhaps late, and answer or fail.

        Args:
            after: how many requests are answered well before.
            applies: whether it is applied.
            late: after how many seconds.
            error: how it fails.
        """
        numbers = count(1)

        def outcome(operations: Operations) -> None:
            if next(numbers) <= after:
                self.applied.append((self.service.clock.monotonic(), operations))
                return
            if applies:
                self.applied.append((self.service.clock.monotonic() + late, operations))
            if error is not None:
                raise error

        return outcome

    @contextmanager
    def fail(self, **how: Any) -> Iterator[None]:
        """Answer so within the block."""
        self.service.always = self.answer(**how)
        try:
            yield
        finally:
            self.service.always = self.answer()

    @property
    def users(self) -> AudienceUsers:
        return AudienceUsers(self.service.pipeline, "a1", "c1", limits=self.limits)

    async def sync(self, people: Sequence[Person] = FILE, **options: Any) -> SyncReport:
        settings = {"state": self.state, "max_removal_share": 1.0, "quarantine": QUARANTINE, **options}
        return await self.users.sync(Rows(COLUMNS, [*people]), **settings)

    async def remove(self, *people: Person, **options: Any) -> Report:
        return await self.users.remove(Rows(COLUMNS, people), **{"state": self.state, **options})

    async def upload(self, *people: Person, expires_at: datetime | None = None, **options: Any) -> Report:
        return await self.users.upload(Rows(COLUMNS, people), expires_at=expires_at, **{"state": self.state, **options})

    @property
    def members(self) -> list[frozenset[tuple[str, str]]]:
        """The people who are members now: an Update adds identifiers, a Delete removes whoever has one of them."""
        members: dict[tuple[str, str], tuple[set[tuple[str, str]], str]] = {}
        now = self.service.clock.monotonic()
        effects = sorted((when, number, each) for number, (when, each) in enumerate(self.applied) if when <= now)
        for operation in chain.from_iterable(operations for _, _, operations in effects):
            for user in operation["params"]["users"]:
                held = [(name, value) for name in IDENTIFIERS for value in user.get(name, ())]
                if operation["operation_type"] == "Update":
                    known, _ = members.get(held[0], (set(), ""))
                    members[held[0]] = known | {*held}, operation["params"]["expires_at"]
                else:
                    members = {first: each for first, each in members.items() if each[0].isdisjoint(held)}
        today = f"{self.service.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        return [frozenset(held) for held, expires_at in members.values() if expires_at > today]

    def find_missing(self, people: Sequence[Person] = FILE) -> list[Person]:
        """Return the people of a source of whom an identifier is not there."""
        members = self.members
        return [person for person in people if not any(identify(person) <= held for held in members)]


@pytest.fixture
def audience(location: StateLocation) -> Audience:
    return Audience(location)


async def test_who_shares_an_identifier_with_somebody_who_was_removed_is_sent_again(audience: Audience) -> None:
    await audience.sync()
    await audience.remove(ADA, BOB)
    assert audience.find_missing() == [ADA, BOB, CARL]

    plan = (await audience.sync()).plan

    assert audience.find_missing() == []
    assert (plan.additions, plan.linked, plan.unchanged) == (2, 1, 1)
    assert (await audience.sync()).total.requests == 0


async def test_what_was_removed_by_a_later_identifier_is_sent_again(audience: Audience) -> None:
    await audience.sync()
    await audience.remove((None, "dan@example.org", None))
    assert audience.find_missing() == [DAN]
    assert (await audience.sync()).plan.linked == 1
    assert audience.find_missing() == []


async def test_what_an_upload_adds_to_a_person_is_removed_again(audience: Audience) -> None:
    await audience.sync()
    await audience.upload((None, "ada@example.org", "+4930123459"))
    assert (await audience.sync()).plan.all_removals == 1
    assert sorted(map(sorted, audience.members)) == sorted(map(sorted, map(identify, FILE)))


async def test_who_would_leave_early_because_of_an_upload_is_renewed(audience: Audience) -> None:
    await audience.sync()
    await audience.upload(ADA, expires_at=audience.service.clock.now() + timedelta(days=1))
    await audience.sync()
    await audience.service.clock.sleep(86_400 * 2)
    assert audience.find_missing() == []


async def test_who_is_in_neither_source_nor_state_stays_as_it_is(audience: Audience) -> None:
    await audience.sync()
    eve: Person = (None, "eve@example.org", None)
    await audience.upload(eve)
    assert (await audience.sync()).plan.doubtful == 0
    assert identify(eve) in audience.members


async def test_one_who_left_the_source_counts_for_the_share_of_removals(audience: Audience) -> None:
    await audience.sync()
    await audience.remove(ADA)
    with pytest.raises(InvalidArgument) as caught:
        await audience.sync([BOB, CARL, DAN], max_removal_share=0.2)
    assert caught.value.parameter == "max_removal_share"


@pytest.mark.parametrize("end", ["refused", "lost", "cancelled"])
async def test_a_job_that_ended_early_is_noted_as_well(audience: Audience, end: str) -> None:
    await audience.sync()
    sent = len(audience.service.bodies)
    if end == "cancelled":
        audience.service.latency = 1_000.0
        task = asyncio.ensure_future(audience.remove(ADA, BOB))
        await wait_until(lambda: len(audience.service.bodies) > sent or task.done())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        audience.service.latency = 0.0
    else:
        error = make_error(403) if end == "refused" else LOST
        with audience.fail(applies=end == "lost", error=error), pytest.raises(BatchError):
            await audience.remove(ADA, BOB, retry_delays=())

    await audience.sync()
    assert audience.find_missing() == []
    assert (await audience.sync()).total.requests == 0


async def test_a_removal_that_takes_effect_late_does_not_cross_the_sync(audience: Audience) -> None:
    await audience.sync()
    with audience.fail(late=QUARANTINE - 1, error=LOST), pytest.raises(BatchError):
        await audience.remove(ADA, BOB, ("p2", None, None), retry_delays=())
    new: Person = ("p2", "new@example.org", None)

    await audience.sync([*FILE, new])

    await audience.service.clock.sleep(QUARANTINE)
    assert audience.find_missing([*FILE, new]) == []
    assert (await audience.sync([*FILE, new])).total.requests == 0


async def test_a_sync_that_was_not_finished_is_settled_first(audience: Audience) -> None:
    await audience.sync([ADA])
    audience.service.script[2] = audience.answer(applies=False, error=make_error(403))
    with pytest.raises(BatchError):
        await audience.sync()
    await audience.remove(ADA, BOB)
    await audience.sync()
    assert audience.find_missing() == []


async def test_a_job_with_a_journal_notes_what_it_sends_too(audience: Audience, tmp_path: Path) -> None:
    await audience.sync()
    audience.service.script[2] = audience.answer(applies=False, error=make_error(403))
    with pytest.raises(BatchError):
        await audience.remove(ADA, BOB, journal=tmp_path / "journal")
    report = await audience.remove(ADA, BOB, journal=tmp_path / "journal")
    assert report.accepted == 2
    await audience.sync()
    assert audience.find_missing() == []


async def test_operations_are_noted(audience: Audience) -> None:
    await audience.sync()
    operation = {"operation_type": "Delete", "params": {"users": [{"email": "bob@example.org"}]}}
    await audience.users.apply([operation], state=audience.state)
    assert audience.find_missing() == [BOB]
    await audience.sync()
    assert audience.find_missing() == []


async def test_what_a_dry_run_finds_is_not_forgotten(audience: Audience) -> None:
    await audience.sync()
    await audience.remove(BOB)
    plans = [(await audience.sync(dry_run=True)).plan for _ in range(2)]
    assert [(plan.additions, plan.linked) for plan in plans] == [(1, 1)] * 2
    await audience.sync()
    assert audience.find_missing() == []


@pytest.mark.parametrize(("state", "options"), [("other.state", {}), ("state", {"cluster": object(), "journal": None})])
async def test_a_state_of_another_list_and_one_beside_a_cluster_are_refused(
    tmp_path: Path, state: str, options: Mapping[str, Any]
) -> None:
    other = AudienceUsers(FakeService().pipeline, "a1", "c2")
    await other.sync(Rows(COLUMNS, [ADA]), state=tmp_path / "other.state")
    audience = Audience(tmp_path / state)
    with pytest.raises((UnusableFile, InvalidArgument), check=has(parameter="state")):
        await audience.remove(ADA, **options)
    assert audience.service.bodies == []


async def test_lists_without_syncs_take_no_state(tmp_path: Path) -> None:
    users = DoNotReachUsers(FakeService().pipeline, "a1", "d1")
    with pytest.raises(InvalidArgument) as caught:
        await users.remove(Rows(("email",), [("ada@example.org",)]), state=tmp_path / "state")
    assert caught.value.parameter == "state"


async def test_a_job_without_a_state_warns_if_this_process_has_synced_the_list(tmp_path: Path) -> None:
    service = FakeService()
    users = AudienceUsers(service.pipeline, "a1", f"warned{next(_NUMBERS)}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        await users.remove(Rows(COLUMNS, [ADA]))
        await users.sync(Rows(COLUMNS, [ADA]), state=tmp_path / "state")
    with pytest.warns(UserWarning, match="state="):
        await users.remove(Rows(COLUMNS, [ADA]))


@pytest.mark.parametrize("second", [[ADA, OTHER_BOB, CARL, DAN], [ADA, CARL, DAN]], ids=["other number", "absent"])
@pytest.mark.parametrize("end", ["refused", "killed before it sends"])
async def test_who_was_to_be_removed_is_in_doubt_although_that_was_not_sent(
    audience: Audience, monkeypatch: pytest.MonkeyPatch, second: Sequence[Person], end: str
) -> None:
    await audience.sync()
    await audience.remove((None, None, "+4930123450"))
    await audience.service.clock.sleep(QUARANTINE)
    with monkeypatch.context() as patch, audience.fail(applies=False, error=make_error(403)):
        if end != "refused":
            patch.setattr(SyncState, "admit", raise_killed)
        with pytest.raises((BatchError, BaseExceptionGroup)):
            await audience.sync(second, retry_delays=())
    await audience.sync()
    assert audience.find_missing() == []


async def raise_killed(*_: object) -> None:
    raise Killed


async def test_people_whose_membership_is_over_do_not_count_as_removed(audience: Audience) -> None:
    await audience.sync(lifetime=timedelta(days=2))
    await audience.service.clock.sleep(5 * 86_400)
    await audience.remove(ADA, BOB, CARL)
    plan = (await audience.sync([DAN], max_removal_share=0.2)).plan
    assert (plan.present, plan.removals, plan.additions) == (0, 0, 1)


async def test_a_sync_waits_as_long_as_it_says_for_a_job_with_another_quarantine(audience: Audience) -> None:
    await audience.sync()
    with audience.fail(late=500.0, error=LOST), pytest.raises(BatchError):
        await audience.remove(BOB, retry_delays=())
    await audience.remove(BOB)
    await audience.sync(quarantine=600.0)
    await audience.service.clock.sleep(600.0)
    assert audience.find_missing() == []


PEOPLE = [
    ADA,
    BOB,
    CARL,
    DAN,
    ("p2", "dan@example.org", "+4930123450"),
    (None, None, "+4930123451"),
    ("p3", None, None),
]
some_people = st.lists(st.sampled_from(PEOPLE), max_size=4, unique=True)


class Killed(BaseException):
    """Ends a job without a word."""


ENDS: Mapping[str, Mapping[str, Any]] = {
    "done": {},
    "refused": {"applies": False, "error": make_error(403)},
    "refused in the middle": {"after": 1, "applies": False, "error": make_error(403)},
    "applied, answer lost": {"error": LOST},
    "applied late": {"late": QUARANTINE - 1, "error": LOST},
    "killed": {"applies": False, "error": Killed()},
    "killed, applied": {"error": Killed()},
    "killed, applied late": {"late": QUARANTINE - 1, "error": Killed()},
}
"""What the service does with the requests of a job."""
some_ends = st.one_of(st.just("done"), st.sampled_from([*ENDS]))
steps = st.lists(
    st.tuples(
        st.sampled_from(["sync", "remove", "upload", "upload for a day", "elsewhere"]),
        some_people,
        st.sampled_from(
            ["done", "done", "refused", "applied, answer lost", "applied late", "killed", "killed, applied"]
        ),
        st.sampled_from([0.0, 50.0, 2 * 86_400.0]),
    ),
    max_size=7,
)


@attrs.define
class Life:
    """Does what somebody may do to an audience, each with its end."""

    audience: Audience
    noted: bool = True
    foreign: bool = False

    async def do(self, what: str, people: Sequence[Person], end: str, rest: float) -> None:
        """Do one thing; whatever comes of it, time goes on."""
        try:
            with self.audience.fail(**ENDS[end]):
                await self._start(what, people)
        except* (BatchError, Killed):
            pass
        await self.audience.service.clock.sleep(rest)

    async def _start(self, what: str, people: Sequence[Person]) -> None:
        if what == "sync":
            await self.audience.sync(people, retry_delays=())
        elif people and what == "elsewhere":  # at the ads manager, of which no state knows
            self.foreign = True
            self.audience.answer()([{"operation_type": "Delete", "params": {"users": _write(people)}}])
        elif people:
            options: dict[str, Any] = {"retry_delays": ()} if self.noted else {"retry_delays": (), "state": None}
            if what == "remove":
                await self.audience.remove(*people, **options)
            else:
                a_day = self.audience.service.clock.now() + timedelta(days=1)
                await self.audience.upload(*people, expires_at=a_day if what.endswith("day") else None, **options)


def _write(people: Sequence[Person]) -> list[dict[str, list[str]]]:
    return [{name: [value] for name, value in identify(person)} for person in people]


def find_left_out(
    folder: Path, history: Sequence[Any], people: Sequence[Person], *, noted: bool = True
) -> list[Person]:
    """Return whom the sync after a history leaves out; who knows of a write elsewhere has everybody sent again."""

    async def live() -> list[Person]:
        life = Life(Audience(folder / f"state{next(_NUMBERS)}", limits=Limits(operations=1)), noted)
        for step in history:
            await life.do(*step)
        await life.audience.sync(people, refresh_within=timedelta(days=500 if life.foreign else 30))
        await life.audience.service.clock.sleep(QUARANTINE + 2 * 86_400.0)
        return life.audience.find_missing(people)

    return asyncio.run(live())


@given(history=steps, people=some_people)
@pytest.mark.usefixtures("examples")
@pytest.mark.long("each example is several syncs")
def test_whatever_was_done_to_an_audience_the_next_sync_leaves_nobody_out(
    tmp_path_factory: pytest.TempPathFactory, history: Sequence[Any], people: Sequence[Person]
) -> None:
    assert find_left_out(tmp_path_factory.getbasetemp(), history, people) == []


CONTROLS = {
    "without notes": [("sync", FILE, "done", 0.0), ("remove", [BOB], "done", 0.0)],
    "without identifiers": [("sync", FILE, "done", 0.0), ("remove", [BOB], "done", 0.0)],
    "without the time of the last request": [("sync", FILE, "done", 0.0), ("remove", [BOB], "applied late", 0.0)],
}
"""Histories after which somebody is left out, if a protection is missing."""


@pytest.mark.filterwarnings("ignore:the next sync of")
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.long("a control: it removes the protection to see the damage")
def test_each_protection_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, control: str) -> None:
    assert find_left_out(tmp_path, CONTROLS[control], FILE) == []
    if control == "without identifiers":
        monkeypatch.setattr(beside, "list_identifiers", lambda *_: WrittenIdentifiers())
    elif control != "without notes":
        monkeypatch.setattr(SyncState, "find_rest", lambda *_: 0.0)
    assert find_left_out(tmp_path, CONTROLS[control], FILE, noted=control != "without notes") != []
