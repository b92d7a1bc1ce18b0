from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import attrs
import pytest

from svc_async import BatchError, InvalidArgument, Journals, Session
from svc_async.batch.job import Job, ListKind, SourceSpec, TargetSpec, from_plain
from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Failure, Progress
from svc_async.batch.settings import BatchSettings, Reading, SyncObservers
from svc_async.errors import ApiError, Hint, UnusableFile
from svc_async.jobs.limits import find_job_limit, requests_per_minute
from svc_async.jobs.run import check_access, open_rows, run
from svc_async.sandbox import Fault, Sandbox
from tests.support.command import Command, environment_of
from tests.support.errors import has
from tests.support.files import Write

HEADER = "id,title,description,availability,condition,price,link,image_link,brand,inventory"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
async def session(sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox) as session:
        yield session


@pytest.fixture
def audience(sandbox: Sandbox) -> TargetSpec:
    return TargetSpec(kind="audience", account_id=sandbox.account_id, list_id=sandbox.audience_id)


def product(name: str) -> str:
    shop = "https://shop.example.org"
    return f"{name},T,D,in_stock,new,9.90 EUR,{shop}/{name},{shop}/{name}.png,B,1"


def feed(*names: str) -> str:
    return "\n".join([HEADER, *map(product, names), ""])


def emails(sandbox: Sandbox) -> set[str]:
    return {user["email"][0] for user in sandbox.audience(sandbox.audience_id).users}


def hashes(*people: str) -> set[str]:
    return {sha256(person.encode()).hexdigest() for person in people}


async def test_users_are_uploaded_and_removed(
    session: Session, sandbox: Sandbox, audience: TargetSpec, write: Write
) -> None:
    everybody = SourceSpec(path=str(write("Mail\na@example.org\nb@example.org\n")), mapping={"Mail": "email"})
    one = SourceSpec(path=str(write("email\na@example.org\n", "one.csv")))

    uploaded = await run(Job(target=audience, source=everybody), session)
    removed = await run(Job(target=audience, source=one, operation="remove"), session)

    assert (uploaded.total.accepted, removed.total.accepted) == (2, 1)
    assert emails(sandbox) == hashes("b@example.org")


async def test_users_of_a_do_not_reach_list_have_two_identifiers(
    session: Session, sandbox: Sandbox, write: Write
) -> None:
    target = TargetSpec(kind="do_not_reach_list", account_id=sandbox.account_id, list_id="dnr7k1")
    good = Job(target=target, source=SourceSpec(path=str(write("email\na@example.org\n"))))
    bad = Job(target=target, source=SourceSpec(path=str(write("email,handle\na@example.org,a\n", "bad.csv"))))

    assert (await run(good, session)).total.accepted == 1
    with pytest.raises(UnusableFile, check=has(path=bad.file.path, hint=Hint.MAP_OR_IGNORE)):
        await run(bad, session)


async def test_products_are_uploaded_and_removed_by_their_key(session: Session, write: Write, tmp_path: Path) -> None:
    catalog = await session.product_catalogs.create(name="Shop")
    target = TargetSpec(kind="catalog", list_id=catalog.id)
    products = session.product_catalog(catalog.id).products
    source = SourceSpec(path=str(write(feed("a", "b"))))
    upload = Job(target=target, source=source, journal=tmp_path / "job.journal")
    uploaded = await run(upload, session)
    keys = {each.id: str(each.product_key) async for each in products.list()}

    gone = SourceSpec(path=str(write(f"product_key\n{keys['a']}\n", "gone.csv")))
    removed = await run(Job(target=target, source=gone, operation="remove"), session)

    assert (uploaded.total.accepted, removed.total.accepted) == (2, 1)
    assert [each.id async for each in products.list()] == ["b"]
    assert await run(upload, session) == uploaded


@pytest.mark.long("6,000 rows need three requests")
async def test_settings_and_observers_reach_the_job(
    session: Session, sandbox: Sandbox, audience: TargetSpec, write: Write
) -> None:
    content = "email\n" + "".join(f"user{number}@example.org\n" for number in range(6_000)) + "nobody\n"
    progress: list[Progress] = []
    failures: list[Failure] = []
    job = Job(
        target=audience,
        source=SourceSpec(path=str(write(content))),
        settings=BatchSettings(concurrency=1, users_per_operation=1),
        observers=SyncObservers(progress=progress.append, on_failure=failures.append),
    )

    report = (await run(job, session)).total

    assert (report.accepted, report.failed, report.requests) == (6_000, 1, 3)
    assert progress[-1].accepted == 6_000
    assert [failure.position for failure in failures] == [6_000]
    assert len(emails(sandbox)) == 6_000


