"""Locals of the frames of this SDK hold nothing of a person when a job ends: error reporters send them elsewhere."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path

import pytest

from svc_async import SvcError
from svc_async.lists.audience_users import AudienceUsers
from tests.support.fake_service import FakeService, make_error
from tests.support.journaled_uploads import create_users
from tests.support.tracebacks import find_shown

MAIL, PARTNER_ID = "ada@example.org", "partner-77"
ROWS = [{"email": MAIL, "partner_user_id": PARTNER_ID}]
SHOWN = (MAIL, PARTNER_ID, sha256(MAIL.encode()).hexdigest(), repr(sha256(MAIL.encode()).digest())[2:14])

Call = Callable[[AudienceUsers, Path], Awaitable[object]]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


CALLS: dict[str, Call] = {
    "upload": lambda users, _: users.upload(ROWS),
    "an iterator": lambda users, path: users.upload(iter(ROWS), journal=path / "journal"),
    "remove": lambda users, _: users.remove(ROWS),
    "sync": lambda users, path: users.sync(ROWS, state=path / "state"),
    "file": lambda users, path: users.upload(write(path / "a.csv", f"email\n{MAIL}\n".encode())),
    "not UTF-8": lambda users, path: users.upload(write(path / "a.csv", f"email\n{MAIL}\xff\n".encode("latin-1"))),
    "not JSON": lambda users, path: users.upload(write(path / "a.jsonl", f'{{"email": "{MAIL}"}}\n{{"{MAIL}'.encode())),
    "a NUL": lambda users, path: users.upload(write(path / "a.csv", f"email\n{MAIL}\n\0\n".encode())),
}


@pytest.mark.parametrize("call", CALLS)
async def test_no_frame_and_no_exception_shows_a_row(tmp_path: Path, call: str) -> None:
    service = FakeService()
    service.always = make_error(403)

    with pytest.raises(SvcError) as caught:
        await CALLS[call](create_users(service), tmp_path)

    assert find_shown(caught.value, *SHOWN) == []
