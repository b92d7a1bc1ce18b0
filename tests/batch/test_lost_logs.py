"""A killed run leaves a write-ahead log; of one that is damaged or gone, SQLite drops the rest without notice.

What the journal has forgotten may still take effect, so a job that was killed waits for a whole quarantine, whatever
its journal says.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from svc_async.errors import BatchError
from tests.support.clock import MachineClock
from tests.support.fake_service import LOST, FakeService, make_error
from tests.support.journaled_uploads import create_users

QUARANTINE = 120.0
ROWS = [{"partner_user_id": "p1", "svc_id": value} for value in ("1", "2")]


def flip(log: bytes, place: int) -> bytes:
    return log[:place] + bytes([log[place] ^ 1]) + log[place + 1 :]


DAMAGES: Mapping[str, Callable[[bytes], bytes]] = {
    "none": lambda log: log,
    "gone": lambda _: b"",
    "its header": lambda log: flip(log, 20),
    "its first page": lambda log: flip(log, 100),
    "its last page": lambda log: flip(log, len(log) - 100),
    "cut": lambda log: log[:-1],
}


async def upload(service: FakeService, path: Path, **settings: Any) -> Any:
    users = create_users(service, operations=1)
    return await users.upload(ROWS, users_per_operation=1, concurrency=2, journal=path, **settings)


async def kill(service: FakeService, path: Path) -> None:
    """Leave the files of a job that is killed while a request is in flight that has been sent before."""
    files: dict[Path, bytes] = {}

    def copy(_: object) -> None:
        files.update({each: each.read_bytes() for each in path.parent.glob(f"{path.name}*")})

    sent = len(service.bodies)
    service.script = {sent + 1: make_error(423), sent + 2: copy, sent + 3: make_error(403)}
    with pytest.raises(BatchError):
        await upload(service, path, retry_delays=[0])
    service.script = {}
    for each in path.parent.glob(f"{path.name}*"):
        each.unlink()
    for each, content in files.items():
        each.write_bytes(content)


@pytest.mark.parametrize("runs", [0, pytest.param(1, marks=pytest.mark.long)], ids=["first run", "second run"])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_what_a_damaged_log_has_forgotten_is_waited_for(tmp_path: Path, damage: str, runs: int) -> None:
    path, log = tmp_path / "journal", tmp_path / "journal-wal"
    service = FakeService(clock=MachineClock())
    for _ in range(runs):
        service.script = {1: LOST, 2: make_error(403)}
        with pytest.raises(BatchError):  # a run that ends in good order
            await upload(service, path, quarantine=0, retry_delays=[0])
        await service.clock.sleep(10**6)
    await kill(service, path)
    assert log.stat().st_size > 4096
    log.write_bytes(DAMAGES[damage](log.read_bytes()))
    began, sent = service.clock.monotonic(), len(service.bodies)

    report = await upload(service, path, quarantine=QUARANTINE)

    assert (report.read, report.accepted) == (2, 2)
    assert service.times[sent] - began == QUARANTINE
