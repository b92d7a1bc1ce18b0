"""Runs jobs from their specs."""

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, overload

import attrs

from svc_async.batch.journal.journal import JournalPath, create_ledger
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.lists.do_not_reach_users import DoNotReachUsers
from svc_async.batch.report import Report
from svc_async.batch.settings import Observers
from svc_async.batch.sync.report import SyncReport
from svc_async.cancellation import in_thread
from svc_async.errors import InvalidArgument
from svc_async.jobs.spec import JobSpec, ListKind, Operation, SyncSpec, TargetSpec, UploadSpec, to_plain
from svc_async.session import Session
from svc_async.sources.detect import STANDARD_INPUT, open_feed, open_source
from svc_async.sources.product_attributes import PRODUCT_KEYS, PRODUCTS
from svc_async.sources.source import ProductFeed, ReplayableRows, ReplayableSource, UnparsedRow, UserSource
from svc_async.users.names import USERS
from svc_async.users.tables import Rows

__all__ = ["check_access", "open_rows", "run"]

_DO_NOT_REACH = USERS.restrict_to(["email", "phone_number"])  # contract DNR-03
_SOURCES: Mapping[tuple[ListKind, Operation], Callable[..., ReplayableSource]] = MappingProxyType(
    {
        ("audience", "upload"): partial(open_source, vocabulary=USERS),
        ("audience", "remove"): partial(open_source, vocabulary=USERS),
        ("do_not_reach_list", "upload"): partial(open_source, vocabulary=_DO_NOT_REACH),
        ("do_not_reach_list", "remove"): partial(open_source, vocabulary=_DO_NOT_REACH),
        ("catalog", "upload"): partial(open_feed, vocabulary=PRODUCTS),
        ("catalog", "remove"): partial(open_feed, vocabulary=PRODUCT_KEYS),
    }
)


def open_rows(spec: JobSpec) -> ReplayableSource:
    """Open the source of a job.

    Raises:
        InvalidArgument: its format, mapping or encoding does not fit.
        UnusableFile: the file cannot be read.
    """
    source = spec.source
    open_ = _SOURCES[spec.target.kind, _operation(spec)]
    reading = attrs.asdict(source)
    return open_(reading.pop("path"), **reading)


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


@overload
async def run(
    spec: UploadSpec,
    session: Session,
    *,
    source: ReplayableSource | None = None,
    journal: JournalPath | None = None,
    observers: Observers | None = None,
) -> Report: ...
@overload
async def run(
    spec: SyncSpec,
    session: Session,
    *,
    source: ReplayableSource | None = None,
    journal: None = None,
    observers: Observers | None = None,
) -> SyncReport: ...
async def run(
    spec: JobSpec,
    session: Session,
    *,
    source: ReplayableSource | None = None,
    journal: JournalPath | None = None,
    observers: Observers | None = None,
) -> Report | SyncReport:
    """Run a job and return its report.

    Args:
        spec: the job.
        session: sends the requests; its credentials must have access to the list.
        source: the source of the spec, if it is open already; it stays open.
        journal: the journal of an upload or removal, as in `users.upload`. The spec is stored in a new one, so
            that `svc-async job resume` can continue the job.
        observers: functions that are called as the job proceeds; for a sync, they may be `SyncObservers`.

    Raises:
        InvalidArgument: a setting or the source cannot be used; nothing was sent.
        UnusableFile: the source, the journal or the state cannot be read or written; nothing was sent.
        BatchError: the job could not be finished; `report` says what became of the rows that were read.
    """
    spec.target.check()
    keywords = {**_settings(spec), **attrs.asdict(observers or Observers(), recurse=False)}
    async with nullcontext(source) if source is not None else _open_checked(spec) as rows:
        if isinstance(spec, SyncSpec):
            return await _sync(spec, session, rows, keywords)
        note = await _write_note(spec, rows) if journal is not None and _is_new(journal) else None
        return await _upload(spec, session, rows, note, {"journal": journal, **keywords})


def _is_new(journal: JournalPath) -> bool:
    return not isinstance(journal, str | Path) or not Path(journal).exists()


