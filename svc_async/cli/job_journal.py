"""What a command does beside sending when it keeps a journal: it says what it is, and goes on with what is its own."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from svc_async.batch.journal.journal import annotate
from svc_async.batch.journal.record import JournalRecord
from svc_async.cli.options import JournalOptions
from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import ReplayableSource
from svc_async.users.encoding import Rows

__all__ = ["Journaling", "PutAside", "recorded_command", "typed"]

T = TypeVar("T")

_NOT_KEPT = frozenset({"json", "journal", "put_aside"})


def typed(words: Sequence[str], file: Path, *options: Any, **more: str | None) -> Sequence[str]:
    """Write a command as one types it, whatever folder one is in; options that have their default are left out.

    None of them is a secret: credentials are taken from a profile or the environment.
    """
    given: dict[str, Any] = {name: value for name, value in more.items() if value is not None}
    for each in options:
        defaults = type(each)()
        fields = attrs.asdict(each, recurse=False)
        given |= {name: value for name, value in fields.items() if value != getattr(defaults, name)}
    kept = [option for name, value in given.items() if name not in _NOT_KEPT for option in _option(name, value)]
    return [*words, _absolute(file), *kept]


def _option(name: str, value: Any) -> Sequence[str]:
    option = f"--{name.replace('_', '-')}"
    if value is True:
        return [option]
    if isinstance(value, list):
        return [f"{option}={each}" for each in value]
    return [f"{option}={_absolute(value) if isinstance(value, Path) else value}"]


def _absolute(path: Path) -> str:
    return str(path) if str(path) == STANDARD_INPUT else os.path.abspath(path)  # noqa: PTH100 - links stay links


def recorded_command(path: Path) -> Sequence[str]:
    """Give the command with which a job was begun, as it goes on with its journal.

    Raises:
        InvalidArgument: there is none, or the file is no journal.
    """
    record = JournalRecord.read(path)
    command = record.note.get("command")
    if not isinstance(command, list):
        raise InvalidArgument("journal", f"{path} was not begun by a command; make the same call again")
    aside = ["--put-aside"] if record.spooled else []
    return [*map(str, command), f"--journal={os.path.abspath(path)}", *aside]  # noqa: PTH100


class PutAside:
    """Standard input that an earlier run has read to its end: its rows were put aside beside the journal.

    Attributes:
        name: what people call it.
        columns: any; the rows are encoded already.
        ignored: none.
        size: one unit, which has been read.
        bytes_read: as much.
        exhausted: it is.
    """

    name = "standard input"
    columns = ("email",)
    ignored: Sequence[str] = ()
    size = bytes_read = 1
    exhausted = True

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint

    async def check(self) -> None:
        """Find nothing: it was checked when it was read."""

    async def fingerprint(self) -> str:
        """Give the digest of what was read."""
        return self._fingerprint

    def find_line(self, position: int) -> None:
        """Give none: what was put aside are rows."""

    def rows(self) -> Rows:
        """Give none: the uploader has them."""
        return Rows(self.columns, ())

    def products(self) -> Iterable[Mapping[str, Any]]:
        """Give none: the uploader has them."""
        return ()

    def close(self) -> None:
        """Nothing is held."""


@attrs.frozen(kw_only=True)
class Journaling:
    """The journal of a command.

    Attributes:
        path: the file; None if it keeps none.
        note: what the command is.
        record: what the file held when the command was given; None if there was nothing.
        put_aside: stands for standard input, if its rows were put aside by an earlier run.
        is_piped: whether the rows come from standard input.
    """

    path: Path | None = None
    note: Mapping[str, Any] = attrs.field(factory=dict)
    record: JournalRecord | None = None
    put_aside: PutAside | None = None
    is_piped: bool = False

    @classmethod
    def of(
        cls, options: JournalOptions, *, sandbox: bool, file: Path, command: Sequence[str], **note: Any
    ) -> "Journaling":
        """Open the journal of a command, if it keeps one.

        Raises:
            InvalidArgument: the journal is in use, is of something else, or cannot be read.
        """
        path = options.journal
        if path is None:
            return cls()
        if sandbox:
            raise InvalidArgument("--journal", "must not be given with --sandbox, which forgets what it was sent")
        record = JournalRecord.read(path) if path.exists() and path.stat().st_size else None
        journaling = cls(
            path=path,
            note={"command": list(command), "file": _absolute(file), **note},
            record=record,
            put_aside=_put_aside(record) if options.put_aside else None,
            is_piped=str(file) == STANDARD_INPUT,
        )
        journaling._check()
        return journaling

    @property
    def begun(self) -> JournalRecord | None:
        """What earlier runs have left; None if there were none."""
        return self.record if self.record is not None and self.record.begun_at is not None else None

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.begun is not None and self.begun.finished

    def _check(self) -> None:
        if self.record is not None and self.record.running:
            raise UnusableFile("journal", self.record.path, "is locked by another job")
        if self.begun is None:
            return
        if not self.begun.note:
            raise InvalidArgument("journal", f"{self.path} was not begun by a command; make the same call again")
        for name in ("what", "ids"):
            if self.begun.note.get(name) != self.note[name]:
                was = f"{self.begun.note.get('what')} {_named(self.begun.note.get('ids', {}))}"
                raise UnusableFile("journal", self.begun.path, f"belongs to another job: {was}")

    async def begin(self, origin: ReplayableSource) -> None:
        """Make sure that the file is the one with which the job was begun, or write down what begins now.

        Raises:
            InvalidArgument: it is another one, or was changed.
        """
        if self.path is None:
            return
        fingerprint = await origin.fingerprint()
        if self.begun is None:
            await annotate(self.path, {**self.note, "fingerprint": fingerprint})
        elif self.begun.note.get("fingerprint") != fingerprint:
            was = self.begun.note.get("file")
            what = "standard input" if was == STANDARD_INPUT else f"{was}, or of what it held before it was changed"
            raise InvalidArgument(
                "journal", f"{self.path} is of a job with {what}; a new job needs a new journal; nothing was sent"
            )

    def people(self, rows: Rows) -> Rows:
        """Give rows as the uploader is to take them."""
        return Rows(rows.columns, self.once(rows.rows)) if isinstance(rows.rows, Iterable) else rows

    def once(self, rows: Iterable[T]) -> Iterable[T]:
        """Give rows that come from standard input as such that can be read only once, so that they are put aside."""
        return iter(rows) if self.is_piped and self.path is not None else rows


def _put_aside(record: JournalRecord | None) -> PutAside | None:
    return PutAside(str(record.note.get("fingerprint"))) if record is not None and record.spooled else None


def _named(ids: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in ids.items())
