"""Runs jobs with files from their descriptions."""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, nullcontext
from typing import Any

import attrs

from svc_async.batch.job import Job, TargetSpec
from svc_async.batch.plan import SyncReport
from svc_async.batch.report import Report
from svc_async.cancellation import in_thread
from svc_async.errors import InvalidArgument
from svc_async.lists.audience_users import AudienceUsers
from svc_async.lists.do_not_reach_users import DoNotReachUsers
from svc_async.lists.products import Products
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT, open_feed, open_source
from svc_async.sources.product_attributes import PRODUCT_KEYS, PRODUCTS, UnparsedRow
from svc_async.sources.source import ReplayableRows, Source
from svc_async.users.names import DO_NOT_REACH_USERS, USERS, Vocabulary
from svc_async.users.tables import Rows

__all__ = ["check_access", "find_vocabulary", "open_rows", "run"]


def find_vocabulary(job: Job) -> Vocabulary:
    """Return what the columns of the source of a job may contain."""
    if job.target.kind == "catalog":
        return PRODUCT_KEYS if job.operation == "remove" else PRODUCTS
    return USERS if job.target.kind == "audience" else DO_NOT_REACH_USERS


def open_rows(job: Job) -> Source:
    """Open the source of a job.

    Raises:
        InvalidArgument: its format, mapping or encoding does not fit.
        UnusableFile: the file cannot be read.
    """
    source = job.file
    open_: Callable[..., Source] = open_feed if job.target.kind == "catalog" else open_source
    return open_(
        source.path,
        vocabulary=find_vocabulary(job),
        format=source.format,
        mapping=source.mapping,
        encoding=source.encoding,
        empty=source.empty,
        header=source.header,
    )


async def check_access(target: TargetSpec, session: Session) -> None:
    """Send one small request, so that a wrong host, credential or account shows before a job begins.

    Raises:
        SvcError: the request failed.
    """
    target.check()
    if target.kind == "catalog":
        await session.product_catalog(str(target.list_id)).products.list(count=1).first()
    else:
        # Unspecified: that whoever may change the lists of an account may read the account.
        await session.accounts.get(str(target.account_id))


async def run(job: Job, session: Session, *, source: Source | None = None) -> Report | SyncReport:
    """Run a job and return its report; for a sync, that is a `SyncReport`.

    A new journal stores the job, so that `svc-async job resume` can continue it.

    Args:
        job: the job, with its observers, and with its journal or its cluster.
        session: sends the requests; its credentials must have access to the list.
        source: the source of the job, if it is open already; it stays open. On a cluster, the workers open it.

    Raises:
        InvalidArgument: a setting or the source cannot be used; nothing was sent.
        UnusableFile: the source, the journal or the state cannot be read or written; nothing was sent.
        BatchError: the job could not be finished; `report` says what became of the rows that were read.
    """
    job.target.check()
    if job.operation == "sync" and job.state is None:
        if session.state is None:
            raise InvalidArgument("state", "must be given, unless the session has a shared state")
        job = attrs.evolve(job, state=session.state)
    list_: AudienceUsers | DoNotReachUsers | Products
    if job.target.kind == "catalog":
        list_ = session.product_catalog(str(job.target.list_id)).products
    else:
        account, list_id = session.account(str(job.target.account_id)), str(job.target.list_id)
        is_audience = job.target.kind == "audience"
        list_ = account.custom_audience(list_id).users if is_audience else account.do_not_reach_list(list_id).users
    if job.cluster is not None:
        return await list_.run_job(job)
    async with nullcontext(source) if source is not None else _open_checked(job) as opened:
        if job.journal is not None:
            digest = job.file.fingerprint or await opened.fingerprint()
            path = _make_absolute(job.file.path)
            job = attrs.evolve(job, source=attrs.evolve(job.file, path=path, fingerprint=digest))
        return await list_.run_job(job, _read_rows(job, opened))


def _make_absolute(path: str) -> str:
    """Return a path that holds in any folder; standard input and URLs stay as they are."""
    if path == STANDARD_INPUT or "://" in path:
        return path
    return os.path.abspath(path)  # noqa: PTH100 - `resolve` follows links


@asynccontextmanager
async def _open_checked(job: Job) -> AsyncGenerator[Source]:
    """Open the source of a job, and check it before anything is sent."""
    with closing(await in_thread(lambda: open_rows(job), undo=_close)) as source:
        await source.check()
        yield source


async def _close(source: Source) -> None:
    source.close()


def _read_rows(job: Job, source: Source) -> object:
    """Return the rows of a source; a journal spools those of standard input, which are read once."""
    is_piped = job.file.path == STANDARD_INPUT and job.journal is not None
    if job.target.kind != "catalog":
        members = source.rows()
        if is_piped and isinstance(members.rows, Iterable):
            return Rows(members.columns, _read_once(members.rows))
        return members
    products: Iterable[Any] = source.products()
    rows = ReplayableRows(lambda: [_product_keys(products)]) if job.operation == "remove" else products
    return _read_once(rows) if is_piped else rows


def _read_once(rows: Iterable[Any]) -> Iterator[Any]:
    return rows.once() if isinstance(rows, ReplayableRows) else iter(rows)


def _product_keys(rows: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    for row in rows:
        yield row if isinstance(row, UnparsedRow) else row.get("product_key")
