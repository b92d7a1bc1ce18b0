"""The plan of a job on a cluster: the files of its source, and the fragments that workers read.

A plan is a value. A job stores it, so that every run of it reads the same rows at the same places, and refuses to go on
with another source.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import attrs
import msgspec

from svc_async.batch.job import Job, SourceSpec
from svc_async.cluster.files import SourceFile
from svc_async.errors import Hint, InvalidArgument, UnusableFile

__all__ = ["Fragment", "PlannedFile", "SourcePlan"]

_FORMAT = 2
"""The version of the encoding; it changes whenever an older version would misread a plan."""


@attrs.frozen(kw_only=True)
class PlannedFile:
    """A file of a source, and how it is written.

    Attributes:
        source: the file.
        format: its format.
        compressed: whether it is compressed text.
        head: bytes of its text that come before the rows: a byte order mark, a header.
        delimiter: the character between the cells of CSV.
    """

    source: SourceFile
    format: str
    compressed: bool = False
    head: int = 0
    delimiter: str | None = None


@attrs.frozen(kw_only=True)
class Fragment:
    """A part of a file that a worker reads at once.

    Attributes:
        number: its place in the source, counted from 0.
        file: the file.
        start: the first byte of its text, or the first row of its row group.
        end: the byte or the row after the last one; None for a file that is read as a whole.
        before: how many lines of the file, or rows of a Parquet file, come before it.
        group: the row group of a Parquet file.
    """

    number: int
    file: PlannedFile
    start: int = 0
    end: int | None = None
    before: int = 0
    group: int | None = None

    @property
    def name(self) -> str:
        """The name to show to users."""
        if self.end is None:
            return self.file.source.path
        unit = "line" if self.group is None else "row"
        return f"{self.file.source.path} from {unit} {self.before + 1:,}"


@attrs.frozen(slots=False)
class SourcePlan:
    """The files of the source of a job, and its fragments in their order.

    Attributes:
        job: the job.
        files: the files.
        fragments: the fragments; each file that has rows has at least one.
    """

    job: Job
    files: tuple[PlannedFile, ...]
    fragments: tuple[Fragment, ...]

    def to_plain(self) -> dict[str, Any]:
        """Return plain values for JSON, from which `from_plain` makes an equal plan of the job."""
        numbers = {file.source.path: number for number, file in enumerate(self.files)}
        return {
            "format": _FORMAT,
            "source": msgspec.to_builtins(_get_settings(self.job)),
            "files": msgspec.to_builtins(self.files),
            "fragments": [
                [numbers[each.file.source.path], each.start, each.end, each.before, each.group]
                for each in self.fragments
            ],
        }

    @classmethod
    def from_plain(cls, plain: object, job: Job) -> "SourcePlan":
        """Return the plan of a job that plain values describe.

        Raises:
            InvalidArgument: this version cannot read it.
        """
        if not isinstance(plain, Mapping) or plain.get("format") != _FORMAT:
            raise InvalidArgument("plan", f"must be of format {_FORMAT}, which this version reads")
        try:
            source = msgspec.convert(plain.get("source"), SourceSpec)
            files = msgspec.convert(plain.get("files"), tuple[PlannedFile, ...])
            parts = msgspec.convert(plain.get("fragments"), list[tuple[int, int, int | None, int, int | None]])
            fragments = tuple(
                Fragment(number=number, file=files[file], start=start, end=end, before=before, group=group)
                for number, (file, start, end, before, group) in enumerate(parts)
            )
        except (msgspec.ValidationError, IndexError) as error:
            raise InvalidArgument("plan", f"cannot be read: {error}") from None
        source = attrs.evolve(source, path=job.file.path, fingerprint=job.file.fingerprint)
        return cls(attrs.evolve(job, source=source), files, fragments)

    @cached_property
    def digest(self) -> str:
        """A digest of the plan: equal for equal plans."""
        return sha256(msgspec.json.encode(self.to_plain(), order="deterministic")).hexdigest()

    def check_same_source(self, stored: "SourcePlan") -> None:
        """Check that a job that was begun with a stored plan can go on with this one's source.

        Raises:
            UnusableFile: the files, their order or their settings differ; the message names the first difference.
        """
        refuse = partial(UnusableFile, "source", hint=Hint.RESTORE_THE_SOURCE)
        where = self.files[0].source.path
        if _get_settings(self.job) != _get_settings(stored.job):
            raise refuse(where, "is read with other settings than the job was begun with")
        for now, before in zip(self.files, stored.files, strict=False):
            if now.source.path != before.source.path:
                problem = (
                    f"is where the job was begun with {before.source.path}: its files, or their order, have changed"
                )
                raise refuse(now.source.path, problem)
            if now.source != before.source:
                problem = "has changed since the job was begun: its size, ETag or modification time differs"
                raise refuse(now.source.path, problem)
        if len(self.files) != len(stored.files):
            problem = f"belongs to {len(self.files):,} files, but the job was begun with {len(stored.files):,}"
            raise refuse(where, problem)


def _get_settings(job: Job) -> SourceSpec:
    """Return how the source of a job is read, whatever its path: a plan lists the files that this stands for."""
    return attrs.evolve(job.file, path="-", fingerprint=None)
