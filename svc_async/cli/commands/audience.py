"""Sends a file of people to an audience, takes them out of it, or makes the audience equal to the file."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.lists.user_list import USER_LIMITS
from svc_async.batch.report import Report
from svc_async.batch.settings import Observers
from svc_async.cli.failures import FailureList
from svc_async.cli.job_journal import Journaling, typed
from svc_async.cli.options import JobOptions, JournalOptions, PeopleOptions, SyncOptions
from svc_async.cli.sync_command import Cost, Syncing
from svc_async.cli.upload_command import Job, Ready, Work, mapping_of, moment_of, opened, requests_per_minute
from svc_async.errors import InvalidArgument
from svc_async.sources.detect import open_source
from svc_async.sources.source import UserSource

__all__ = ["run", "run_sync", "settings_of"]

_LIMIT = "ads.audience_users"
_REMOVAL = 90
"""Bytes of one who is removed, about."""

_VERBS = {BatchOperationType.UPDATE: "upload", BatchOperationType.DELETE: "remove"}
_TITLES = {
    BatchOperationType.UPDATE: "Upload to an audience",
    BatchOperationType.DELETE: "Removal from an audience",
}


@attrs.frozen(kw_only=True)
class _Command:
    """What was typed."""

    file: Path
    account: str | None
    audience: str | None
    options: JobOptions
    people: PeopleOptions
    journaling: Journaling = attrs.field(factory=Journaling)

    def source(self) -> UserSource:
        if self.journaling.put_aside is not None:
            return self.journaling.put_aside
        mapping = mapping_of(self.options.map)
        return open_source(self.file, format=self.people.format, mapping=mapping, encoding=self.options.encoding)

    def do(self, what: str, work: Callable[[UserSource, AudienceUsers, Ready], Work], again: str) -> int:
        """Do a job with the file and give the exit code."""
        # Standard input is read here, since waiting for it would keep an event loop from hearing of a signal.
        with closing(self.source()) as source:
            job = Job(
                file=self.file,
                what=what,
                origin=source,
                options=self.options,
                limit=requests_per_minute(_LIMIT),
                again=again,
                journaling=self.journaling,
            )
            return asyncio.run(job.run(self._opened(lambda users, ready: work(source, users, ready))))

    @asynccontextmanager
    async def _opened(self, work: Callable[[AudienceUsers, Ready], Work]) -> AsyncGenerator[Work]:
        """Open the session and bind the audience."""
        if not self.options.sandbox:
            if self.account is None:
                raise InvalidArgument("account_id", "must be given; `svc-async accounts list` shows yours")
            if self.audience is None:
                raise InvalidArgument("custom_audience_id", "must be given")
        async with opened(self.options) as (session, sandbox):
            account = session.account(sandbox.account_id if self.account is None else self.account)
            audience_id = sandbox.audience_id if self.audience is None else self.audience
            users = account.custom_audience(audience_id).users
            # A wrong host, credential or account shows at once here, and not after the patience of a batch.
            # Unspecified: that whoever may change an account's audiences may read the account.
            yield work(users, lambda: session.accounts.get(users.account_id))


def run(
    file: Path,
    action: BatchOperationType,
    options: JobOptions,
    people: PeopleOptions,
    journal: JournalOptions,
    *,
    account: str | None,
    audience: str | None,
    effective_at: str | None = None,
    expires_at: str | None = None,
) -> int:
    """Send people, or take them out, and give the exit code."""
    times = {
        name: moment
        for name, moment in (
            ("effective_at", moment_of("effective_at", effective_at)),
            ("expires_at", moment_of("expires_at", expires_at)),
        )
        if moment is not None
    }
    settings = {**settings_of(options, people), "phone_region": people.phone_region, **times}
    what = _TITLES[action]
    ids = {"account": account, "audience": audience}
    journaling = Journaling.of(
        journal,
        sandbox=options.sandbox,
        file=file,
        command=typed(
            ("audience", _VERBS[action]), file, options, people, **ids, effective_at=effective_at, expires_at=expires_at
        ),
        what=what,
        ids=ids,
        requests_per_minute=requests_per_minute(_LIMIT),
    )

    def work(source: UserSource, users: AudienceUsers, ready: Ready) -> Work:
        send = users.upload if action == BatchOperationType.UPDATE else users.remove

        async def do(observers: Observers, _: FailureList) -> Report:
            rows, told = journaling.people(source.rows()), attrs.asdict(observers, recurse=False)
            return await send(rows, **settings, journal=journaling.path, **told)

        return Work(ready=ready, do=do)

    command = _Command(
        file=file, account=account, audience=audience, options=options, people=people, journaling=journaling
    )
    return command.do(what, work, "rows that are in already are not added twice.")


def run_sync(
    file: Path,
    options: JobOptions,
    people: PeopleOptions,
    sync: SyncOptions,
    *,
    account: str | None,
    audience: str | None,
) -> int:
    """Make the audience equal to the file and give the exit code."""

    def requests(rows: int, size: int) -> int:
        return max(-(-rows // (USER_LIMITS.operations * people.users_per_operation)), -(-size // USER_LIMITS.size))

    cost = Cost(
        requests=requests,
        removals=lambda rows: requests(rows, rows * _REMOVAL),
        per_minute=requests_per_minute(_LIMIT),
        removals_per_minute=requests_per_minute(_LIMIT),
    )

    def work(source: UserSource, users: AudienceUsers, ready: Ready) -> Work:
        call = partial(
            users.sync,
            source.rows(),
            refresh_within=timedelta(days=sync.refresh_days),
            phone_region=people.phone_region,
            **settings_of(options, people),
        )
        name = f"audience {users.account_id} {users.custom_audience_id}"
        return Syncing(call=call, name=name, options=options, sync=sync, cost=cost).work(ready)

    command = _Command(file=file, account=account, audience=audience, options=options, people=people)
    return command.do("Sync of an audience", work, "it goes on with what is missing.")


def settings_of(options: JobOptions, people: PeopleOptions) -> dict[str, Any]:
    """Give the settings of an upload of people."""
    return {
        "concurrency": options.concurrency,
        "users_per_operation": people.users_per_operation,
        "ordering": options.ordering,
        "quarantine": options.quarantine,
    }
