"""Lists the rows that failed in a CSV file, as they fail."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from svc_async.batch.report import KEPT_FAILURES, Failure
from svc_async.errors import InvalidArgument
from svc_async.printable import clean_cell
from svc_async.sources.source import ReplayableSource
from svc_async.users.identifiers import IDENTIFIERS

__all__ = ["FailureList", "count_reasons", "split_reason"]

_HEADER = ("position", "line", "field", "reason", "code")
_REASONS = 100
"""Reasons that are counted apart; a service may have a new one for every row."""
_FOUND_AGAIN = frozenset({"INVALID_ROW", "TOO_LARGE"})


class FailureList:
    """A file of failures.

    It is created at once, so that a path that cannot be written shows early, and deleted if nothing failed. The list of
    an earlier job is replaced, that of an earlier run of the same job is continued; any other file is left unchanged.

    Args:
        path: the file.
        source: finds the line of a row.
        lasting: whether each failure is written at once, so that it survives a kill.
        again: whether an earlier run has begun the job; its list stays unchanged until `resume`.

    Attributes:
        path: the file.
        count: how many rows failed.
        reasons: how many of them for each reason.

    Raises:
        InvalidArgument: the file holds something else, or cannot be written.
    """

    def __init__(self, path: Path, source: ReplayableSource, *, lasting: bool = False, again: bool = False) -> None:
        self.path = path
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self._source = source
        self._known: frozenset[int] = frozenset()
        self._unlisted: Sequence[Failure] = ()
        self._is_touched = not again
        self._buffering = 1 if lasting else -1
        self._file = self._open("a" if again else "w")
        self._writer = csv.writer(self._file)
        if not again:
            self._writer.writerow(_HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for failure in self._unlisted:
            self._list(failure, self._source.find_line(failure.position) if self._source.exhausted else None)
        self._file.close()
        if (self._is_touched and not self.count) or not self.path.stat().st_size:
            self.path.unlink()

    def resume(self, failures: Sequence[Failure], *, finished: bool) -> None:
        """Continue the list of earlier runs.

        Rows that break a rule are found again, and listed anew; what the service has refused stays as it was listed.

        Args:
            failures: the failures in the journal. Those that are not listed yet are added, since a list may have been
                deleted; a job that is not finished announces them again.
            finished: whether no failure will be announced any more.
        """
        self._is_touched = True
        known = {str(failure.position) for failure in failures}
        knows_all = len(failures) < KEPT_FAILURES
        listed: set[str] = set()
        self._file.close()
        fresh = self.path.with_name(f"{self.path.name}.new")
        with fresh.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(_HEADER)
            for row in _rows(self.path):
                # The journal decides: a kill may come between the listing of a refusal and its commit.
                if row[0] in known or not (knows_all or (row[-1] in _FOUND_AGAIN and not finished)):
                    writer.writerow(row)
                    self._count(f"{row[2]} {row[3]}".strip())
                    listed |= {row[0]} & known
        fresh.replace(self.path)
        self._file = self._open("a")
        self._writer = csv.writer(self._file)
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
        self._writer.writerow(("", "", "", clean_cell(reason), clean_cell(failure.code)))

    def _list(self, failure: Failure, line: int | None) -> None:
        field, reason = split_reason(failure)
        self._count(f"{field} {reason}".strip())
        self._writer.writerow((failure.position, line, *map(clean_cell, (field, reason, failure.code))))

    def _count(self, reason: str) -> None:
        self.count += 1
        _count(self.reasons, reason)

    def _open(self, mode: str) -> TextIO:
        try:
            if self.path.exists() and not _is_list(self.path):
                raise InvalidArgument("failures_file", f"must not be {self.path}, which holds something else")
            return self.path.open(mode, encoding="utf-8", newline="", buffering=self._buffering)  # type: ignore[return-value]  # a text mode
        except OSError as error:
            raise InvalidArgument("failures_file", f"cannot be written to {self.path}: {error.strerror}") from None


def split_reason(failure: Failure) -> tuple[str, str]:
    """Return the field that a failure is about, empty if it is about none, and what is wrong."""
    if failure.attribute is not None:
        return failure.attribute, failure.reason
    field, _, reason = failure.reason.partition(" ")
    return (field, reason) if field in IDENTIFIERS else ("", failure.reason)


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
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(line for line in file if line.endswith("\n"))
        next(rows, None)
        yield from (row for row in rows if len(row) == len(_HEADER))


def _is_list(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(100)
    return not first or first.decode("utf-8", "replace").rstrip("\r\n") == ",".join(_HEADER)
