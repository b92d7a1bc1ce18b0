"""Syncs of people and of products, over several nights; the file changes between runs, also after one was killed."""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async import Session
from svc_async.batch.job import StateLocation
from svc_async.batch.packing.batch import Limits
from svc_async.batch.settings import JobSizes
from svc_async.state import SharedState
from tests.campaigns.crash.batch_jobs import QUARANTINE, Options, hash_value
from tests.campaigns.crash.client import Result, Step
from tests.campaigns.crash.holdings import POISON, PRODUCT, Audience, Catalog, Identifier
from tests.campaigns.crash.model import Allowed, Damage, compare
from tests.campaigns.crash.service import Service
from tests.campaigns.crash.world import World

__all__ = ["SyncJob", "create_audience_sync_job", "create_catalog_sync_job", "create_sync_beside_removals_job"]

_ADDRESS = "address-"
"""Begins the names of people whose only identifier is an e-mail address."""
_REMOVALS = 0.5
"""The share of the lives that remove people beside the syncs, where any do."""
_SIZES = JobSizes(slice_rows=8, partition_rows=24)

StateOpener = Callable[[], AbstractAsyncContextManager[StateLocation]]
Snapshot = Mapping[str, int]
"""The version of each person or product in the file."""


@attrs.define(kw_only=True)
class SyncJob:
    """Some nights, each with a sync that is repeated until it is done; the last until nothing is left to do."""

    service: Service
    state: StateOpener
    dice: random.Random
    run: Callable[[Session, StateLocation, Snapshot], Any]
    names: Sequence[str]
    nights: int
    changes: float
    changed: float
    strangers: Mapping[str, str]
    describe: Callable[[str, int], str]
    read_state: Callable[[], Mapping[str, str]]
    remove: Callable[[Session, StateLocation, Snapshot], Any] | None = None
    snapshot: dict[str, int] = attrs.field(factory=dict)
    ended: bool = False
    problems: list[str] = attrs.field(factory=list)
    _versions: int = 0
    _began: bool = False
    _removes: bool = False

    def next_step(self) -> Step | None:
        """Return what is next; the file may have changed since the last run."""
        if self.ended:
            return None
        if self.nights and (not self._began or self.dice.random() < self.changes):
            self._change_file()
        self._began = True
        self._removes = bool(self.remove and self.nights and self.snapshot and self.dice.random() < _REMOVALS)
        if self.remove is None or not self._removes:
            return partial(self._run, self.run, {**self.snapshot})
        names = self.dice.sample([*self.snapshot], self.dice.randint(1, max(1, len(self.snapshot) // 4)))
        return partial(self._run, self.remove, {name: self.snapshot[name] for name in names})

    async def _run(self, work: Callable[..., Any], people: Snapshot, session: Session) -> Any:
        async with self.state() as state:
            return await work(session, state, people)

    def _change_file(self) -> None:
        """Add, change and remove people or products."""
        for name in self.dice.sample(self.names, self.dice.randint(1, max(1, int(len(self.names) * self.changed)))):
            self._versions += 1
            if name in self.snapshot and self.dice.random() < 0.5:
                del self.snapshot[name]
            else:
                self.snapshot[name] = self._versions

    def take_result(self, result: Result) -> None:
        """Take the result of a night."""
        if result["end"] in {"stopped", "interrupted"}:
            return
        if result["end"] != "done":
            self.problems.append(f"{result['end']}: {result['why']}")
            self.ended = True
            return
        report = result["report"]
        if self._removes:
            return
        for part in ("sent", "removed"):
            counts = report[part]
            settled = counts["accepted"] + counts["coalesced"] + counts["failed"]
            if settled != counts["read"] or counts["pending"]:
                self.problems.append(f"rows are unaccounted for: {counts}")
        if self.nights:
            self.nights -= 1
            self._change_file()
        else:
            refused = sum(name.startswith(POISON) for name in self.snapshot)
            self.ended = report["sent"]["failed"] == refused and report["removed"]["failed"] == 0

    def find_damage(self) -> Damage:
        """Compare what the service has with the file of the last night."""
        present = {name: self.describe(name, version) for name, version in self.snapshot.items()}
        allowed: Allowed = {
            name: {value} for name, value in {**present, **self.strangers}.items() if not name.startswith(POISON)
        }
        damage = compare(allowed, self.read_state()) if self.ended and not self.problems else Damage()
        return damage + Damage(other=self.problems)


def _open_state(folder: Path, options: Options) -> StateOpener:
    if options.database is None:
        return lambda: nullcontext(folder / "state")
    url, schema = options.database
    return lambda: SharedState.open(url, schema=schema)


def _name_list(folder: Path) -> str:
    """Return an id that no other job has: in a database, their states are kept side by side."""
    return re.sub("[^a-z0-9]", "", folder.name.lower())


def _draw_call(dice: random.Random, options: Options) -> Mapping[str, Any]:
    delays = dice.choice([(0.0, 60.0, 300.0), (0.0, *[5.0] * 100)])
    drawn = {"concurrency": dice.randint(1, 6), "quarantine": QUARANTINE, "retry_delays": delays}
    return {**drawn, "max_removal_share": 1.0, **options.call}


def _draw_names(dice: random.Random, options: Options, *, poison: float) -> list[str]:
    count = options.keys or dice.randint(15, 80)
    return [f"{POISON if dice.random() < poison else 'p'}{number}" for number in range(count)]


@attrs.frozen
class _People:
    """How people are written: those named by an e-mail address have no other identifier, and some others share it.

    Attributes:
        addresses: the names of those.
    """

    addresses: Sequence[str]

    @classmethod
    def create(cls, names: Sequence[str]) -> "_People":
        return cls([name for name in names if name.startswith(_ADDRESS)])

    def write(self, name: str, version: int) -> Mapping[str, str]:
        """Return the identifiers of a version of a person."""
        if name.startswith(_ADDRESS):
            return {"email": f"{name}@example.com"}
        is_shared = self.addresses and version % 3 == 0
        address = self.addresses[version % len(self.addresses)] if is_shared else f"x{version}"
        return {"partner_user_id": name, "email": f"{address}@example.com"}

    def describe(self, name: str, version: int) -> str:
        """Return what the service has of a version of a person."""
        written = self.write(name, version)
        return _describe({(kind, hash_value(each) if kind == "email" else each) for kind, each in written.items()})

    def read(self, audience: Audience) -> Mapping[str, str]:
        """Return what the service has of each person, by name."""
        names = {hash_value(f"{name}@example.com"): name for name in self.addresses}
        return {names.get(first[1], first[1]): _describe(held) for first, held in audience.people.items()}


def create_sync_beside_removals_job(seed: int, folder: Path, options: Options) -> SyncJob:
    """Return syncs of an audience as `create_audience_sync_job`, and between them removals of some of its people."""
    return create_audience_sync_job(seed, folder, options, removes=True)


def create_audience_sync_job(seed: int, folder: Path, options: Options, *, removes: bool = False) -> SyncJob:
    """Return syncs of an audience, in which people change their identifiers, and share them."""
    dice = random.Random(seed)
    audience = Audience(adds=True)
    for number in range(5):
        first = ("partner_user_id", f"stranger{number}")
        audience.people[first] = frozenset({first})
    strangers = _People([]).read(audience)
    limits = Limits(operations=dice.randint(1, 3))
    per_operation = dice.choice([1, 1, 2])
    call = _draw_call(dice, options)
    name = _name_list(folder)
    names = _draw_names(dice, options, poison=0.01)
    names = [
        f"{_ADDRESS}{name}" if number % 4 == 0 and name.startswith("p") else name for number, name in enumerate(names)
    ]
    people = _People.create(names)

    async def run(session: Session, state: StateLocation, snapshot: Snapshot) -> Any:
        users = attrs.evolve(session.account("a").custom_audience(name).users, limits=limits, sizes=_SIZES)
        members = [people.write(name, version) for name, version in snapshot.items()]
        return await users.sync(members, state=state, users_per_operation=per_operation, **call)

    async def remove(session: Session, state: StateLocation, chosen: Snapshot) -> Any:
        users = attrs.evolve(session.account("a").custom_audience(name).users, limits=limits, sizes=_SIZES)
        members = [people.write(name, version) for name, version in chosen.items()]
        settings = {key: value for key, value in call.items() if key != "max_removal_share"}
        return await users.remove(members, state=state, users_per_operation=per_operation, **settings)

    return SyncJob(
        service=options.create_service(World(), audience, dice),
        state=_open_state(folder, options),
        dice=dice,
        run=run,
        remove=remove if removes else None,
        names=names,
        nights=options.nights or dice.randint(1, 4),
        changes=options.changes,
        changed=options.changed,
        strangers=strangers,
        describe=people.describe,
        read_state=lambda: people.read(audience),
    )


def _describe(identifiers: "frozenset[Identifier] | set[Identifier]") -> str:
    return " ".join(sorted(value for _, value in identifiers))


def create_catalog_sync_job(seed: int, folder: Path, options: Options) -> SyncJob:
    """Return syncs of a catalog, in which products get other titles."""
    dice = random.Random(seed)
    catalog = Catalog({f"stranger{number}": "t" for number in range(5)})
    strangers = {**catalog.titles}
    call = _draw_call(dice, options)
    name = _name_list(folder)

    async def run(session: Session, state: StateLocation, snapshot: Snapshot) -> Any:
        products = attrs.evolve(session.product_catalog(name).products, sizes=_SIZES)
        rows = [{**PRODUCT, "id": name, "title": f"t{version}"} for name, version in snapshot.items()]
        return await products.sync(rows, state=state, **call)

    return SyncJob(
        service=options.create_service(World(), catalog, dice),
        state=_open_state(folder, options),
        dice=dice,
        run=run,
        names=_draw_names(dice, options, poison=0.0),
        nights=options.nights or dice.randint(1, 4),
        changes=options.changes,
        changed=options.changed,
        strangers=strangers,
        describe=lambda _, version: f"t{version}",
        read_state=lambda: catalog.titles,
    )
