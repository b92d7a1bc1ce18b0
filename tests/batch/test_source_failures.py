"""Sources that fail in the middle of a job: the error says that requests were sent, whatever ended the reading."""

import errno
import gzip
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from svc_async import BatchError, Rows
from svc_async.batch.packing.batch import Limits
from svc_async.batch.settings import JobSizes
from svc_async.errors import Sent
from svc_async.handles import CustomAudienceHandle
from svc_async.lists.audience_users import AudienceUsers
from svc_async.sandbox import Sandbox
from svc_async.sources.detect import open_source
from tests.support.errors import because

ROWS = 300
TEXT = "email\n" + "".join(f"user{number}@example.org\n" for number in range(ROWS))


def raise_midway(_: Path) -> Rows:
    def rows() -> Iterator[tuple[str]]:
        for number in range(ROWS):
            yield (f"user{number}@example.org",)
        raise LookupError("no such row")

    return Rows(["email"], rows())


def damage_gzip(folder: Path) -> Rows:
    path = folder / "people.csv.gz"
    text = TEXT.replace("@", f"@{'x' * 63}.{'x' * 63}.{'x' * 63}.").encode()  # more than is read at a time
    path.write_bytes(gzip.compress(text * 4) + gzip.compress(text)[:-200])
    return open_source(path).rows()


def write_long_line(folder: Path) -> Rows:
    path = folder / "people.csv"
    path.write_text(f"{TEXT}{'x' * 2**21}\n", encoding="utf-8")
    return open_source(path).rows()


@pytest.mark.parametrize(
    "create", [raise_midway, *(pytest.param(each, marks=pytest.mark.long) for each in (damage_gzip, write_long_line))]
)
async def test_an_error_of_a_source_after_requests_were_sent(
    users: AudienceUsers, tmp_path: Path, create: Callable[[Path], Rows]
) -> None:
    with pytest.raises(BatchError) as caught:
        await users.upload(create(tmp_path), users_per_operation=1, concurrency=1)
    assert caught.value.report.accepted > 0
    assert (caught.value.sent, caught.value.repeatable) == (Sent.YES, False)


ERRORS = [
    ConnectionResetError(errno.ECONNRESET, "user7@example.org"),
    FileNotFoundError(errno.ENOENT, "user7@example.org"),
    pytest.param(ConnectionError("user7@example.org"), marks=pytest.mark.long),
    pytest.param(TimeoutError(), marks=pytest.mark.long),
    pytest.param(LookupError("user7@example.org"), marks=pytest.mark.long),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("option", ["journal", "state"])
async def test_an_error_of_a_source_is_the_cause_however_its_rows_are_kept(
    users: AudienceUsers, tmp_path: Path, option: str, error: Exception
) -> None:
    """Rows are stored as they are read; an OSError of the source is none of the file that they are stored in."""

    class Failing:
        def __iter__(self) -> Iterator[Mapping[str, str]]:
            for number in range(1_200):
                yield {"email": f"user{number}@example.org"}
            raise error

    path = tmp_path / "file"
    calls: Mapping[str, Callable[[], Awaitable[object]]] = {
        "journal": lambda: users.upload(iter(Failing()), journal=path),
        "state": lambda: users.sync(Failing(), state=path),
    }
    with pytest.raises(BatchError) as caught:
        await calls[option]()
    assert caught.value.__cause__ is error
    assert caught.value.sent is Sent.NO
    assert "user7" not in str(caught.value)


@pytest.fixture
def users(audience: CustomAudienceHandle) -> AudienceUsers:
    return attrs.evolve(audience.users, limits=Limits(operations=40), sizes=JobSizes(slice_rows=16, partition_rows=64))


@attrs.frozen
class Interrupted:
    """Rows that can be read again; reading them fails at this row."""

    fails_at: int | None = None

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        for number in range(80):
            if number == self.fails_at:
                raise ConnectionError
            yield {"email": f"user{number}@example.org"}


@pytest.mark.parametrize(
    "fail_at", [[16], *(pytest.param(each, marks=pytest.mark.long) for each in ([0], [1], [64, 23], [23, 64, 65, 0]))]
)
async def test_a_job_is_resumed_wherever_its_source_failed(
    users: AudienceUsers, sandbox: Sandbox, tmp_path: Path, fail_at: list[int]
) -> None:
    """The rows before the failure are read again, and none of them is taken for another one."""
    journal = tmp_path / "job"
    for row in fail_at:
        with pytest.raises(BatchError, check=because(ConnectionError)):
            await users.upload(Interrupted(row), journal=journal, users_per_operation=1)
    report = await users.upload(Interrupted(), journal=journal, users_per_operation=1)
    assert (report.read, report.accepted, report.pending) == (80, 80, 0)
    assert len(sandbox.audience(sandbox.audience_id).users) == 80