async def _write_note(spec: UploadSpec, source: ReplayableSource) -> Mapping[str, Any]:
    """Describe a job as `svc-async` reads it: the spec, with a path that holds in any folder, and the source."""
    found = attrs.evolve(spec, source=attrs.evolve(spec.source, path=_make_absolute(spec.source.path)))
    return {"spec": to_plain(found), "fingerprint": await source.fingerprint()}


def _make_absolute(path: str) -> str:
    return path if path == STANDARD_INPUT else os.path.abspath(path)  # noqa: PTH100 - `resolve` follows links


@asynccontextmanager
async def _open_checked(spec: JobSpec) -> AsyncGenerator[ReplayableSource]:
    """Open the source of a job, and check it before anything is sent."""
    with closing(await in_thread(lambda: open_rows(spec), undo=_close)) as source:
        await source.check()
        yield source


async def _close(source: ReplayableSource) -> None:
    source.close()


async def _upload(
    spec: UploadSpec,
    session: Session,
    source: ReplayableSource,
    note: Mapping[str, Any] | None,
    keywords: Mapping[str, Any],
) -> Report:
    is_piped = spec.source.path == STANDARD_INPUT and keywords["journal"] is not None
    ledgers = partial(create_ledger, note=note)
    if spec.target.kind == "catalog":
        products = attrs.evolve(session.product_catalog(str(spec.target.list_id)).products, create_ledger=ledgers)
        rows: Iterable[Any] = cast("ProductFeed", source).products()
        if spec.operation == "remove":
            keys = ReplayableRows(lambda: [_product_keys(rows)])
            return await products.delete(keys.once() if is_piped else keys, **keywords)
        return await products.upsert(_read_once(rows) if is_piped else rows, **keywords)
    users = attrs.evolve(_users(spec.target, session), create_ledger=ledgers)
    members = cast("UserSource", source).rows()
    if is_piped and isinstance(members.rows, Iterable):
        members = Rows(members.columns, _read_once(members.rows))  # so the journal spools them
    if spec.operation == "remove":
        return await users.remove(members, **_reading(spec), **keywords)
    times = {"effective_at": spec.effective_at, "expires_at": spec.expires_at}
    given: dict[str, Any] = {name: moment for name, moment in times.items() if moment is not None}
    return await users.upload(members, **_reading(spec), **given, **keywords)


async def _sync(spec: SyncSpec, session: Session, source: ReplayableSource, keywords: Mapping[str, Any]) -> SyncReport:
    state = spec.state or session.state
    if state is None:
        raise InvalidArgument("state", "must be given, unless the session has a shared state")
    sync = attrs.asdict(spec.sync)
    if spec.target.kind == "catalog":
        del sync["refresh_within"]  # products do not expire
        products = session.product_catalog(str(spec.target.list_id)).products
        return await products.sync(cast("ProductFeed", source).products(), state=state, **sync, **keywords)
    users = session.account(str(spec.target.account_id)).custom_audience(str(spec.target.list_id)).users
    members = cast("UserSource", source).rows()
    return await users.sync(members, state=state, **_reading(spec), **sync, **keywords)


def _operation(spec: JobSpec) -> Operation:
    return spec.operation if isinstance(spec, UploadSpec) else "upload"


def _read_once(rows: Iterable[Any]) -> Iterator[Any]:
    return rows.once() if isinstance(rows, ReplayableRows) else iter(rows)


def _reading(spec: JobSpec) -> Mapping[str, Any]:
    return {"phone_region": spec.phone_region, "bad_identifiers": spec.bad_identifiers}


def _settings(spec: JobSpec) -> dict[str, Any]:
    settings = attrs.asdict(spec.settings)
    if spec.target.kind == "catalog":
        del settings["users_per_operation"]
    return settings


def _users(target: TargetSpec, session: Session) -> AudienceUsers | DoNotReachUsers:
    account = session.account(str(target.account_id))
    if target.kind == "audience":
        return account.custom_audience(str(target.list_id)).users
    return account.do_not_reach_list(str(target.list_id)).users


def _product_keys(rows: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    for row in rows:
        yield row if isinstance(row, UnparsedRow) else row.get("product_key")