async def test_an_audience_is_synced(
    session: Session, sandbox: Sandbox, audience: TargetSpec, write: Write, tmp_path: Path
) -> None:
    source = SourceSpec(path=str(write("email\na@example.org\nb@example.org\n")))
    plans: list[object] = []
    observers = SyncObservers(on_plan=plans.append)
    job = Job(operation="sync", target=audience, source=source, state=tmp_path / "state", observers=observers)

    first = await run(job, session)
    second = await run(job, session)

    assert isinstance(first, SyncReport)
    assert isinstance(second, SyncReport)
    assert (first.plan.additions, second.plan.unchanged) == (2, 2)
    assert plans == [first.plan, second.plan]
    assert emails(sandbox) == hashes("a@example.org", "b@example.org")


async def test_a_catalog_is_synced(session: Session, write: Write, tmp_path: Path) -> None:
    catalog = await session.product_catalogs.create(name="Shop")
    source = SourceSpec(path=str(write(feed("a", "b"))))
    job = Job(
        operation="sync",
        target=TargetSpec(kind="catalog", list_id=catalog.id),
        source=source,
        state=str(tmp_path / "state"),
    )

    report = await run(job, session)

    assert isinstance(report, SyncReport)
    assert (report.plan.additions, report.sent.accepted) == (2, 2)


async def test_a_sync_needs_a_state(session: Session, audience: TargetSpec, write: Write) -> None:
    source = SourceSpec(path=str(write("email\na@example.org\n")))

    with pytest.raises(InvalidArgument, check=has(parameter="state")):
        await run(Job(operation="sync", target=audience, source=source), session)


async def test_a_source_that_is_open_already_stays_open(session: Session, audience: TargetSpec, write: Write) -> None:
    job = Job(target=audience, source=SourceSpec(path=str(write("email\na@example.org\n"))))
    source = open_rows(job)

    report = await run(job, session, source=source)

    assert report.total.accepted == 1
    assert source.exhausted
    await source.check()
    source.close()


async def test_access_is_checked_before_a_job(session: Session, sandbox: Sandbox, audience: TargetSpec) -> None:
    await check_access(audience, session)
    sandbox.faults.on("GET", "*/accounts/*").do(Fault.http(403))

    with pytest.raises(ApiError, check=has(status=403)):
        await check_access(audience, session)
    with pytest.raises(ApiError, check=has(status=404)):
        await check_access(TargetSpec(kind="catalog", list_id="nowhere"), session)


async def test_a_job_that_cannot_be_finished_raises(
    session: Session, sandbox: Sandbox, audience: TargetSpec, write: Write
) -> None:
    sandbox.faults.on("POST", "*/users").do(Fault.http(403))
    job = Job(target=audience, source=SourceSpec(path=str(write("email\na@example.org\n"))))

    with pytest.raises(BatchError) as caught:
        await run(job, session)

    assert caught.value.report.pending == 1


@pytest.mark.parametrize("in_folder", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_the_journal_describes_the_job_so_that_the_command_can_resume_it(  # noqa: PLR0917 - fixtures
    session: Session,
    sandbox: Sandbox,
    audience: TargetSpec,
    write: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    in_folder: bool,
) -> None:
    people = write("email\na@example.org\nb@example.org\n")
    monkeypatch.chdir(people.parent)
    job = Job(
        target=audience,
        source=SourceSpec(path=people.name),
        reading=Reading("DE"),
        settings=BatchSettings(users_per_operation=1, concurrency=1),
        journal=Journals(tmp_path / "journals") if in_folder else tmp_path / "job.journal",
    )
    sandbox.faults.on("POST", "*/users").times(1).do(Fault.http(403))

    with pytest.raises(BatchError):
        await run(job, session)

    (path,) = [*tmp_path.glob("**/*.journal")]
    stored = from_plain(JournalRecord.read(path).note)
    source = SourceSpec(path=str(people), fingerprint=stored.file.fingerprint)
    assert stored == attrs.evolve(job.detach(), source=source)
    there = tmp_path / "there"
    there.mkdir()
    ended = await Command(there, environment_of(sandbox))("job", "resume", path)
    assert ended.code == 0, ended.err
    assert emails(sandbox) == hashes("a@example.org", "b@example.org")
    assert JournalRecord.read(path).finished


def test_a_job_knows_its_rate_limit() -> None:
    assert requests_per_minute("audience", "upload") == 1_500
    assert requests_per_minute("catalog", "remove") == 10


@pytest.mark.parametrize(
    ("kind", "requests", "seconds"),
    [("catalog", 570, 0), ("catalog", 571, 900), ("catalog", 8_000, 14 * 900), ("audience", 3_000, 120)],
)
def test_the_least_time_counts_the_windows_of_a_limit(kind: ListKind, requests: int, seconds: float) -> None:
    assert find_job_limit(kind, "upload").find_least_seconds(requests) == seconds
