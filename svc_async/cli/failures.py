"""Lists the rows that failed in a CSV file, as they fail.

A run writes `FILE.new`, which it locks, and puts it in the place of the list at its end. The list of the last run stays
until then, and for good if this run does nothing: a dry run, a connection that fails, another run at the same time.
"""

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import has_magic
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from svc_async.batch.job import Job
from svc_async.batch.report import KEPT_FAILURES, Failure
from svc_async.cli.options import is_url
from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.printable import clean_cell
from svc_async.private_files import check_private, check_trusted, keep_group, open_private, open_trusted
from svc_async.run_files import FAILURE_COLUMNS, is_failure_list
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import Source
from svc_async.users.identifiers import IDENTIFIERS

try:
    import fcntl
except ImportError:  # Windows has no such locks: two runs at once must name different files
    fcntl = None  # type: ignore[assignment]  # an optional module

__all__ = ["FailureList", "count_reasons", "describe_failures", "name_failures_file", "split_reason"]

_REASONS = 100
"""Reasons that are counted apart; a service may have a new one for every row."""
_FOUND_AGAIN = frozenset({"INVALID_ROW", "TOO_LARGE"})


class FailureList:
    """A file of failures.

    Entering it only checks and locks: nothing is changed before the first failure, or `resume`. A failure that cannot
    be written is counted all the same, so that a full disk stops no job.

    Args:
        path: the file.
        source: finds the line of a row.
        lasting: whether each failure is written at once, so that it survives a kill.

    Attributes:
        path: the file.
        count: how many rows failed.
        reasons: how many of them for each reason.
        problem: why the list could not be written, if it could not.
    """

    def __init__(self, path: Path, source: Source, *, lasting: bool = False) -> None:
        self.path = path
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self.problem: str | None = None
        self._new = path.with_name(f"{path.name}.new")
        self._source = source
        self._known: frozenset[int] = frozenset()
        self._unlisted: Sequence[Failure] = ()
        self._buffering = 1 if lasting else -1
        self._is_begun = False
        self._is_finished = False

    def __enter__(self) -> Self:
        """Check that the list can be written, and that no other run writes it.

        Raises:
            InvalidArgument: the file holds something else, or cannot be written.
            UnusableFile: another run writes it.
        """
        try:
            check_trusted(self.path)
            check_trusted(self._new)
            if not _is_list(self.path) or not _is_list(self._new):
                raise InvalidArgument("failures_file", f"must not be {self.path}, which holds something else")
            check_private(self.path)
            self._file = self._lock()
        except FileNotFoundError:
            raise self._refuse("its folder does not exist") from None
        except OSError as error:
            raise self._refuse(error.strerror) from None
        self._writer = csv.writer(self._file)
        return self

    def _refuse(self, reason: str | None) -> InvalidArgument:
        rule = f"cannot be written to {self.path}: {reason}; give another path with --failures-file"
        return InvalidArgument("failures_file", rule)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for failure in self._unlisted:
            self._list(failure, self._source.find_line(failure.position) if self._source.exhausted else None)
        try:
            self._put_in_place()
        except OSError as failed:
            self.problem = failed.strerror
            if self._is_begun:  # a part of the new list could be written
                with suppress(OSError):
                    self._new.unlink()
        finally:
            with suppress(OSError):  # what could not be written is known already
                self._file.close()

    @property
    def is_written(self) -> bool:
        """Whether the file lists rows of this job."""
        return bool(self.count) and self.problem is None

    def explain(self) -> str:
        """Return in one line why the list could not be written, and whose list has its name."""
        earlier = "; the file with this name is that of an earlier run" if self.path.exists() else ""
        return f"{self.path} could not be written: {self.problem}{earlier}"

    def finish(self) -> None:
        """Note that the job is finished: without failures, the list of the last run is deleted."""
        self._is_finished = True

    def resume(self, failures: Sequence[Failure], *, finished: bool) -> None:
        """Continue the list of earlier runs of the same job.

        Rows that break a rule are found again, and listed anew; what the service has refused stays as it was listed.

        Args:
            failures: the failures in the journal. Those that are not listed yet are added, since a list may have been
                deleted; a job that is not finished announces them again.
            finished: whether no failure will be announced any more.
        """
        known = {str(failure.position) for failure in failures}
        knows_all = len(failures) < KEPT_FAILURES
        listed: set[str] = set()
        try:
            self._keep_list_of_killed_run()
            for row in _rows(self.path):
                # The journal decides: a kill may come between the listing of a refusal and its commit.
                if row[0] in known or not (knows_all or (row[4] in _FOUND_AGAIN and not finished)):
                    self._write(row)
                    self._count(" ".join(map(_uncell, row[2:4])).strip())
                    listed |= {row[0]} & known
        except OSError as error:
            self.problem = error.strerror
        self._known = frozenset(failure.position for failure in failures)
        self._unlisted = [failure for failure in failures if str(failure.position) not in listed]

    def add(self, failure: Failure) -> None:
        """List a row that failed."""
        if failure.position not in self._known:
            self._list(failure, self._source.find_line(failure.position))

    def add_removal(self, failure: Failure) -> None:
        """List a removal that failed, of something that is not in the file."""
        reason = f"could not be removed: {failure.reason}"
        self._count(reason)
        self._write(("", "", "", clean_cell(reason), clean_cell(failure.code), "", ""))

    def _list(self, failure: Failure, line: int | None) -> None:
        field, reason = split_reason(failure)
        self._count(f"{field} {reason}".strip())
        texts = (field, reason, failure.code, failure.file or "", failure.id or "")
        self._write((failure.position, line, *map(clean_cell, texts)))

    def _count(self, reason: str) -> None:
        self.count += 1
        _count(self.reasons, reason)

    def _write(self, row: Sequence[object]) -> None:
        try:
            if not self._is_begun:
                self._is_begun = True
                self._file.truncate(0)
                self._writer.writerow(FAILURE_COLUMNS)
            if self.problem is None:
                self._writer.writerow(row)
        except OSError as error:
            self.problem = error.strerror

    def _lock(self) -> TextIO:
        """Open the new list and lock it."""
        while True:
            file: TextIO = open(  # noqa: SIM115 - closed when the list is
                self._new, "a", encoding="utf-8", newline="", buffering=self._buffering, opener=open_private
            )
            try:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with suppress(FileNotFoundError):
                    if os.path.samestat(self._new.stat(), os.fstat(file.fileno())):
                        keep_group(file.fileno(), self.path)
                        return file
            except BlockingIOError:
                file.close()
                problem = "is locked by another job"
                raise UnusableFile("failures_file", self.path, problem, repeatable=True) from None
            file.close()  # another run has just put it in place

    def _keep_list_of_killed_run(self) -> None:
        """Put what a killed run has written in the place of the list."""
        if self._is_begun or not self._new.stat().st_size:
            return
        killed = self._file
        self._new.replace(self.path)
        self._file = self._lock()
        self._writer = csv.writer(self._file)
        killed.close()

    def _put_in_place(self) -> None:
        self._file.flush()
        if fcntl is None:  # Windows renames no open file
            self._file.close()
        if self.problem is None and self._is_begun and self.count:
            self._new.replace(self.path)
            return
        if self._is_begun or not self._new.stat().st_size:
            self._new.unlink()
        if self._is_finished and not self.count:
            self.path.unlink(missing_ok=True)


