"""Puts a file of people on a do-not-reach list, or takes them off."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import attrs

from svc_async.ads.vocabulary import BatchOperationType
from svc_async.batch.lists.do_not_reach_users import DoNotReachUsers
from svc_async.batch.report import Report
from svc_async.batch.settings import Observers
from svc_async.cli.commands.audience import settings_of
from svc_async.cli.failures import FailureList
from svc_async.cli.job_journal import Journaling, typed
from svc_async.cli.options import JobOptions, JournalOptions, PeopleOptions
from svc_async.cli.upload_command import Job, Work, mapping_of, moment_of, opened, requests_per_minute
from svc_async.errors import InvalidArgument
from svc_async.sources.columns import USERS
from svc_async.sources.detect import open_source
from svc_async.sources.source import UserSource

__all__ = ["run"]

_COLUMNS = USERS.restrict_to(["email", "phone_number"])  # contract DNR-03
_VERBS = {BatchOperationType.UPDATE: "upload", BatchOperationType.DELETE: "remove"}
_TITLES = {
    BatchOperationType.UPDATE: "Upload to a do-not-reach list",
    BatchOperationType.DELETE: "Removal from a do-not-reach list",
}


def run(
    file: Path,
    action: BatchOperationType,
    options: JobOptions,
    people: PeopleOptions,
    journal: JournalOptions,
    *,
    account: str | None,
    list_id: str | None,
    expires_at: str | None = None,
) -> int:
    """Do the whole job and give the exit code."""
    end = moment_of("expires_at", expires_at)
    settings = {**settings_of(options, people), "phone_region": people.phone_region}
    if end is not None:
        settings["expires_at"] = end
    # Unspecified: the limit of this call (contract UNS-dnr-limits); it is that of other writes.
    limit = requests_per_minute("ads.writes")
    journaling = Journaling.of(
        journal,
        sandbox=options.sandbox,
        file=file,
        command=typed(
            ("do-not-reach", _VERBS[action]),
            file,
            options,
            people,
            account=account,
            list=list_id,
            expires_at=expires_at,
        ),
        what=_TITLES[action],
        ids={"account": account, "list": list_id},
        requests_per_minute=limit,
    )
    with closing(_source(file, options, people, journaling)) as source:
        job = Job(file=file, what=_TITLES[action], origin=source, options=options, limit=limit, journaling=journaling)
        return asyncio.run(
            job.run(_opened(options, source, action, settings, journaling, account=account, list_id=list_id))
        )


def _source(file: Path, options: JobOptions, people: PeopleOptions, journaling: Journaling) -> UserSource:
    if journaling.put_aside is not None:
        return journaling.put_aside
    mapping = mapping_of(options.map)
    return open_source(file, format=people.format, mapping=mapping, encoding=options.encoding, vocabulary=_COLUMNS)


@asynccontextmanager
async def _opened(
    options: JobOptions,
    source: UserSource,
    action: BatchOperationType,
    settings: dict[str, Any],
    journaling: Journaling,
    *,
    account: str | None,
    list_id: str | None,
) -> AsyncGenerator[Work]:
    if list_id is None:
        raise InvalidArgument("do_not_reach_list_id", "must be given")
    if account is None and not options.sandbox:
        raise InvalidArgument("account_id", "must be given; `svc-async accounts list` shows yours")
    async with opened(options) as (session, sandbox):
        handle = session.account(sandbox.account_id if account is None else account)
        users: DoNotReachUsers = handle.do_not_reach_list(list_id).users
        send = users.upload if action == BatchOperationType.UPDATE else users.remove

        async def do(observers: Observers, _: FailureList) -> Report:
            rows, told = journaling.people(source.rows()), attrs.asdict(observers, recurse=False)
            return await send(rows, **settings, journal=journaling.path, **told)

        # Unspecified: that whoever may change an account's lists may read the account.
        yield Work(ready=lambda: session.accounts.get(users.account_id), do=do)
