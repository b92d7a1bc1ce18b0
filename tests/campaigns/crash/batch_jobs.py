"""Uploads, removals and products: jobs with a journal, which is used again after they have ended."""

import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from svc_async import Session
from svc_async.batch.journal.file import Journals
from svc_async.batch.journal.journal import JournalPath
from svc_async.batch.packing.batch import Limits
from svc_async.batch.settings import JobSizes
from svc_async.state import SharedState
from tests.campaigns.crash.client import Result, Step
from tests.campaigns.crash.faults import make_faults
from tests.campaigns.crash.holdings import POISON, PRODUCT, Audience, Catalog
from tests.campaigns.crash.model import Allowed, Change, Damage, check_report, compare, find_allowed
from tests.campaigns.crash.service import Service
from tests.campaigns.crash.world import World

__all__ = [
    "QUARANTINE",
    "BatchJob",
    "Options",
    "Work",
    "create_products_job",
    "create_removal_job",
    "create_upload_job",
    "hash_value",
]

QUARANTINE = 120.0
_SIZES = JobSizes(slice_rows=8, partition_rows=24)
"""Lets a few rows be a long source of many requests."""
_PATIENT = (0.0, *[5.0] * 100)


Database = tuple[str, str]
"""The URL and the schema of a PostgreSQL database."""


@attrs.frozen(kw_only=True)
class Options:
    """What a trial may change of a job.

    Attributes:
        rows: how many rows it has.
        keys: how many people or products its rows are about.
        share: of requests that something goes wrong with; by default, chosen by the seed.
        weights: what goes wrong, compared to each other.
        call: settings of the call.
        limits: whether the service may take only some requests in a minute.
        reuse: the probability that a journal is used again once its job has ended.
        changes: the probability that the file of a sync changes between two runs of a night.
        changed: the largest share of people or products that it changes.
        nights: how many nights there are before the last one.
        database: the database that keeps what a job needs; None for files.
    """

    rows: int | None = None
    keys: int | None = None
    share: float | None = None
    weights: Mapping[str, float] | None = None
    call: Mapping[str, Any] = attrs.field(factory=dict)
    limits: bool = True
    reuse: float = 0.3
    changes: float = 0.4
    changed: float = 1 / 3
    nights: int | None = None
    database: Database | None = None

    def create_service(self, world: World, holdings: Audience | Catalog, dice: random.Random) -> Service:
        """Return a service whose faults the seed chooses."""
        share = dice.choice([0.05, 0.2, 0.4, 0.6]) if self.share is None else self.share
        faults = make_faults(share) if self.weights is None else make_faults(share, self.weights)
        # With a limit, the clock is right: what another clock says about an earlier life says nothing of the limit.
        limit = (
            dice.choice([12, 30]) if isinstance(holdings, Audience) and self.limits and dice.random() < 0.2 else None
        )
        return Service(
            world,
            holdings,
            random.Random(dice.random()),
            faults=faults,
            restarts=dice.choice([0.0, 0.02]) if share else 0.0,
            jumps=0.0 if limit else dice.choice([0.0, 0.0, 0.05]),
            jumps_between=0.0 if limit else dice.choice([0.0, 0.5]),
            limit=limit,
        )


OpenJournal = Callable[[], AbstractAsyncContextManager[JournalPath]]
"""Opens what `journal=` takes, in the process of a client."""


@attrs.frozen
class Work:
    """The rows of a job, and what they mean.

    Attributes:
        changes: what the valid rows ask for.
        rows: how many rows there are.
        run: does the job, given a session, the journal and settings.
        must_fail: the positions of rows that fail, whatever happens.
        may_fail: the positions of rows that may fail, whatever happens.
    """

    changes: Sequence[Change]
    rows: int
    run: Callable[[Session, JournalPath, Mapping[str, Any]], Any]
    must_fail: Sequence[int]
    may_fail: Sequence[int]


@attrs.frozen
class Phase:
    """One of the jobs that use a journal, one after another.

    Attributes:
        work: what it is to do.
        expected: `done`; `repeated`, if it returns the report of the one before and sends nothing; or `refused`.
    """

    work: Work
    expected: str = "done"


