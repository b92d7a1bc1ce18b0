"""Random series of nights, beside a model in plain Python."""

import random
from collections.abc import Collection
from datetime import datetime, timedelta

import attrs
import pytest

from svc_async.batch.plan import Part, Plan
from svc_async.sync.sending import ClockReading
from svc_async.sync.state import SyncState
from tests.support.sync_states import HASHED, NAMED, NOW, OpenState, compare, list_removals, name_of

DAY = timedelta(days=1)
KEYS = 9
WAYS = [(HASHED, True), (HASHED, False), (NAMED, True), (NAMED, False)]
SERIES = pytest.mark.parametrize(
    ("open_state", "seeds", "kind", "replace"),
    [
        ("open_state_file", range(1), HASHED, True),
        ("open_state_file", range(1), NAMED, False),
        *(pytest.param("open_state_file", range(11), *way, marks=pytest.mark.long) for way in WAYS),
        *(pytest.param("open_shared_state", range(3), *way, marks=pytest.mark.long) for way in WAYS),
    ],
    indirect=["open_state"],
)
Rows = list[tuple[int, int] | None]


@attrs.define
class Model:
    """What a list has, and what is known of it.

    Attributes:
        contents: the contents of each row on the list; sending adds to them if `adds`.
        last_days: the last day of each row.
        known: the content and the last day of each row that was accepted.
    """

    adds: bool
    contents: dict[int, set[int]] = attrs.field(factory=dict)
    last_days: dict[int, int] = attrs.field(factory=dict)
    known: dict[int, tuple[int, int]] = attrs.field(factory=dict)

    def expire(self, today: int) -> None:
        for key in [key for key, day in self.last_days.items() if day < today]:
            del self.contents[key], self.last_days[key]

    def forget(self, today: int, listed: Collection[int]) -> None:
        self.known = {key: each for key, each in self.known.items() if each[1] >= today or key in listed}

    def remove(self, key: int) -> None:
        self.contents.pop(key, None)
        self.last_days.pop(key, None)

    def send(self, key: int, content: int, last_day: int) -> None:
        self.contents[key] = (self.contents.get(key, set()) if self.adds else set()) | {content}
        self.last_days[key] = last_day


