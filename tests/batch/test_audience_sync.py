import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from svc_async import BatchError, InvalidArgument, Session
from svc_async.batch.report import Failure
from svc_async.batch.settings import Observers
from svc_async.batch.sync.audience import AudienceTarget
from svc_async.batch.sync.state import Snapshots
from svc_async.batch.sync.sync import Sync
from svc_async.sandbox import Fault, Sandbox
from svc_async.sources.detect import open_source
from tests.support.files import Write

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

    def __init__(self, session: Session, sandbox: Sandbox, write: Write, state: Path) -> None:
        self.users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        self.sandbox = sandbox
        self.write = write
        self.state = state
        self.failures: list[Failure] = []

    async def sync(self, content: str, *, share: float = 1.0, lifetime: timedelta = timedelta(days=395)) -> Sync:
        source = open_source(self.write(content))
        target = AudienceTarget(users=self.users, source=source, settings={"quarantine": 0.0})
        with Snapshots(self.state, target=self.users.custom_audience_id) as snapshots:
            sync = Sync(target=target, snapshots=snapshots, lifetime=lifetime)
            observers = Observers(on_failure=self.failures.append)
            await sync.apply(await sync.plan(), max_removal_share=share, observers=observers)
        return sync

    @property
    def members(self) -> list[dict[str, list[str]]]:
        return self.sandbox.audience(self.sandbox.audience_id).users


@pytest.fixture
def audience(session: Session, sandbox: Sandbox, write: Write, tmp_path: Path) -> Audience:
    return Audience(session, sandbox, write, tmp_path / "state")


def numbered(*numbers: int) -> str:
    return "email\n" + "".join(f"user{number}@example.org\n" for number in numbers)


def emails(*numbers: int) -> list[dict[str, list[str]]]:
    return [{"email": [sha256(f"user{number}@example.org")]} for number in numbers]


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
    sync = await audience.sync(f"{header}\n,,last@example.org,,,\n")
    assert sync.removed.accepted == 6
    assert audience.members == [{"email": [sha256("last@example.org")]}]


async def test_failures_are_told_at_their_position_in_the_file(audience: Audience) -> None:
    await audience.sync(numbered(1, 2, 3))
    content = f"{numbered(1, 2)}nobody\n{numbered(4)[6:]}nobody2\n"
    sync = await audience.sync(content)
    assert [failure.position for failure in audience.failures] == [2, 4]
    assert (sync.sent.read, sync.sent.accepted, sync.sent.failed) == (3, 1, 2)
    again = await audience.sync(content)
    assert (again.sent.read, again.sent.failed) == (2, 2)
    assert sorted(audience.members, key=str) == sorted(emails(1, 2, 4), key=str)


async def test_a_file_that_would_remove_too_much_is_stopped(audience: Audience) -> None:
    await audience.sync(numbered(*range(10)))
    with pytest.raises(InvalidArgument, match="9 of the 10 rows that are there"):
        await audience.sync(numbered(0), share=0.5)
    assert len(audience.members) == 10
    await audience.sync(numbered(0), share=0.9)
    assert audience.members == emails(0)


async def test_who_expires_soon_is_sent_again(audience: Audience) -> None:
    await audience.sync(numbered(1, 2), lifetime=timedelta(days=20))
    assert (await audience.sync(numbered(1, 2, 3))).sent.accepted == 3
    assert (await audience.sync(numbered(1, 2, 3))).sent.accepted == 0


async def test_a_run_that_was_ended_by_the_service_is_taken_up_again(audience: Audience, sandbox: Sandbox) -> None:
    await audience.sync(numbered(*range(20)))
    sandbox.faults.on("POST", USERS).nth(1).do(Fault.http(403))
    with pytest.raises(BatchError):
        await audience.sync(numbered(*range(10, 30)))
    assert len(audience.members) == 20
    sync = await audience.sync(numbered(*range(10, 30)))
    assert (sync.removed.accepted, sync.sent.accepted) == (10, 10)
    assert sorted(audience.members, key=str) == sorted(emails(*range(10, 30)), key=str)


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
