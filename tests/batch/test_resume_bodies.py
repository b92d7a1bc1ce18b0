"""A resumed job sends the bytes of the killed one again, whether users are stored as digests or as text."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from svc_async.batch.report import Report
from svc_async.errors import BatchError
from tests.support.fake_service import FakeService, make_error
from tests.support.journaled_uploads import create_users
from tests.support.journals import Death

Member = Mapping[str, object]
COUNT = 40


def make_digests(number: int) -> Member:
    return {"email": f"user{number}@example.org"}


def make_gaps(number: int) -> Member:
    row = {"svc_id": f"1{number}", "email": f"user{number}@example.org", "handle": f"user{number}"}
    return {name: value for bit, (name, value) in enumerate(row.items()) if (number % 7 + 1) >> bit & 1}


def make_text(number: int) -> Member:
    return {"partner_user_id": f"p{number}", "email": f"user{number}@example.org"}


def make_both(number: int) -> Member:
    """Return a member that is stored as text in some slices, and with others in one request."""
    emails = [f"user{number}@example.org", f"also{number}@example.org"]
    return {"svc_id": f"1{number}", "email": emails[: number // 5 % 2 + 1]}


MAKERS = [make_digests, make_gaps, make_text, make_both]


async def remove(service: FakeService, members: Iterable[Member], path: Path, *, death: Death | None = None) -> Report:
    journal = path if death is None else death.wrap(path)
    return await create_users(service).remove(members, journal=journal, concurrency=1, users_per_operation=3)


async def dies(job: Awaitable[Report]) -> bool:
    """Return whether a job is killed: it may end before, since a commit takes with it all that gathered meanwhile."""
    try:
        await job
    except BatchError:
        return True
    return False


@pytest.mark.parametrize(
    ("make", "source", "commits"),
    [
        *((make, list, (3, 4)) for make in MAKERS),
        pytest.param(make_gaps, iter, (1, 8, 19, 20, 21, 22), marks=pytest.mark.long),
        *(pytest.param(make, list, range(1, 7), marks=pytest.mark.long) for make in MAKERS),
        # The rows of an iterator are in the journal first: in fourteen slices.
        *(pytest.param(make, iter, range(1, 26), marks=pytest.mark.long) for make in MAKERS),
    ],
)
async def test_a_resumed_job_sends_the_same_bytes(
    tmp_path: Path,
    make: Callable[[int], Member],
    source: Callable[[Sequence[Member]], Iterable[Member]],
    commits: Sequence[int],
) -> None:
    rows, whole = [make(number) for number in range(COUNT)], FakeService()
    await remove(whole, rows, tmp_path / "whole")
    kills = repeats = 0
    for commit in commits:
        service, path = FakeService(), tmp_path / f"{commit}"
        kills += await dies(remove(service, source(rows), path, death=Death(commit)))
        report = await remove(service, source(rows), path)
        assert (report.accepted, report.failed) == (COUNT, 0)
        assert [*dict.fromkeys(service.bodies)] == whole.bodies
        repeats += len(service.bodies) - len(whole.bodies)
    assert kills > len(commits) / 2
    assert repeats > 0


@pytest.mark.parametrize("commits", [(2, 4, 6), pytest.param(range(2, 8), marks=pytest.mark.long)])
async def test_a_part_of_a_refused_body_can_be_sent_again(tmp_path: Path, commits: Sequence[int]) -> None:
    rows, repeats = [make_both(number) for number in range(COUNT)], 0
    for commit in commits:
        service, path = FakeService(script={1: make_error(413), 2: make_error(413)}), tmp_path / f"{commit}"
        await dies(remove(service, rows, path, death=Death(commit)))
        sent = [*service.bodies]
        report = await remove(service, rows, path)
        assert (report.accepted, report.failed) == (COUNT, 0)
        repeats += sent[-1:] == service.bodies[len(sent) :][:1]
    assert repeats > 0
