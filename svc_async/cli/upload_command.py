"""Describes and starts the job of a command that sends a file."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from svc_async.batch.job import Job, SourceSpec
from svc_async.batch.settings import DEFAULTS, BatchSettings, SyncSettings
from svc_async.cli.options import (
    BatchFlags,
    JournalFlags,
    RefreshFlags,
    RunFlags,
    SyncFlags,
    WorkerFlags,
    absolute,
)
from svc_async.errors import InvalidArgument

__all__ = ["batch_settings", "parse_time", "source_spec", "start", "sync_settings"]

_LONGEST_REFRESH = 36_500
"""Days; no list keeps its rows for a century."""


def source_spec(file: str | Path, format: str | None, options: BatchFlags) -> SourceSpec:  # noqa: A002 - the option's name
    """Describe the source of a job, so that it is found from any folder."""
    return SourceSpec(
        path=absolute(file),
        format=format,
        mapping=_parse_mapping(options.mapping),
        encoding=options.encoding,
        empty=_split(options.empty) or (),
        header=_split(options.columns),
    )


def batch_settings(options: BatchFlags, users_per_operation: int = DEFAULTS.users_per_operation) -> BatchSettings:
    """Return the settings of a job."""
    return BatchSettings(
        concurrency=options.concurrency,
        users_per_operation=users_per_operation,
        ordering=options.ordering,
        quarantine=options.quarantine,
    )


def sync_settings(options: SyncFlags, refresh: RefreshFlags | None = None) -> SyncSettings:
    """Return the settings of a sync; rows that do not expire are not refreshed."""
    days = refresh.refresh_days if refresh is not None else 0
    if not 0 <= days <= _LONGEST_REFRESH:
        raise InvalidArgument("refresh_within", f"must be from 0 to {_LONGEST_REFRESH}")
    return SyncSettings(
        dry_run=options.dry_run,
        max_removal_share=options.max_removal_share,
        refresh_within=timedelta(days=days),
    )


def parse_time(name: str, text: str | None) -> datetime | None:
    """Parse a time in ISO 8601.

    Raises:
        InvalidArgument: it is not one, or has no time zone.
    """
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(name, "must be a time in ISO 8601, such as 2030-12-31T23:59:59Z") from None
    if moment.tzinfo is None:
        raise InvalidArgument(name, "must have a time zone: add Z for UTC, or an offset such as +02:00")
    return moment


def start(
    job: Job,
    file: str | Path,
    options: RunFlags,
    journal: JournalFlags | None = None,
    workers: WorkerFlags | None = None,
) -> int:
    """Run a job and return the exit code."""
    from svc_async.cli.job_run import run_job  # noqa: PLC0415 - help and usage errors need no engine

    is_on_cluster = workers is not None and workers != type(workers)()  # an option is given
    return run_job(job, str(file), options, journal or JournalFlags(), workers if is_on_cluster else None)


def _split(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(",")) if text is not None else None


def _parse_mapping(pairs: Sequence[str]) -> Mapping[str, str]:
    mapping: dict[str, str] = {}
    for number, pair in enumerate(pairs, 1):
        column, equals, key = pair.rpartition("=")
        if not equals or not column:
            which = f"; number {number} of the {len(pairs)} given is not" if len(pairs) > 1 else ""
            raise InvalidArgument("map", f"must be COLUMN=KEY, such as --map Mail=email{which}")
        mapping[column] = key.strip()
    return mapping
