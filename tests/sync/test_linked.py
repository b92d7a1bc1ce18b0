"""A removal removes everybody with an identifier: who shares it and stays in the file is sent again."""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

import attrs
import pytest

from svc_async import BatchError, Rows, Session
from svc_async.batch.job import StateLocation
from svc_async.batch.plan import SyncReport
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Fault, Sandbox
from svc_async.sync import state as sync_state
from svc_async.sync.pages import comparison
from svc_async.users.identifiers import IDENTIFIERS
from tests.support.fake_service import FakeService

USERS = "*/custom_audiences/*/users"
COLUMNS = ("email", "phone_number", "partner_user_id")
Person = tuple[str | Sequence[str] | None, str | Sequence[str] | None, str | Sequence[str] | None]
ADA: Person = ("ada@example.org", "+49301234567", None)
SHARED: Person = (None, "+49301234567", None)
BOB: Person = ("bob@example.org", None, None)


@attrs.frozen
class Audience:
    """An audience of a sandbox, and the state of its syncs."""

    users: AudienceUsers
    sandbox: Sandbox
    state: StateLocation

    async def sync(self, *people: Person) -> SyncReport:
        return await self.users.sync(Rows(COLUMNS, list(people)), state=self.state, max_removal_share=1, quarantine=0.0)

    @property
    def members(self) -> Mapping[tuple[str, str], Mapping[str, Sequence[str]]]:
        """The members by their first identifier."""
        members = self.sandbox.audience(self.sandbox.audience_id).users
        return {_find_key(member): {kind: sorted(values) for kind, values in member.items()} for member in members}


def _find_key(member: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    kind = next(name for name in IDENTIFIERS if member.get(name))
    return kind, member[kind][0]


def expect(*people: Person) -> Mapping[tuple[str, str], Mapping[str, Sequence[str]]]:
    """Return the members that a file describes; of rows with the same first identifier the last one counts."""
    described = [
        {
            name: [
                value if name == "partner_user_id" else sha256(value.encode()).hexdigest() for value in _list(values)
            ]
            for name, values in zip(COLUMNS, person, strict=True)
            if values
        }
        for person in people
    ]
    return {_find_key(each): {kind: sorted(values) for kind, values in each.items()} for each in described}


def _list(values: str | Sequence[str] | None) -> Sequence[str]:
    return [values] if isinstance(values, str) else values or ()


@pytest.fixture
async def audience(location: StateLocation) -> AsyncIterator[Audience]:
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        yield Audience(users, sandbox, location)


async def test_who_has_the_identifier_of_a_removed_row_is_sent_again(audience: Audience) -> None:
    await audience.sync(ADA, BOB, SHARED)
    report = await audience.sync(ADA, BOB)
    plan = report.plan
    assert (plan.removals, plan.linked, plan.unchanged, plan.upserts) == (1, 1, 1, 1)
    assert report.sent.accepted == 1
    assert audience.members == expect(ADA, BOB)
    assert (await audience.sync(ADA, BOB)).total.requests == 0


@pytest.mark.parametrize(
    ("stays", "leaves"),
    [
        ((["a@b.de", "c@d.de"], None, None), ("c@d.de", None, None)),
        pytest.param((None, None, ["p", 'say "q"\\ü']), (None, None, 'say "q"\\ü'), marks=pytest.mark.long),
        pytest.param(("a@b.de", None, ["p", "q"]), (None, None, "q"), marks=pytest.mark.long),
        (("a@b.de", "+49301234567", "p"), (None, "+49301234567", None)),
    ],
    ids=["list", "quoted", "partner ids", "text and hash"],
)
async def test_any_later_identifier_may_be_the_one(audience: Audience, stays: Person, leaves: Person) -> None:
    await audience.sync(stays, leaves, BOB)
    assert (await audience.sync(stays, BOB)).plan.linked == 1
    assert audience.members == expect(stays, BOB)


async def test_a_replaced_row_removes_others_as_well(audience: Audience) -> None:
    changed: Person = (None, ["+49301234567", "+49301234568"], None)
    await audience.sync(ADA, SHARED)
    plan = (await audience.sync(ADA, changed)).plan
    assert (plan.changes, plan.linked) == (1, 1)
    assert audience.members == expect(ADA, changed)


async def test_one_who_could_not_be_sent_again_is_in_doubt(audience: Audience) -> None:
    await audience.sync(ADA, BOB, SHARED)
    audience.sandbox.faults.on(path=USERS).nth(2).do(Fault.http(403))
    with pytest.raises(BatchError):
        await audience.sync(ADA, BOB)
    assert audience.members == expect(BOB)
    plan = (await audience.sync(ADA, BOB)).plan
    assert (plan.additions, plan.unchanged) == (1, 1)
    assert audience.members == expect(ADA, BOB)


async def test_a_row_of_many_with_removals_of_many(audience: Audience, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_REMOVALS_AT_ONCE", 2)
    people = [(f"{number}@b.de", f"+4930123{number:04}", None) for number in range(40)]
    await audience.sync(*people, *((None, phone, None) for _, phone, _ in people[::4]), BOB)
    assert (await audience.sync(*people)).plan.linked == 10
    assert audience.members == expect(*people)


async def test_removals_find_nobody_where_rows_have_one_identifier(tmp_path: Path) -> None:
    users = AudienceUsers(FakeService().pipeline, "a1", "c1")
    searched: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_state, "select_linked", searched.append)
        for names in ("ab", "a"):
            rows = Rows(("partner_user_id",), [(name,) for name in names])
            await users.sync(rows, state=tmp_path / "state", max_removal_share=1)
    assert searched == []


@pytest.mark.long("it is about many nights")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 25))])
async def test_in_the_end_an_audience_is_its_file(audience: Audience, seed: int) -> None:
    dice = random.Random(seed)
    people: list[Person] = []
    for night in range(8):
        people = [each for each in people if dice.random() < 0.7] + [draw(dice) for _ in range(dice.randrange(4))]
        people = leave_out_clashing(people)
        is_last = night == 7
        if not is_last and dice.random() < 0.5:
            place = audience.sandbox.faults.on(path=USERS).nth(dice.randrange(1, 4))
            place.do(Fault.http(dice.choice([403, 500])), stage="before")
            if dice.random() < 0.3:
                place.do(Fault.http(500), stage="after")
        try:
            await audience.sync(*people)
        except BatchError:
            assert not is_last
        audience.sandbox.faults.clear()
    assert audience.members == expect(*people)


def leave_out_clashing(people: Sequence[Person]) -> list[Person]:
    """Return people of whom at most two who differ have one key; a sync refuses more."""
    found: dict[object, set[Person]] = {}
    kept: list[Person] = []
    for person in people:
        email, phone, partner = person
        different = found.setdefault(partner or email or phone, set())
        if person in different or len(different) < 2:
            different.add(person)
            kept.append(person)
    return kept


def draw(dice: random.Random) -> Person:
    """Return somebody who shares identifiers with others."""
    emails = [None, *"abcd"]
    email, phone, partner = dice.choice(emails), dice.choice([None, *range(4)]), dice.choice([None, None, *"pq"])
    texts = f"{email}@b.de" if email else None, None if phone is None else f"+4930123456{phone}", partner
    return texts if any(texts) else BOB