def name_failures_file(job: Job, file: str, *, sandbox: bool = False) -> Path:
    """Return where a job lists its failures: beside its file, or in the current folder for a URL or a pattern.

    The name contains the list and the operation, so that jobs with the same file do not share a list of failures.

    Args:
        job: the job.
        file: the file as it was typed; `-` is standard input.
        sandbox: whether the list is one of an embedded sandbox.
    """
    name = "stdin" if file == STANDARD_INPUT else Path(job.file.path).name
    folder = Path(file).parent
    if is_url(file) or (has_magic(file) and not Path(file).exists()):
        name, folder = _make_safe(name), Path()
    list_id = "sandbox" if sandbox else job.target.list_id
    operation = "delete" if (job.target.kind, job.operation) == ("catalog", "remove") else job.operation
    about = _make_safe(f"{job.target.kind}-{list_id}.{operation}".replace("_", "-"))
    return folder / f"{name}.{about}.failures.csv"


def _make_safe(name: str) -> str:
    """Replace what a file name may not contain."""
    return re.sub(r"[^\w.-]", "-", name, flags=re.ASCII)


def split_reason(failure: Failure) -> tuple[str, str]:
    """Return the field that a failure is about, empty if it is about none, and what is wrong."""
    if failure.attribute is not None:
        return failure.attribute, failure.reason.removeprefix(f"{failure.attribute} ")
    field, _, reason = failure.reason.partition(" ")
    return (field, reason) if field in IDENTIFIERS else ("", failure.reason)


def describe_failures(
    failures: Iterable[Failure], find_line: Callable[[int], int | None] = lambda _: None
) -> Sequence[Mapping[str, Any]]:
    """Return failures as plain values, ready for JSON, with their lines where these are known."""
    return [
        {
            "position": failure.position,
            "line": find_line(failure.position),
            **dict(zip(("field", "reason"), split_reason(failure), strict=True)),
            "code": failure.code,
            **{name: found for name in ("file", "id") if (found := getattr(failure, name)) is not None},
        }
        for failure in failures
    ]


def count_reasons(failures: Iterable[Failure]) -> "Counter[str]":
    """Count failures by their reason."""
    reasons: Counter[str] = Counter()
    for failure in failures:
        _count(reasons, " ".join(split_reason(failure)).strip())
    return reasons


def _count(reasons: "Counter[str]", reason: str) -> None:
    known = reason in reasons or len(reasons) < _REASONS
    reasons[reason if known else "other reasons"] += 1


def _rows(path: Path) -> Iterator[list[str]]:
    """Read the list; a line that a kill has cut short is skipped."""
    if not path.exists():
        return
    with open(path, encoding="utf-8", newline="", opener=open_trusted) as file:
        rows = csv.reader(line for line in file if line.endswith("\n"))
        next(rows, None)
        yield from (row for row in rows if len(row) == len(FAILURE_COLUMNS))


def _is_list(path: Path) -> bool:
    """Return whether a file is a list, or is empty or missing."""
    if not path.exists():
        return True
    with open(path, "rb", opener=open_trusted) as file:
        first = file.readline(100)
    return not first or is_failure_list(first)


def _uncell(cell: str) -> str:
    """Return the text of a cell."""
    return cell[1:] if cell.startswith("'") and clean_cell(cell[1:]) == cell else cell
