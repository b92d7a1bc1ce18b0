"""One job on a cluster for many accounts, each of which has a limit of its own, in real time.

A service in a process of its own notes when requests arrive, and its lists are compared with what was computed beside
them. An account has work until its last request, so its limit should be used until then, whatever the others have.
"""

import json
import os
import random
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import median
from urllib.request import urlopen

import attrs

from benchmarks.recording_service import digest_users, run_recording_service
from svc_async.batch.job import Job, SourceSpec, TargetSpec
from svc_async.batch.report import Report
from svc_async.batch.settings import BatchSettings
from svc_async.cluster.clients import start_local
from svc_async.cluster.runner import run_jobs
from svc_async.engine.origin import SessionOrigin
from svc_async.state import SharedState
from tests.support.postgres import make_schema_name, start_postgres
from tests.support.small_limits import SmallLimits, read_limits

__all__ = ["AccountsResult", "AccountsRun", "run_accounts"]

_REPEATED = 50
"""Each row of this number repeats an earlier one, written differently."""
_VARIABLES = ("SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET", "SVC_ACCESS_TOKEN", "SVC_ACCESS_TOKEN_SECRET")


@attrs.frozen(kw_only=True)
class AccountsRun:
    """What is run.

    Attributes:
        accounts: how many.
        rows: of each account.
        workers: processes that send.
        users: of a request.
        limit: requests of an account per period.
        period: in seconds.
        seed: decides which rows are repeated.
    """

    accounts: int = 200
    rows: int = 5_000
    workers: int = 2
    users: int = 100
    limit: int = 20
    period: float = 60.0
    seed: int = 1

    @property
    def busy(self) -> float:
        """Seconds from the first request of the job in which every account has work: whole periods."""
        requests = self.rows * (_REPEATED - 1) // _REPEATED // self.users
        return (requests - 1) // self.limit * self.period


@attrs.frozen(kw_only=True)
class AccountsResult:
    """What the service noted.

    Attributes:
        run: what was run.
        used: the share of its limit that each account used while all had work.
        started: seconds from the first request of the job to the first one of each account.
        finished: seconds from the first request of the job to the last one of each account.
        refused: how many requests a service would refuse that counts in any period.
        wrong: how many lists differ from what was computed.
        pending: rows that are not settled.
    """

    run: AccountsRun
    used: Sequence[float]
    started: Sequence[float]
    finished: Sequence[float]
    refused: int
    wrong: int
    pending: int

    @property
    def good(self) -> bool:
        """Whether the bar is reached: every list right, no request refused, the limit of every account used."""
        return not (self.refused or self.wrong or self.pending) and min(self.used) >= 0.8

    def describe(self) -> str:
        """Return one line for people."""
        run = self.run
        used = f"{100 * min(self.used):.1f} % (median {100 * median(self.used):.1f} %)"
        finished = f"{min(self.finished):.1f} to {max(self.finished):.1f} s (median {median(self.finished):.1f})"
        return (
            f"{run.accounts} accounts of {run.rows} rows, {run.limit} requests in {run.period:g} s each, {run.workers} "
            f"workers: the last account began after {max(self.started):.1f} s; while all had work, each used at least "
            f"{used} of its limit; they were finished after {finished}; {self.refused} refused, {self.wrong} lists "
            f"wrong, {self.pending} rows pending: {'reached' if self.good else 'MISSED'}"
        )


async def run_accounts(run: AccountsRun) -> AccountsResult:
    """Run a job against a service and a database of their own."""
    accounts = [f"a{number}" for number in range(run.accounts)]
    dice = random.Random(run.seed)
    with tempfile.TemporaryDirectory() as folder, start_postgres() as state_url, run_recording_service() as url:
        os.environ |= dict.fromkeys(_VARIABLES, "accounts")
        os.environ |= {"SVC_BASE_URL": url, "SVC_ADS_URL": url, "SVC_STATE_URL": state_url}
        expected = {_name_list(account): _write_rows(Path(folder, account), run.rows, dice) for account in accounts}
        reports = await _upload([_make_job(Path(folder, account), account) for account in accounts], run)
        with urlopen(f"{url}/lists") as answer:  # noqa: S310, ASYNC210 - our own service, and nothing else runs
            found = json.load(answer)
    return _count(
        run, reports, found["times"], wrong=sum(found["lists"].get(name) != expected[name] for name in expected)
    )


async def _upload(jobs: Sequence[Job], run: AccountsRun) -> Sequence[Report]:
    async with start_local(run.workers) as client, SharedState.open(schema=make_schema_name()) as state:
        await client.register_plugin(SmallLimits(users=run.users, requests=run.limit, period=run.period))
        assert {*(await client.run(read_limits)).values()} == {(run.users, run.limit)}
        return await run_jobs(jobs, cluster=client, journal=state.journal("accounts"), origin=SessionOrigin())


def _make_job(path: Path, account: str) -> Job:
    return Job(
        target=TargetSpec(kind="audience", account_id=account, list_id=_name_list(account)),
        source=SourceSpec(path=str(path)),
        settings=BatchSettings(users_per_operation=1),
    )


def _name_list(account: str) -> str:
    return f"list{account}"


def _write_rows(path: Path, count: int, dice: random.Random) -> list[object]:
    """Write the rows of an account, which no other one has; return how many users there are, and their digest."""
    mails = [f"{path.name}-{number}@example.com" for number in range(count)]
    for number in range(_REPEATED, count, _REPEATED):
        mails[number] = f" {mails[dice.randrange(number)].strip().upper()}"
    path.write_text("email\n" + "".join(f"{mail}\n" for mail in mails))
    hashes = {sha256(mail.strip().lower().encode()).digest() for mail in mails}
    return [len(hashes), digest_users(hashes)]


def _count(
    run: AccountsRun, reports: Sequence[Report], times: Mapping[str, Sequence[float]], *, wrong: int
) -> AccountsResult:
    began = min(map(min, times.values()))
    allowed = run.limit * run.busy / run.period
    return AccountsResult(
        run=run,
        used=[sum(each < began + run.busy for each in sent) / allowed for sent in times.values()],
        started=[min(sent) - began for sent in times.values()],
        finished=[max(sent) - began for sent in times.values()],
        refused=sum(_count_excess(sent, run) for sent in times.values()),
        wrong=wrong,
        pending=sum(report.pending for report in reports),
    )


def _count_excess(sent: Sequence[float], run: AccountsRun) -> int:
    """Return how many requests had as many before them within a period as the limit admits."""
    return sum(later - earlier < run.period for earlier, later in zip(sent, sent[run.limit :], strict=False))
