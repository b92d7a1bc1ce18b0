"""How a job ended, as the command prints it and writes it to a report file."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from svc_async._version import __version__
from svc_async.batch.job import Job
from svc_async.batch.report import Report, Timeline
from svc_async.cli.exit_codes import INTERRUPTED, Exit, describe, exit_of, explain
from svc_async.cli.failures import FailureList, describe_failures
from svc_async.cli.options import RunFlags
from svc_async.cli.output.console import (
    count,
    describe_end,
    format_duration,
    name_count,
    output,
    print_error,
    say,
    show,
)
from svc_async.errors import BatchError, InvalidArgument, UnusableFile
from svc_async.jobs.html_report import JobRecord, report_page
from svc_async.private_files import check_replaceable, report_os_error, write_private
from svc_async.run_files import is_report
from svc_async.sources.columns import select_unmapped
from svc_async.sources.source import Source
from svc_async.users.names import quote_names, shorten_name

__all__ = ["JobOutcome", "check_report", "describe_unused", "list_unused", "write_json_report", "write_report"]

_PARTLY_VALID = {
    False: "  of these with another valid identifier: --bad-identifiers drop sends them",
    True: "sent without an invalid identifier",
}
_COUNTED = {"repeated": "repeated: of rows with the same key, the last one counts"}
"""The meaning of further counts, where their name does not say it."""
_PLANNED = "additions and changes were planned before the rows were checked: they include rows that failed"
_SAMPLED = ("seconds", "accepted", "requests", "rate_limited")
_LISTED = 5
"""Reasons that are printed."""
_NAMED = 100
"""Names of columns that are listed for programs."""


@attrs.frozen(kw_only=True)
class JobOutcome:
    """How a job ended.

    Attributes:
        title: what the job did.
        facts: the list, its host and the source, by what a page calls them.
        begun_at: when this run began.
        file: the source as it was typed.
        name: what messages call the source.
        journal: the name of the journal, if there is one.
        finished_before: whether an earlier run finished the job, so that nothing was sent.
        report: what became of the rows.
        seconds: how long it took.
        drops: whether rows are sent without their invalid identifiers.
        failures: the rows that failed.
        timeline: how the job proceeded.
        requests_per_minute: the service's limit.
        more: further counts.
        compared: how many rows of the file a sync has compared; None if there was no comparison.
        unused: the columns or elements of a feed that are not sent, by what a program reads them as.
        error: what ended it early.
        interrupted: whether a signal ended it.
        advice: what to do next, if it ended early.
        report_command: the command that writes the report from the journal, if it can.
        find_line: finds the line of a row.
        options: how it is printed, and how many failures are tolerated.
    """

    title: str
    facts: Mapping[str, str]
    begun_at: datetime
    file: str
    name: str
    journal: str | None
    finished_before: bool
    report: Report
    seconds: float
    drops: bool
    failures: FailureList
    timeline: Timeline
    requests_per_minute: float
    more: Mapping[str, int]
    compared: int | None = None
    unused: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    error: BatchError | None = None
    interrupted: bool = False
    advice: str | None = None
    report_command: str | None = None
    find_line: Callable[[int], int | None]
    options: RunFlags

    @property
    def exit(self) -> Exit:
        """The exit code."""
        if self.interrupted:
            return Exit.INTERRUPTED
        if self.error is not None:
            return exit_of(self.error)
        if self.failures.problem is not None:
            return Exit.FAILURE
        return Exit.SOME_FAILED if self._failure_share > self.options.max_failure_share else Exit.DONE

    @property
    def is_early(self) -> bool:
        """True if the job ended before it was finished."""
        return self.interrupted or self.error is not None

    @property
    def problem(self) -> Mapping[str, Any] | None:
        """The reason for an early end, or the file that could not be written, ready for JSON; None for a sound end."""
        if self.interrupted:
            return {**INTERRUPTED, "sent": str(self.report.find_sent()), "repeatable": True}
        if self.error is not None:
            return describe(self.error)
        if self.failures.problem is None:
            return None
        return self._describe_unwritten(self.failures.explain())

    def _describe_unwritten(self, message: str) -> Mapping[str, Any]:
        """Return why a file could not be written, ready for JSON."""
        sent = str(self.report.find_sent())
        return {"type": UnusableFile.__name__, "message": message, "sent": sent, "repeatable": False}

    def as_dict(self) -> Mapping[str, Any]:
        """Return plain values, ready for JSON."""
        listed = {}
        if not self.options.omit_failures:
            listed["failures"] = describe_failures(self.report.failures, self.find_line)
        return {
            "file": self.file,
            **self.report.counts,
            **listed,
            **self.more,
            **self.unused,
            "journal": self.journal,
            "finished_before": self.finished_before,
            "failures_file": str(self.failures.path) if self.failures.is_written else None,
            "failures_unlisted": self._unexplained if self.failures.is_written else self.report.failed,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self._rows_per_second, 1),
            "interrupted": self.interrupted,
        }

    def print(self) -> None:
        """Print the counts, and the most frequent reasons of failures."""
        report, compared = self.report, self.compared
        summary = f"{count(report.read, 'row')} read" if compared is None else f"{count(compared, 'row')} compared"
        show(
            (self.name, "bold"),
            f": {summary} in {format_duration(self.seconds)}",
            (f" ({self._rows_per_second:,.0f} rows/s, {count(report.requests, 'request')})", "dim"),
        )
        for number, style, what in _counts(report, drops=self.drops):
            show((f"{number:>13,} ", style), what)
            if what == "failed":
                self._print_reasons()
        for name, number in self.more.items():
            show((f"{number:>13,} ", "dim"), _COUNTED.get(name, name_count(number, name)))
        if report.failed and self.compared is not None and "invalid_rows" not in self.more:
            show(" " * 14, (_PLANNED, "dim"))
        if not self.is_early and not report.read and not any(self.more.values()):
            show(" " * 14, ("the file has no rows", "yellow"))

    def save(self) -> Exit:
        """Write the report file, if one is asked for, and return the exit code of the command.

        The job is what it is if its report cannot be written: what was printed of it stays.
        """
        path = self.options.report
        if path is None:
            return self.exit
        try:
            if path.suffix == ".json":
                write_json_report(path, self._full(), error=self.problem, exit_code=self.exit)
            else:
                write_report(path, self._page())
        except UnusableFile as failed:
            done = "the job has ended early" if self.is_early else "the job itself is done"
            advice = f"; `{self.report_command} --out FILE` writes one" if self.report_command else ""
            message = f"{explain(failed)}; {done}, with the result that is printed{advice}"
            if self.problem is None:
                output.error = self._describe_unwritten(message)
            print_error(message)
            return self.exit if self.is_early else Exit.FAILURE
        if not self.options.as_json:
            say(f"The report is in {path}.")
        return self.exit

    @property
    def _failure_share(self) -> float:
        """The share of the rows that failed; in a sync, of all rows of the file, to which removals do not belong."""
        rows = self.report.read if self.compared is None else self.compared
        failed = self.report.failed
        return min(1.0, failed / rows) if rows else float(failed > 0)

    @property
    def _unexplained(self) -> int:
        """How many failed rows are only counted: a journal lists the first 10,000, and a job may have been cut off."""
        return max(0, self.report.failed - self.failures.count)

    @property
    def _rows_per_second(self) -> float:
        rows = self.report.settled if self.compared is None else self.compared
        return rows / self.seconds if self.seconds else 0.0

    def _print_reasons(self) -> None:
        reasons = self.failures.reasons
        # A single one takes no more room than the number of the others.
        listed = dict(reasons.most_common(_LISTED + (len(reasons) == _LISTED + 1)))
        others = reasons.total() - sum(listed.values())
        for reason, number in {**listed, "for other reasons": others}.items():
            if number:
                show((f"{number:>17,} ", "red"), (reason, "dim"))
        if self._unexplained:
            show((f"{self._unexplained:>17,} ", "red"), ("not listed: only their number is known", "dim"))
        if self.failures.problem is not None:
            show(" " * 14, ("not listed: the list could not be written", "dim"))
        elif self.failures.is_written:
            show(" " * 14, ("listed in ", "dim"), str(self.failures.path))

    def _full(self) -> Mapping[str, Any]:
        return {
            **self.as_dict(),
            "reasons": dict(self.failures.reasons),
            "timeline": [{name: getattr(each, name) for name in _SAMPLED} for each in self.timeline.samples],
            "requests_per_minute_limit": self.requests_per_minute,
        }

    def _page(self) -> str:
        early = "it was interrupted" if self.interrupted else None
        failures = {"Failures": self.failures.path.resolve().as_uri()} if self.failures.is_written else {}
        record = JobRecord(
            title=f"{self.title}: {self.name}",
            state="failed" if self.error else "stopped" if self.interrupted else "finished",
            facts={**self.facts, **({"Journal": self.journal} if self.journal else {})},
            links=failures,
            begun_at=self.begun_at,
            version=__version__,
            report=self.report,
            seconds=self.seconds,
            samples=self.timeline.samples,
            reasons=dict(self.failures.reasons.most_common()),
            requests_per_minute=self.requests_per_minute,
            ended_early=explain(self.error) if self.error else early,
            advice=self.advice,
            more={name.replace("_", " "): number for name, number in self.more.items()},
        )
        return report_page(record)


def check_report(path: Path, option: str = "report") -> None:
    """Check that a report can be written, and may replace what is there: nothing, an empty file or a report.

    Raises:
        InvalidArgument: its name does not end in .html or .json, its folder does not exist, it is something else, or
            cannot be read or written.
    """
    if path.suffix not in {".html", ".json"}:
        raise InvalidArgument(option, "must end in .html or .json")
    if not path.parent.is_dir():
        raise InvalidArgument(option, "must be in a folder that exists")
    try:
        may_replace = not path.exists()
        if path.is_file():
            with path.open("rb") as file:
                first = file.read(512)
            may_replace = not first or is_report(first)
        if may_replace:
            check_replaceable(path)
    except OSError as error:
        raise InvalidArgument(option, f"cannot be written to {path}: {error.strerror}") from None
    if not may_replace:
        raise InvalidArgument(option, f"must not be {path}, which holds something else")


def write_json_report(
    path: Path,
    facts: Mapping[str, Any],
    *,
    error: Mapping[str, Any] | None,
    exit_code: int,
    option: str = "report",
) -> None:
    """Write a report in the shape of what `--json` prints.

    Raises:
        UnusableFile: it cannot be written.
    """
    content = json.dumps(describe_end(output.command, facts, error, exit_code=exit_code), indent=1)
    write_report(path, content, option)


def write_report(path: Path, content: str, option: str = "report") -> None:
    """Write a report that only its owner can read.

    Raises:
        UnusableFile: it cannot be written.
    """
    with report_os_error(option, path, "cannot be written"):
        write_private(path, content.encode())


def _counts(report: Report, *, drops: bool) -> list[tuple[int, str, str]]:
    counts = [(report.accepted, "bold green", "accepted")]
    if report.coalesced:
        counts.append((report.coalesced, "cyan", "coalesced: an equal row is in the same request"))
    if report.failed:
        counts.append((report.failed, "bold red", "failed"))
    if report.partly_valid:
        counts.append((report.partly_valid, "yellow", _PARTLY_VALID[drops]))
    if report.pending:
        counts.append((report.pending, "bold yellow", "pending: read, without a result"))
    if report.in_doubt:
        counts.append((report.in_doubt, "yellow", "  of these in doubt: sent, and possibly applied"))
    return counts


def describe_unused(job: Job, source: Source) -> str | None:
    """Return a note on what is not sent of a feed that was checked; None if that is nothing."""
    names = _find_unused(job, source)
    if not names:
        return None
    what = "columns or elements" if len(names) > 1 else "column or element"
    return (
        f"Not sent: the {what} {quote_names(names)}, since products have no such attribute. "
        "--map NAME=ATTRIBUTE sends one as an attribute, and --map NAME=- leaves out this note."
    )


def list_unused(job: Job, source: Source) -> Mapping[str, Sequence[str]]:
    """Return the first hundred names of what is not sent, ready for JSON; empty if the source is not a feed."""
    if not _is_feed(job):
        return {}
    return {"unused_columns": [shorten_name(name) for name in _find_unused(job, source)[:_NAMED]]}


def _find_unused(job: Job, source: Source) -> Sequence[str]:
    """Return the names of which the user has not said that they are ignored."""
    return select_unmapped(source.ignored, job.file.mapping) if _is_feed(job) else ()


def _is_feed(job: Job) -> bool:
    """Return whether the source has products; of users there is no unknown column, and a deletion needs only keys."""
    return job.target.kind == "catalog" and job.operation != "remove"
