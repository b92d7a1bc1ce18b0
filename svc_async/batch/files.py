"""Rows that must be opened, such as those of a file: off the event loop, before anything is sent."""

import os
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname

from svc_async.batch.source import RowSource, Slice
from svc_async.cancellation import in_thread
from svc_async.errors import Hint, InvalidArgument, SvcError
from svc_async.sources.detect import STANDARD_INPUT
from svc_async.sources.source import Source

__all__ = ["open_file", "read_file", "read_opened"]

T = TypeVar("T")
SourceT = TypeVar("SourceT", bound=Source)

_SUFFIXES = frozenset(
    {".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".parquet", ".xml", ".gz", ".bz2", ".xz", ".zst"}
)
_find_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://").match


def read_file(
    name: str, file: str | Path, open_: Callable[[Path], SourceT], read: Callable[[SourceT], RowSource]
) -> RowSource:
    """Return the rows of a file as the source of a job.

    Args:
        name: the argument that gives the file.
        file: its path, or a `file://` URL.
        open_: opens it; may block.
        read: returns the source of its rows.

    Raises:
        InvalidArgument: the file is not a local one.
    """
    return read_opened(partial(_open, _parse_path(name, file), open_), read, replayable=True)


def read_opened(
    open_: Callable[[], AbstractAsyncContextManager[T]], read: Callable[[T], RowSource], *, replayable: bool
) -> RowSource:
    """Return rows as the source of a job, which opens them when it begins.

    Args:
        open_: opens them.
        read: returns the source of what is open.
        replayable: whether they can be read again.
    """
    rows = _OpenedRows(open_, read)
    return RowSource(rows.read, replayable=replayable, open=rows.open)


@asynccontextmanager
async def open_file(name: str, file: str | Path, open_: Callable[[Path], SourceT]) -> AsyncGenerator[SourceT]:
    """Open a file, check it, and close it afterwards.

    Args:
        name: the argument that gives the file.
        file: its path, or a `file://` URL.
        open_: opens it; may block.

    Raises:
        InvalidArgument: the file is not a local one.
        UnusableFile: the file cannot be read.
    """
    async with _open(_parse_path(name, file), open_) as source:
        yield source


@asynccontextmanager
async def _open(path: Path, open_: Callable[[Path], SourceT]) -> AsyncGenerator[SourceT]:
    async with AsyncExitStack() as stack:
        try:
            source = stack.enter_context(closing(await in_thread(lambda: open_(path), undo=_close)))
            await source.check()
        except SvcError as error:
            raise error.with_traceback(None)  # noqa: B904 - it is the same one, without frames that hold rows
        yield source


async def _close(source: Source) -> None:
    source.close()


class _OpenedRows(Generic[T]):
    """Rows that can be read while they are open."""

    def __init__(self, open_: Callable[[], AbstractAsyncContextManager[T]], read: Callable[[T], RowSource]) -> None:
        self._open = open_
        self._read = read
        self._slices: RowSource | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        async with self._open() as opened:
            self._slices = self._read(opened)
            yield

    def read(self) -> AsyncGenerator[Slice, None]:
        if self._slices is None:
            raise RuntimeError("the rows are not open")
        return self._slices.read()


def _may_be_email(text: str) -> bool:
    """Return whether a text is rather an e-mail address than the name of a file, which a message would quote."""
    if "@" not in text or "/" in text or "\\" in text:
        return False
    is_file = os.path.exists(text)  # noqa: PTH110 - Path.exists raises where a name is too long
    return not is_file and Path(text).suffix.lower() not in _SUFFIXES


def _parse_path(name: str, file: str | Path) -> Path:
    if str(file) == STANDARD_INPUT:
        raise InvalidArgument(name, "must be the path of a file; pass the rows of standard input as an iterable")
    if isinstance(file, str) and _may_be_email(file):
        del file  # it may be personal data, which is quoted nowhere
        raise InvalidArgument(name, "must be rows, or the path of a file: pass one row as a list of one mapping")
    scheme = _find_scheme(file) if isinstance(file, str) else None
    if scheme is None:
        return Path(file)
    url = urlsplit(str(file))
    if url.scheme == "file" and url.netloc in {"", "localhost"}:
        return Path(url2pathname(url.path))
    raise InvalidArgument(
        name,
        f"must be a path, a file:// URL or an iterable: {url.scheme}:// is not fetched",
        hint=Hint.DOWNLOAD_IT,
    )
