"""Clients that are killed with SIGKILL lose nothing and get nothing wrong; without their protection they do.

This is the short run. `nox -s crash` kills a thousand times.
"""

from pathlib import Path

import pytest

from svc_async.batch.lists.audience_users import AudienceUsers
from tests.crash.bad_rows import count_problems, upload_bad_rows
from tests.crash.service import CALM
from tests.crash.trial import CONTROLS, run_job, run_while_late
from tests.support.fake_service import FakeService


async def test_killed_clients_lose_nothing_and_get_nothing_wrong(tmp_path: Path) -> None:
    trial = await run_job(tmp_path, 1, kills=3, rows=500)

    assert trial.kills == 3
    assert (trial.lost, trial.wrong) == (0, 0)
    report = trial.report
    assert report["read"] == report["accepted"] + report["coalesced"] + report["failed"] == 500


@pytest.mark.parametrize("without", CONTROLS)
async def test_without_protection_there_is_damage(tmp_path: Path, without: str) -> None:
    how = CONTROLS[without]

    assert not (await run_job(tmp_path, 2, **how)).damaged
    assert (await run_job(tmp_path, 2, without=without, **how)).damaged


async def test_without_a_wait_a_resumed_job_does_damage(tmp_path: Path) -> None:
    assert (await run_while_late(tmp_path, late=4.0, without="wait")).damaged


async def test_a_calm_service_gets_every_row_once(tmp_path: Path) -> None:
    trial = await run_job(tmp_path, 4, faults=CALM, rows=300)

    assert (trial.damaged, trial.resent) == (False, 0)


async def test_bad_rows_fail_by_themselves_typed_and_unseen() -> None:
    users = AudienceUsers(FakeService(), "a1", "c1")

    report, failures = await upload_bad_rows(users, 20_000, seed=1)

    assert count_problems(report, failures) == {
        "rows": 20_000,
        "failed": 20_000,
        "accepted": 0,
        "failed twice": 0,
        "untyped": 0,
        "leaks": 0,
    }