@attrs.define(kw_only=True)
class BatchJob:
    """A job with a journal, and then perhaps others with the same journal or folder of journals."""

    service: Service
    journal: "OpenJournal"
    settings: Mapping[str, Any]
    before: Mapping[str, str]
    phases: list[Phase]
    read_state: Callable[[], Mapping[str, str]]
    patient: bool
    reports: list[tuple[Work, Mapping[str, Any]]] = attrs.field(factory=list)
    damage: Damage = attrs.field(factory=Damage)
    _requests: int = 0

    def next_step(self) -> Step | None:
        """Return what is next."""
        if not self.phases or self.damage:
            return None
        self._requests = self.service.requests
        work = self.phases[0].work
        return lambda session: self._run(work, session)

    async def _run(self, work: Work, session: Session) -> Any:
        async with self.journal() as journal:
            return await work.run(session, journal, self.settings)

    def take_result(self, result: Result) -> None:
        """Take the result of a life."""
        if result["end"] == "stopped":
            return
        phase, end = self.phases.pop(0), result["end"]
        if phase.expected == "refused" and end == "done":
            self.damage += Damage(lost=["the rows of another job, whose journal was taken for finished"])
        elif end != ("refused" if phase.expected == "refused" else "done"):
            self.damage += Damage(other=[f"{phase.expected}: {end}: {result['why']}"])
        elif phase.expected == "repeated":
            if result["report"] != self.reports[-1][1] or self.service.requests != self._requests:
                self.damage += Damage(other=["a finished job did something else when it was run again"])
        elif phase.expected == "done":
            self.reports.append((phase.work, result["report"]))

    def find_damage(self) -> Damage:
        """Compare what the service has, and what the reports say, with the rows."""
        damage = self.damage
        allowed: Allowed = {key: {value} for key, value in self.before.items()}
        for work, report in self.reports:
            allowed = find_allowed(allowed, work.changes, {failure["position"] for failure in report["failures"]})
            may_fail = work.may_fail if self.patient else range(work.rows)
            damage += check_report(report, work.rows, work.must_fail, may_fail)
        return damage if self.phases else damage + compare(allowed, self.read_state())


def _draw_settings(dice: random.Random, options: Options, *, patient: bool) -> Mapping[str, Any]:
    settings: dict[str, Any] = {"concurrency": dice.randint(1, 6), "quarantine": QUARANTINE}
    if patient:
        settings["retry_delays"] = _PATIENT
    return {**settings, **options.call}


def _draw_phases(
    dice: random.Random, options: Options, works: Sequence[Work], folder: Path, *, patient: bool
) -> tuple[OpenJournal, list[Phase]]:
    """Return a journal, and jobs that use it: one of them, then perhaps it again or another one.

    A row that was given up may take effect while another job runs, so only patient jobs are followed by another one.
    """
    work, other = works[0], dice.choice(works[1:])
    if options.database is None and patient and dice.random() < options.reuse * (1 - options.reuse):
        return lambda: nullcontext(Journals(folder)), [Phase(work), Phase(works[1])]
    again = [Phase(work, "repeated")] if dice.random() < options.reuse else []
    refused = [Phase(other, "refused")] if dice.random() < options.reuse else []
    return _open_journal(folder, options), [Phase(work), *again, *refused]


def _open_journal(folder: Path, options: Options) -> OpenJournal:
    if options.database is None:
        return lambda: nullcontext(folder / "journal")
    url, schema = options.database

    @asynccontextmanager
    async def open_state() -> AsyncIterator[JournalPath]:
        async with SharedState.open(url, schema=schema) as state:
            yield state.journal(folder.name)

    return open_state


def hash_value(value: str) -> str:
    """Return a value as the client sends it."""
    return sha256(value.encode()).hexdigest()


@attrs.frozen
class _PeopleRows:
    """Rows about people: which operation, on whom, and the value."""

    rows: Sequence[tuple[str, str, str]]
    invalid: frozenset[int]

    @classmethod
    def draw(cls, dice: random.Random, options: Options, *, prefix: str, deletes: float, unique: bool) -> "_PeopleRows":
        count = options.rows or dice.randint(40, 160)
        keys = options.keys or dice.randint(5, 60)
        rows = []
        for number in range(count):
            name = f"{POISON if dice.random() < 0.02 else prefix}{dice.randrange(keys)}"
            value = str((number if unique else dice.randrange(3)) + 1)
            rows.append(("Delete", name, "") if dice.random() < deletes else ("Update", name, value))
        invalid = frozenset(position for position in range(count) if dice.random() < 0.02)
        return cls(rows, invalid)

    @property
    def changes(self) -> list[Change]:
        return [
            Change(position, key, None if operation == "Delete" else hash_value(value))
            for position, (operation, key, value) in enumerate(self.rows)
            if position not in self.invalid
        ]

    @property
    def may_fail(self) -> list[int]:
        return [
            position
            for position, (operation, key, _) in enumerate(self.rows)
            if position in self.invalid or (operation == "Update" and key.startswith(POISON))
        ]

    @property
    def must_fail(self) -> list[int]:
        """The positions of rows that fail, unless an equal one fails in their place."""
        last = {row: position for position, row in enumerate(self.rows) if position not in self.invalid}
        return [place for place in self.may_fail if place in self.invalid or last[self.rows[place]] == place]

    def make_members(self) -> list[Mapping[str, str]]:
        return [self._make_member(position) for position in range(len(self.rows))]

    def make_operations(self) -> list[Mapping[str, Any]]:
        return [
            {"operation_type": operation, "params": {"users": [self._make_member(position)]}}
            for position, (operation, _, _) in enumerate(self.rows)
        ]

    def _make_member(self, position: int) -> Mapping[str, str]:
        operation, key, value = self.rows[position]
        if position in self.invalid:
            return {"email": "no address"}
        return {"partner_user_id": key} if operation == "Delete" else {"partner_user_id": key, "svc_id": value}


