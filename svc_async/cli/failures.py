"""Lists the rows that failed in a CSV file, as they come."""

import csv
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from svc_async.batch.identifiers import IDENTIFIERS
from svc_async.batch.report import Failure
from svc_async.errors import InvalidArgument
from svc_async.jobs.sources.source import Origin

__all__ = ["FailureList"]

_HEADER = ("position", "line", "field", "reason", "code")
_REASONS = 100
"""Reasons that are counted apart; a service may have a new one for every row."""


class FailureList:
    """A file of failures. It is there from the start, so that one learns early if it cannot be written, and goes if
    nothing failed.

    A list of an earlier job is replaced; any other file is left alone.

    Args:
        path: where.
        source: tells the line of a row.

    Attributes:
        path: where.
        count: how many rows failed.
        reasons: how many of them for each reason.

    Raises:
        InvalidArgument: the file holds something else, or cannot be written.
    """  # noqa: D205 - two sentences that belong together

    def __init__(self, path: Path, source: Origin) -> None:
        self.path = path
        self.count = 0
        self.reasons: Counter[str] = Counter()
        self._source = source
        self._file = self._opened()
        self._writer = csv.writer(self._file)
        self._writer.writerow(_HEADER)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if not self.count:
            self.path.unlink()

    def add(self, failure: Failure) -> None:
        """List a row that failed."""
        field, _, reason = failure.reason.partition(" ")
        if failure.attribute is not None:
            field, reason = failure.attribute, failure.reason
        elif field not in IDENTIFIERS:
            field, reason = "", failure.reason
        self._count(f"{field} {reason}".strip())
        line = self._source.line(failure.position)
        self._writer.writerow((failure.position, line, field, reason, failure.code))

    def add_removal(self, failure: Failure) -> None:
        """List a removal that failed, of something that is not in the file."""
        reason = f"could not be removed: {failure.reason}"
        self._count(reason)
        self._writer.writerow(("", "", "", reason, failure.code))

    def _count(self, reason: str) -> None:
        self.count += 1
        known = reason in self.reasons or len(self.reasons) < _REASONS
        self.reasons[reason if known else "other reasons"] += 1

    def _opened(self) -> TextIO:
        try:
            if self.path.exists() and not _is_list(self.path):
                raise InvalidArgument("failures", f"must not be {self.path}, which holds something else")
            return self.path.open("w", encoding="utf-8", newline="")
        except OSError as error:
            raise InvalidArgument("failures", f"cannot be written to {self.path}: {error.strerror}") from None


def _is_list(path: Path) -> bool:
    with path.open("rb") as file:
        first = file.readline(100)
    return not first or first.decode("utf-8", "replace").rstrip("\r\n") == ",".join(_HEADER)
