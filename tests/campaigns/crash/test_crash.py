"""The model and the figures of the campaign that kills clients, and the part of it that `.ci/run` leaves out."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from svc_async.lists.audience_users import AudienceUsers
from tests.campaigns.crash.bad_rows import count_problems, upload_bad_rows
from tests.campaigns.crash.figures import Figures, read_figures
from tests.campaigns.crash.model import Change, check_report, compare, find_allowed
from tests.support.fake_service import FakeService

_ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.timeout(300)  # as long as a campaign may take beside other work; it takes some seconds


@pytest.mark.long("a campaign of processes that are stopped, on a database of its own")
def test_clients_that_were_stopped_and_replaced_send_nothing_that_does_damage() -> None:
    arguments = ["--cluster", "--no-controls", "--workers", "2", "--jobs", "3", "--schedules", "1", "--bad-rows", "1"]
    command = [sys.executable, "-m", "tests.campaigns.crash", *arguments]  # a process of its own, since it forks
    ended = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert ended.stdout, ended.stderr
    figures = Figures(**json.loads(ended.stdout.splitlines()[-1]))
    assert (dict(figures.damage), figures.examples) == ({}, [])
    assert figures.totals["stops"] > 0


def test_figures_of_runs_add_up(tmp_path: Path) -> None:
    figures = Figures(kills=Counter(upload=7), controls={"lanes": {"jobs": 2, "with damage": 1}}, seeds=[5])
    path = tmp_path / "figures"
    path.write_text(f"{figures.to_json()}\n{figures.to_json()}\n")

    total = read_figures([str(path)])

    assert total.kills == {"upload": 14}
    assert total.controls == {"lanes": {"jobs": 4, "with damage": 2}}
    assert total.seeds == [5]


@pytest.mark.parametrize(
    ("counts", "good"),
    [
        ({"jobs": 3, "with damage": 1}, True),
        ({"jobs": 3, "with damage": 0}, False),
        ({"jobs": 3, "with damage": 2, "with damage though protected": 1}, False),
    ],
)
def test_a_control_must_do_damage_and_its_protected_job_none(counts: dict[str, int], good: bool) -> None:
    assert Figures(controls={"lanes": counts}).good is good


def test_damage_of_one_run_is_seen_in_the_sum() -> None:
    assert not (Figures(damage={"upload: lost": 1}) + Figures()).good


@pytest.mark.parametrize(
    ("state", "found"),
    [
        ({"a": "2", "b": "1"}, (0, 0, 0)),
        ({"a": "1", "b": "1"}, (0, 1, 0)),
        ({"b": "1"}, (1, 0, 0)),
        ({"a": "2", "b": "1", "c": "1"}, (0, 0, 1)),
        ({"a": "2", "b": "1", "d": "1"}, (0, 0, 1)),
    ],
)
def test_the_model_sees_what_is_lost_wrong_and_extra(state: dict[str, str], found: tuple[int, int, int]) -> None:
    changes = [Change(0, "a", "1"), Change(1, "b", "1"), Change(2, "a", "2"), Change(3, "c", None)]

    damage = compare(find_allowed({"c": {"1"}}, changes, failed=()), state)

    assert (len(damage.lost), len(damage.wrong), len(damage.extra)) == found


def test_a_row_that_failed_may_have_been_applied_or_not() -> None:
    allowed = find_allowed({}, [Change(0, "a", "1"), Change(1, "a", "2")], failed={1})

    assert allowed == {"a": {"1", "2"}}


@pytest.mark.parametrize(
    ("rows", "allowed"),
    [
        ([("a", None), ("b", "1"), ("a", None)], {"0", None}),
        ([("a", None), ("a", None), ("a", None)], {"0", None}),
        ([("a", None), ("a", "1"), ("a", None)], {"1", None}),
        ([("a", "1"), ("a", None)], {"1", None}),
    ],
    ids=["equal", "equal twice", "another between", "another"],
)
def test_equal_rows_before_one_that_failed_may_have_been_coalesced_with_it(
    rows: Sequence[tuple[str, str | None]], allowed: set[str | None]
) -> None:
    changes = [Change(position, *row) for position, row in enumerate(rows)]

    assert find_allowed({"a": {"0"}}, changes, failed={len(rows) - 1})["a"] == allowed


def test_a_row_that_is_always_refused_has_no_effect() -> None:
    assert find_allowed({}, [Change(0, "poison1", "1")], failed={0}) == {"poison1": {None}}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"read": 4},
        {"accepted": 1},
        {"accepted": 1, "pending": 1},
        {"failures": []},
        {"failures": [{"position": 1, "reason": "no"}]},
    ],
)
def test_the_model_sees_rows_that_are_unaccounted_for(change: dict[str, Any]) -> None:
    counts = {"read": 3, "accepted": 2, "coalesced": 0, "failed": 1, "pending": 0}
    report = {**counts, "failures": [{"position": 2, "reason": "no"}], **change}

    assert bool(check_report(report, 3, must_fail={2}, may_fail={2})) is bool(change)


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.long)])
async def test_bad_rows_fail_by_themselves_typed_and_unseen(count: int) -> None:
    users = AudienceUsers(FakeService().pipeline, "a1", "c1")

    report, failures = await upload_bad_rows(users, count, seed=1)

    assert count_problems(report, failures) == {
        "rows": count,
        "failed": count,
        "accepted": 0,
        "failed twice": 0,
        "untyped": 0,
        "leaks": 0,
    }
