"""Opens a fragment of a source with the readers of whole files, so that its rows are what they would read.

The text of a fragment is its header, and the bytes of its rows. Of a Parquet file elsewhere, the columns of one row
group are copied to a sparse file on this machine, at the places where they are in the original.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import BytesIO
from typing import Any, BinaryIO

from svc_async.batch.job import Job
from svc_async.cluster.files import StoredFile
from svc_async.cluster.plan import Fragment
from svc_async.jobs.run import find_vocabulary
from svc_async.sources.blocks.files import ByteReader, Input, TemporaryInput
from svc_async.sources.blocks.parquet_bounds import MAX_FOOTER
from svc_async.sources.detect import open_feed, open_source
from svc_async.sources.parquet import ParquetSource, RowGroupPart
from svc_async.sources.source import ReplayableRows, Source
from svc_async.sources.xml_feed import XmlFeed
from svc_async.users.encoding import SLICE_ROWS

__all__ = ["list_places", "list_reader_settings", "open_fragment", "open_planned", "read_slices"]

_BLOCK = 16_777_216
_TAIL = 65_536
"""Bytes at the end of a Parquet file that nearly always hold its metadata."""
_BEYOND = 128
"""Bytes beyond a column that the library may read, since some writers measured them wrongly."""


@contextmanager
def open_fragment(fragment: Fragment, job: Job) -> Generator[Any]:
    """Open the rows of a fragment, as a `FileSource`; positions count them from 0.

    Raises:
        UnusableFile: the fragment cannot be parsed; the message names the line or row.
        SourceUnavailable: the file cannot be read here and now, or was changed.
    """
    stored = StoredFile(fragment.file.source)
    stored.check_unchanged()
    with ExitStack() as stack:
        if fragment.group is not None:
            source = stack.enter_context(_open_row_group(fragment, fragment.group, stored, job))
        else:
            text = stored if fragment.end is None else _FragmentText.read(fragment, fragment.end, stored)
            source = stack.enter_context(closing(open_planned(text, fragment.file.format, job)))
        yield source
    stored.check_unchanged()


def read_slices(rows: object) -> Iterator[Sequence[Any]]:
    """Yield the rows of a fragment, as its source has them, some at a time."""
    if not isinstance(rows, ReplayableRows):
        raise TypeError("the readers of files return replayable rows")
    return rows.once().slices(SLICE_ROWS)


def list_places(source: Source, fragment: Fragment, first: int, count: int) -> Sequence[int]:
    """Return where rows that were just read are in their file: their lines, or else their numbers, counted from 1."""
    # Products in XML may share a line, so they are counted: a place must tell rows apart.
    start = None if isinstance(source, XmlFeed) else source.find_line(first)
    if start is None:
        start = fragment.before + first + 1
    elif source.find_line(first + count - 1) != start + count - 1:
        return [source.find_line(position) or 0 for position in range(first, first + count)]
    return range(start, start + count)


def open_planned(file: Input, format_: str, job: Job) -> Any:
    """Open a whole file, or the text of a fragment, with the reader of its format.

    Raises:
        UnusableFile: it cannot be used.
        InvalidArgument: the settings cannot be used.
    """
    open_: Callable[..., Any] = open_feed if job.target.kind == "catalog" else open_source
    header = job.file.header if format_ in {"csv", "tsv"} else None
    return open_(file, format=format_, encoding=job.file.encoding, header=header, **list_reader_settings(job))


def list_reader_settings(job: Job) -> Mapping[str, Any]:
    """Return the settings that the readers of all formats have."""
    return {"mapping": job.file.mapping, "vocabulary": find_vocabulary(job), "empty": job.file.empty}


class _FragmentText(Input):
    """The header of a file and the rows of a fragment, as an input.

    Args:
        name: the file.
        content: the text.
        lines_before: the lines of the file that come before it, were it one text.
    """

    def __init__(self, name: str, content: bytes, lines_before: int) -> None:
        self.name = name
        self.size = len(content)
        self.lines_before = lines_before
        self._content = content

    @classmethod
    def read(cls, fragment: Fragment, end: int, stored: StoredFile) -> "_FragmentText":
        file = fragment.file
        if file.compressed:
            head, rows = _read_compressed(stored, file.head, fragment.start, end)
        else:
            head, rows = stored.read(0, file.head), stored.read(fragment.start, end)
        if file.delimiter is not None and not head.removeprefix(BOM_UTF8):
            head += f"sep={file.delimiter}\n".encode()
        # As many lines as the parser counts; the head ends with a line end.
        lines = head.count(b"\n") + head.count(b"\r") - head.count(b"\r\n")
        return cls(stored.name, head + rows, fragment.before - lines)

    def open(self) -> BinaryIO:
        return BytesIO(self._content)


def _read_compressed(stored: StoredFile, head: int, start: int, end: int) -> tuple[bytes, bytes]:
    """Return the bytes before the rows, and those of a fragment; what is between them is decompressed and dropped."""
    with ByteReader(stored) as file:
        first = _read_exactly(file, head)
        file.skip(start - head)
        return first, _read_exactly(file, end - start)


def _read_exactly(file: ByteReader, size: int) -> bytes:
    blocks = []
    while size and (block := file.read(size)):
        size -= len(block)
        blocks.append(block)
    return b"".join(blocks)


@contextmanager
def _open_row_group(fragment: Fragment, group: int, stored: StoredFile, job: Job) -> Generator[ParquetSource]:
    part = RowGroupPart(group=group, first=fragment.start, rows=(fragment.end or 0) - fragment.start)
    with ExitStack() as stack:
        copy = None if stored.is_local else stack.enter_context(closing(_SparseCopy(stored)))
        source = ParquetSource(copy or stored, part=part, **list_reader_settings(job))
        stack.enter_context(closing(source))
        if copy is not None:
            copy.fetch([(start, size + _BEYOND) for start, size in source.list_ranges(group)])
        yield source


class _SparseCopy(TemporaryInput):
    """Parts of a Parquet file elsewhere, in an anonymous temporary file of the same size, as an input.

    Args:
        stored: the original; its metadata is copied at once.
    """

    def __init__(self, stored: StoredFile) -> None:
        super().__init__(stored.name)
        self._stored = stored
        self.size = stored.size
        try:
            self._file.truncate(self.size)
            self._fetch_metadata()
        except BaseException:
            self.close()
            raise

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Copy ranges of bytes, each given by its start and its length."""
        for start, length in ranges:
            end = min(self.size, start + length)
            for at in range(max(0, start), end, _BLOCK):
                self._file.seek(at)
                self._file.write(self._stored.read(at, min(end, at + _BLOCK)))
        self._file.flush()

    def _fetch_metadata(self) -> None:
        tail = min(self.size, _TAIL)
        self.fetch([(self.size - tail, tail)])
        self._file.seek(max(0, self.size - 8))
        length = min(self.size, int.from_bytes(self._file.read(4), "little") + 8)
        if tail < length <= MAX_FOOTER:
            self.fetch([(self.size - length, length - tail)])