def day_of(moment: datetime) -> int:
    return int(moment.timestamp() // 86_400)


def last_of(rows: Rows) -> dict[int, int]:
    return dict(row for row in rows if row is not None)


def draw_rows(dice: random.Random) -> Rows:
    """Return rows, some of them several times with two contents, some invalid."""
    contents = dice.sample(range(3), 2)
    rows: Rows = [(dice.randrange(KEYS), dice.choice(contents)) for _ in range(dice.randrange(12))]
    return [None if dice.random() < 0.1 else row for row in rows]


def expect(model: Model, rows: Rows, now: datetime, soon: timedelta) -> dict[str, int]:
    """Return the counts of a plan, if all is known."""
    listed = last_of(rows)
    known = {key: each for key, each in model.known.items() if each[1] >= day_of(now)}
    # Our clock may be ahead: who has expired by it, and comes back with another content, is removed all the same.
    returning = [key for key in listed if key in model.known.keys() - known and model.known[key][0] != listed[key]]
    common = [key for key in listed if key in known]
    changes = [key for key in common if known[key][0] != listed[key]]
    refreshes = [key for key in common if key not in changes and known[key][1] < day_of(now + soon)]
    return {
        "present": len(known),
        "listed": len(listed),
        "additions": len(listed) - len(common),
        "changes": len(changes),
        "refreshes": len(refreshes),
        "removals": len(known.keys() - listed.keys()),
        "doubtful": 0,
        "unchanged": len(common) - len(changes) - len(refreshes),
        "invalid_rows": rows.count(None),
        "all_removals": len(known.keys() - listed.keys()) + (len(changes + returning) if model.adds else 0),
    }


async def carry_out(
    state: SyncState, model: Model, rows: Rows, plan: Plan, *, last_day: int, dice: random.Random, outcomes: list[str]
) -> None:
    """Send a plan; what becomes of each row is one of the outcomes."""
    state.start("removals", "now")
    if plan.all_removals:
        await admit(state, dice)
    removed = set()
    for removal in await list_removals(state):
        outcome = dice.choice(outcomes)
        if record(state, "removals", removal.number, outcome, dice):
            model.remove(name_of(removal))
        if outcome == "accepted":
            model.known.pop(name_of(removal), None)
            removed.add(name_of(removal))
    await finish(state, outcomes)
    state.start("upserts", "now")
    if plan.upserts:
        await admit(state, dice)
    for number, position in enumerate(state.find_upserts(range(len(rows)), "now")):
        assert position == state.find_position(number)
        row = rows[position]
        outcome = "failed" if row is None else dice.choice(outcomes)
        if record(state, "upserts", number, outcome, dice) and row is not None:
            model.send(*row, last_day)
        if outcome == "accepted" and row is not None:
            model.known[row[0]] = row[1], last_day
    await finish(state, outcomes)


async def admit(state: SyncState, dice: random.Random) -> None:
    monotonic = dice.random()
    await state.admit(lambda: ClockReading(NOW, monotonic))


async def finish(state: SyncState, outcomes: list[str]) -> None:
    if "killed" not in outcomes:
        await state.finish(in_doubt=False, complete=True)


def record(state: SyncState, part: Part, number: int, outcome: str, dice: random.Random) -> bool:
    """Record what an outcome reveals, and return whether it had an effect."""
    if outcome == "accepted":
        state.record_accepted(part, [number])
    elif outcome == "failed":
        state.record_failed(part, [number])
    elif outcome == "unknown":
        state.record_unknown(part, [number])
    return outcome == "accepted" or (outcome != "failed" and dice.random() < 0.5)


@SERIES
async def test_plans_are_those_of_a_model(open_state: OpenState, *, seeds: range, kind: int, replace: bool) -> None:
    for seed in seeds:
        dice, model, now = random.Random(seed), Model(replace), NOW
        for _ in range(8):
            rows, soon = draw_rows(dice), dice.choice([0, 1, 3]) * DAY
            now += dice.choice([0, 1, 1, 2, 9]) * DAY
            model.expire(day_of(now))
            lifetime = dice.choice([2, 5, 20]) * DAY
            async with open_state(target=f"a{seed}") as state:
                plan = await compare(state, rows, now=now, soon=soon, replace=replace, kind=kind)
                expected = expect(model, rows, now, soon)
                assert {name: getattr(plan, name) for name in expected} == expected, seed
                await state.begin(expires=now + lifetime)
                model.forget(day_of(now), last_of(rows))
                last_day = day_of(now + lifetime - timedelta(seconds=1))
                await carry_out(state, model, rows, plan, last_day=last_day, dice=dice, outcomes=["accepted"])
                if dice.random() < 0.7:  # otherwise the next run settles
                    await state.settle()


@SERIES
async def test_whatever_happened_before_a_clean_night_makes_the_list_equal_to_the_snapshot(
    open_state: OpenState, *, seeds: range, kind: int, replace: bool
) -> None:
    for seed in seeds:
        dice, model, now = random.Random(seed), Model(replace), NOW
        nights = [*[dice.choice(["clean", "unclear", "killed"]) for _ in range(6)], "clean"]
        for night in nights:
            rows = draw_rows(dice)
            now += dice.choice([0, 1, 1, 2, 9]) * DAY
            model.expire(day_of(now))
            lifetime = dice.choice([2, 5, 20]) * DAY
            last_day = day_of(now + lifetime - timedelta(seconds=1))
            async with open_state(target=f"a{seed}") as state:
                plan = await compare(state, rows, now=now, soon=DAY, replace=replace, kind=kind)
                await state.begin(expires=now + lifetime)
                if night == "killed" and dice.random() < 0.2:
                    continue
                outcomes = {
                    "clean": ["accepted"],
                    "unclear": ["accepted", "failed", "unknown"],
                    "killed": ["accepted", "failed", "killed"],
                }[night]
                await carry_out(state, model, rows, plan, last_day=last_day, dice=dice, outcomes=outcomes)
                if night != "killed":
                    await state.settle()
            if night == "clean":
                assert model.contents == {key: {content} for key, content in last_of(rows).items()}, seed