def _create_people_job(dice: random.Random, folder: Path, options: Options, *, deletes: float, call: str) -> BatchJob:
    audience = Audience()
    patient = dice.random() < 0.75
    draw = partial(_PeopleRows.draw, dice, options, deletes=deletes, unique=not patient)
    rows = draw(prefix="p")
    before = {f"p{number}": hash_value(f"before{number}") for number in range(70)} if deletes else {}
    for name, value in before.items():
        first = ("partner_user_id", name)
        audience.people[first] = frozenset({first, ("svc_id", value)})
    limits = Limits(operations=dice.randint(1, 6))
    once = call != "apply" and dice.random() < 0.3
    per_operation = {"users_per_operation": dice.choice([1, 2, 5])}

    def make_work(people: _PeopleRows, audience_id: str = "c", **more: Any) -> Work:
        source = people.make_operations() if call == "apply" else people.make_members()

        async def run(session: Session, journal: JournalPath, settings: Mapping[str, Any]) -> Any:
            users = session.account("a").custom_audience(audience_id).users
            users = attrs.evolve(users, limits=limits, sizes=_SIZES)
            given = iter(source) if once else source
            return await getattr(users, call)(given, journal=journal, **per_operation, **settings, **more)

        return Work(people.changes, len(people.rows), run, people.must_fail, people.may_fail)

    works = [make_work(rows), make_work(draw(prefix="other")), make_work(rows, "c2")]
    if call == "upload":
        works.append(make_work(rows, expires_at=datetime(2026, 12, 24, tzinfo=UTC)))
    service = options.create_service(World(), audience, dice)
    journal, phases = _draw_phases(dice, options, works, folder, patient=patient)
    return BatchJob(
        service=service,
        journal=journal,
        settings=_draw_settings(dice, options, patient=patient),
        before=before,
        phases=phases,
        read_state=lambda: _read_people(audience),
        patient=patient,
    )


def _read_people(audience: Audience) -> Mapping[str, str]:
    return {first[1]: dict(held).get("svc_id", "") for first, held in audience.people.items()}


def create_upload_job(seed: int, folder: Path, options: Options) -> BatchJob:
    """Return an upload of people, some of them several times."""
    return _create_people_job(random.Random(seed), folder, options, deletes=0.0, call="upload")


def create_removal_job(seed: int, folder: Path, options: Options) -> BatchJob:
    """Return a removal of people; in two of three, others are added again in the same job."""
    dice = random.Random(seed)
    pure = dice.random() < 1 / 3
    return _create_people_job(dice, folder, options, deletes=1.0 if pure else 0.6, call="remove" if pure else "apply")


def create_products_job(seed: int, folder: Path, options: Options) -> BatchJob:
    """Return an upload of products, or a deletion of some."""
    dice = random.Random(seed)
    catalog = Catalog()
    patient = dice.random() < 0.75
    deletes = dice.random() < 0.25
    if deletes:
        catalog.titles = {f"p{number}": f"t{number}" for number in range(400)}
    make_work = _make_deletions if deletes else _make_upserts
    works = [make_work(dice, options, "p"), make_work(dice, options, "other")]
    # A deletion that is sent again after an unclear answer may be refused.
    patient = patient and not deletes
    service = options.create_service(World(), catalog, dice)
    journal, phases = _draw_phases(dice, options, works, folder, patient=patient)
    return BatchJob(
        service=service,
        journal=journal,
        settings=_draw_settings(dice, options, patient=patient),
        before={**catalog.titles},
        phases=phases,
        read_state=lambda: catalog.titles,
        patient=patient,
    )


def _make_upserts(dice: random.Random, options: Options, prefix: str) -> Work:
    count, keys = options.rows or dice.randint(40, 200), options.keys or dice.randint(2, 40)
    names = [f"{POISON if dice.random() < 0.02 else prefix}{dice.randrange(keys)}" for _ in range(count)]
    changes = [Change(position, name, f"t{position}") for position, name in enumerate(names)]
    products = [{**PRODUCT, "id": change.key, "title": change.value} for change in changes]

    async def run(session: Session, journal: JournalPath, settings: Mapping[str, Any]) -> Any:
        catalog = attrs.evolve(session.product_catalog("k").products, sizes=_SIZES)
        return await catalog.upsert(products, journal=journal, **settings)

    refused = [position for position, name in enumerate(names) if name.startswith(POISON)]
    return Work(changes, count, run, refused, refused)


def _make_deletions(dice: random.Random, options: Options, prefix: str) -> Work:
    numbers = dice.sample(range(400), options.rows or dice.randint(100, 300))
    changes = [Change(position, f"{prefix}{number}", None) for position, number in enumerate(numbers)]
    keys = [f"key-{change.key}" for change in changes]

    async def run(session: Session, journal: JournalPath, settings: Mapping[str, Any]) -> Any:
        catalog = attrs.evolve(session.product_catalog("k").products, sizes=_SIZES)
        return await catalog.delete(keys, journal=journal, **settings)

    return Work(changes, len(keys), run, [], [])
