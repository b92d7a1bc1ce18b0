"""Tells what the journal of a job says."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
from rich.text import Text

from svc_async.batch.journal.record import JournalRecord
from svc_async.batch.timeline import Sample
from svc_async.cli.console import stdout
from svc_async.cli.exit_codes import Exit
from svc_async.cli.failures import reasons_of
from svc_async.cli.progress import clock_time
from svc_async.clock import SystemClock
from svc_async.errors import InvalidArgument
from svc_async.jobs.html_report import JobRecord, report_page

__all__ = ["report", "status"]

_STARTED_BY_HAND = "Make the same call again with this journal: it goes on where the job had come to."


def status(path: Path, *, as_json: bool) -> int:
    """Say how far a job is and what to do next."""
    record = JournalRecord.read(path)
    now = SystemClock().now()
    if as_json:
        stdout().print(json.dumps(_status(record, now)))
    else:
        for line in _lines(record, now):
            stdout().print(line)
    return Exit.DONE


def report(path: Path, *, out: Path | None) -> int:
    """Write what became of a job."""
    record = JournalRecord.read(path)
    if out is not None and (out.suffix not in {".html", ".json"} or not out.parent.is_dir()):
        raise InvalidArgument("--out", "must end in .html or .json, in a folder that is there")
    if out is not None and out.resolve() == path.resolve():
        raise InvalidArgument("--out", "must not be the journal itself")
    if out is None:
        stdout().print(json.dumps(_report(record)))
    elif out.suffix == ".json":
        out.write_text(json.dumps(_report(record), indent=1), encoding="utf-8")
    else:
        out.write_text(report_page(_page(record)), encoding="utf-8")
    return Exit.DONE


def _state(record: JournalRecord) -> str:
    if record.running:
        return "running"
    if record.finished:
        return "finished"
    return "stopped" if record.begun_at is not None else "not begun"


def _next(record: JournalRecord) -> str:
    """Say what to do."""
    if record.running:
        return "A job is working on it; wait, or stop it with Ctrl-C or SIGTERM."
    if record.finished:
        return "Nothing is left to do. A new job needs a new journal."
    if not record.note:
        return _STARTED_BY_HAND
    return f"Go on with: svc-async job resume {record.path}"


def _status(record: JournalRecord, now: datetime) -> Mapping[str, Any]:
    totals = {name: value for name, value in record.report.as_dict().items() if name != "failures"}
    return {
        "journal": str(record.path),
        "state": _state(record),
        **_job(record),
        **totals,
        "doubts": [{"rows": each.rows, "seconds": _age(each.sent_at, now)} for each in record.doubts],
        "source_ended": record.source_ended,
        "runs": record.runs,
        "seconds": round(record.worked, 3),
        "begun_at": _iso(record.begun_at),
        "active_at": _iso(record.active_at),
        "next": _next(record),
    }


def _job(record: JournalRecord) -> Mapping[str, Any]:
    names = ("what", "file", "ids", "command")
    return {name: record.note.get(name) for name in names}


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat(timespec="seconds") if moment is not None else None


def _age(moment: datetime, now: datetime) -> float:
    return round(max(0.0, (now - moment).total_seconds()), 3)


def _lines(record: JournalRecord, now: datetime) -> Iterator[Text]:
    yield Text.assemble((_title(record), "bold"), f": {_state(record)}")
    for name, value in record.note.get("ids", {}).items():
        yield Text(f"  {name} {value}")
    if record.begun_at is not None and record.active_at is not None:
        runs = f"{record.runs} run{'' if record.runs == 1 else 's'}"
        ago = clock_time(_age(record.active_at, now))
        yield Text(f"  begun {record.begun_at:%Y-%m-%d %H:%M:%S} UTC, {runs}, last activity {ago} ago")
        yield from _totals(record, now)
    yield Text(_next(record))


def _totals(record: JournalRecord, now: datetime) -> Iterator[Text]:
    totals = record.report
    more = "" if record.source_ended else " so far"
    rows = [(totals.read, f"rows read{more}"), (totals.accepted, "accepted")]
    rows += [(totals.coalesced, "repeated: an equal row travelled in the same request")] if totals.coalesced else []
    rows += [(totals.failed, "failed")] if totals.failed else []
    rows += [(totals.pending, "pending: read and without an outcome")] if totals.pending else []
    for number, what in [*rows, (totals.requests, f"request{'' if totals.requests == 1 else 's'}")]:
        yield Text(f"{number:>13,} {what}")
    if record.doubts:
        oldest = clock_time(_age(record.doubts[0].sent_at, now))
        count = f"{len(record.doubts):,} request{'' if len(record.doubts) == 1 else 's'}"
        yield Text(f"{totals.in_doubt:>13,} in doubt: in {count} without an answer, the oldest sent {oldest} ago")


def _title(record: JournalRecord) -> str:
    what, file = record.note.get("what"), record.note.get("file")
    return f"{what}: {file}" if what else str(record.path)


def _reasons(record: JournalRecord) -> Mapping[str, int]:
    """Count failures by their reason; a journal lists the first 10,000, of rows that break a rule only at the end."""
    counted = reasons_of(record.report.failures)
    others = record.report.failed - sum(counted.values())
    return {**dict(counted.most_common()), **({"not listed in the journal": others} if others else {})}


def _report(record: JournalRecord) -> Mapping[str, Any]:
    return {
        "journal": str(record.path),
        "state": _state(record),
        **_job(record),
        **record.report.as_dict(),
        "reasons": _reasons(record),
        "seconds": round(record.worked, 3),
        "runs": record.runs,
        "timeline": [attrs.asdict(moment) for moment in record.timeline],
        "requests_per_minute_limit": record.note.get("requests_per_minute"),
    }


def _page(record: JournalRecord) -> JobRecord:
    return JobRecord(
        title=_title(record),
        report=record.report,
        seconds=record.worked,
        samples=[
            Sample(0.0, 0, 0, 0),
            *(Sample(each.seconds, each.accepted, each.requests, 0) for each in record.timeline),
        ],
        reasons=_reasons(record),
        requests_per_minute=record.note.get("requests_per_minute"),
        ended_early=None if record.finished else f"the job is {_state(record)}",
    )
