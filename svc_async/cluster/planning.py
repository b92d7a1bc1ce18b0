"""Plans a source: finds its files, reads those of text once and the metadata of Parquet files, and cuts them up."""

import asyncio
import logging
import re
import threading
from codecs import BOM_UTF8, lookup
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from encodings import normalize_encoding
from functools import partial
from importlib import import_module
from itertools import chain

import attrs

from svc_async.batch.job import Job
from svc_async.cluster.files import SourceFile, SourceUnavailable, StoredFile, list_files
from svc_async.cluster.fragments import open_planned
from svc_async.cluster.plan import Fragment, PlannedFile, SourcePlan
from svc_async.errors import InvalidArgument, UnusableFile
from svc_async.printable import clean
from svc_async.sources.blocks.decoding import MAX_LINE
from svc_async.sources.blocks.files import ByteReader, unusable
from svc_async.sources.csv_source import CsvSource, describe_unmatched
from svc_async.sources.detect import describe_unread, detect_format, read_sample

__all__ = ["Cut", "plan_in_thread", "plan_source"]

_log = logging.getLogger("svc_async")
_LONGEST = 4 * MAX_LINE + 1_048_576
"""Bytes without the end of a record; a character has up to four, and the parser allows a mebibyte more."""

Refuse = Callable[[str], UnusableFile]
"""Makes the error that says what is wrong with a file."""


@attrs.frozen
class Cut:
    """A place between two records.

    Attributes:
        offset: the bytes before it.
        lines: the lines before it.
    """

    offset: int
    lines: int


@attrs.frozen
class JsonRecords:
    """The lines of JSON lines."""

    refuse: Refuse

    def find_end(self, text: bytes, line: int) -> int:
        """Return where the last complete line of a text ends.

        Args:
            text: begins where a line begins.
            line: the number of that line.

        Raises:
            UnusableFile: a line has no end.
        """
        end = text.rfind(b"\n") + 1
        if len(text) - end > _LONGEST:
            line += text.count(b"\n")
            raise self.refuse(f"has a line longer than 4 MiB on line {line}; is this really JSON lines?")
        return end

    def check_last(self, text: bytes, line: int) -> None:
        """Accept anything: the parser refuses what is not an object."""

    def count_lines(self, text: bytes, end: int) -> int:
        """Count the line ends before a place."""
        return text.count(b"\n", 0, end)


class CsvRecords:
    """The records of CSV, with the methods of `JsonRecords`.

    Args:
        delimiter: the character between cells, one byte.
        refuse: makes the error that says what is wrong with the file.

    Attributes:
        refuse: as given.
    """

    def __init__(self, delimiter: bytes, refuse: Refuse) -> None:
        self.refuse = refuse
        between = re.escape(delimiter)
        blanks = b"" if delimiter == b" " else b" *+"  # around quotes, as the parser has them
        after = rb'(?>(?<=[^"%b\r\n ]")%b|(?<=[^"%b\r\n ]""")%b|)' % (between, blanks, between, blanks)
        quoted = rb'%b"[^"]*+(?:""[^"]*+)*+"%b' % (blanks, after)
        cell = rb'(?:%b|(?!%b")[^%b\r\n]++)?+' % (quoted, blanks, between)
        cells = rb"%b(?:%b%b)*+" % (cell, between, cell)
        self._match_records = re.compile(rb"(?:%b(?:\r\n|\n|\r(?=[^\n])))*+" % cells).match
        self._match_record = re.compile(rb"%b(?:\r\n|\n|\r(?=[^\n]))" % cells).match
        self._match_last = re.compile(rb"%b\r?" % cells).fullmatch
        self._match_mistake = re.compile(rb"(?:%b%b)*+%b[^%b\r\n]" % (cell, between, quoted, between)).match

    def find_end(self, text: bytes, line: int) -> int:
        """Return where the last complete record of a text ends.

        Raises:
            UnusableFile: a record cannot be parsed, or has no end.
        """
        if b'"' not in text:
            # A carriage return at the very end may be the first half of a line end.
            end = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
            if len(text) - end > _LONGEST:
                raise self.refuse("has a line longer than 4 MiB; is this really CSV or JSON lines?")
            return end
        found = self._match_records(text)
        end = found.end() if found else 0
        if self._match_mistake(text, end):
            line += self.count_lines(text, end)
            raise self.refuse(describe_unmatched(line))
        if len(text) - end > _LONGEST:
            line += self.count_lines(text, end)
            raise self.refuse(f"has a row longer than 4 MiB on line {line}; is a quote not closed?")
        return end

    def find_record_end(self, text: bytes, start: int) -> int:
        """Return where the record that begins at a place ends, or -1 if that is not certain yet."""
        found = self._match_record(text, start)
        return found.end() if found else -1

    def check_last(self, text: bytes, line: int) -> None:
        """Check what follows the last complete record, up to the end of the file.

        Raises:
            UnusableFile: it is not a record.
        """
        if b'"' in text and not self._match_last(text):
            raise self.refuse(f"has a quote on line {line} that is not closed; is the file truncated?")

    def count_lines(self, text: bytes, end: int) -> int:
        """Count the line ends before a place."""
        lines = text.count(b"\n", 0, end)
        if b"\r" in text:
            lines += text.count(b"\r", 0, end) - text.count(b"\r\n", 0, end)
        return lines


def find_head(blocks: Iterable[bytes], records: CsvRecords, count: int) -> Cut:
    """Return where the first records of a text end: its header, and a line that names the delimiter.

    Args:
        blocks: the text from its start; no more of it is read than needed.
        records: finds its records.
        count: how many records come before the rows.
    """
    text, end = b"", -1
    for block in blocks:
        text += block
        end = _find_head_end(text, records, count) if len(text) >= len(BOM_UTF8) else -1
        if end >= 0:
            break
        if len(text) > _LONGEST:
            raise records.refuse("has no header: line 1 has no end")
    else:
        end = len(text) if count else 0  # the last record need not have a line end
    return Cut(end, records.count_lines(text, end))


def _find_head_end(text: bytes, records: CsvRecords, count: int) -> int:
    """Return where the first records end, or -1 if that is not certain yet."""
    end = len(BOM_UTF8) if text.startswith(BOM_UTF8) else 0
    for _ in range(count):
        end = records.find_record_end(text, end) if end >= 0 else end
    return end


def find_cuts(
    blocks: Iterable[bytes], records: CsvRecords | JsonRecords, *, start: Cut, size: int, lines: int
) -> Iterator[Cut]:
    """Yield where the parts of a text end, the last of them at its end.

    Args:
        blocks: the text, which begins where a record begins.
        records: finds its records.
        start: where it begins.
        size: bytes after which a part ends, with the block in which it reaches them.
        lines: lines after which it ends as well.

    Raises:
        UnusableFile: a record cannot be parsed, or has no end.
    """
    last = at = start
    rest = b""
    for block in blocks:
        text = rest + block
        end = records.find_end(text, at.lines + 1)
        rest = text[end:]
        at = Cut(at.offset + end, at.lines + records.count_lines(text, end))
        if at.offset - last.offset >= size or at.lines - last.lines >= lines:
            yield at
            last = at
    records.check_last(rest, at.lines + 1)
    at = Cut(at.offset + len(rest), at.lines + records.count_lines(rest, len(rest)))
    if at.offset > last.offset:
        yield at


_UNICODE = frozenset({"ascii", "iso8859-1", "utf-8", "utf-8-sig"})
_ASCII = "".join(map(chr, range(128)))


def is_splittable(encoding: str) -> bool:
    """Return whether the bytes of delimiters, quotes and line ends stand for nothing else in an encoding."""
    name = lookup(encoding).name
    if name in _UNICODE:
        return True
    try:
        module = import_module(f"encodings.{normalize_encoding(name)}")
    except ImportError:
        return False
    return str(getattr(module, "decoding_table", ""))[:128] == _ASCII


FRAGMENT_ROWS = 524_288
"""Rows of a fragment: lines of text, or rows of a row group, which is divided if it has more."""
_FRAGMENT_SIZE = 16_777_216
_MAX_WHOLE = 67_108_864
"""Bytes of a file that cannot be divided, when it is not compressed."""
_MAX_FRAGMENTS = 100_000
_MAX_COMPRESSED_FRAGMENTS = 256
"""Fragments of a compressed file, each of which is decompressed from its start."""
_BLOCK = 1_048_576
_THREADS = 8


def plan_source(
    job: Job,
    *,
    fragment_size: int = _FRAGMENT_SIZE,
    block_size: int = _BLOCK,
    stop: threading.Event | None = None,
) -> SourcePlan:
    """Plan the source of a job; blocks, and reads each file of text once.

    Args:
        job: the job. The path of its source is a path, a URL, a folder, or a pattern such as
            `s3://bucket/customers/*.parquet`; the files of a pattern or a folder are read in the order of their paths,
            without those that have no content and those that a run has left there, such as lists of failures.
        fragment_size: bytes of text in a fragment.
        block_size: bytes of text that are read at a time.
        stop: ends the planning when it is set.

    Raises:
        UnusableFile: a file is missing or cannot be used; the message says why, as for a file that is read at once.
        InvalidArgument: a setting cannot be used, or a package for a URL is missing.
        SourceUnavailable: a storage cannot be read.
    """
    files = list_files(job.file.path)
    with ThreadPoolExecutor(_THREADS) as pool:
        plan = partial(
            _plan_file,
            job=job,
            is_only=len(files) == 1,
            fragment_size=fragment_size,
            block_size=block_size,
            stop=stop or threading.Event(),
        )
        parts = list(filter(None, pool.map(plan, files)))
    if not parts:
        raise unusable(job.file.path, "stands for no file with rows to send")
    fragments = [
        attrs.evolve(fragment, number=number)
        for number, fragment in enumerate(chain.from_iterable(each for _, each in parts))
    ]
    if len(fragments) > _MAX_FRAGMENTS:
        rule = f"must have at most {_MAX_FRAGMENTS:,} fragments: give each file more rows, or the job fewer files"
        raise InvalidArgument("source", rule)
    return SourcePlan(job, tuple(file for file, _ in parts), tuple(fragments))


async def plan_in_thread(job: Job) -> SourcePlan:
    """Plan the source of a job in a thread, which ends soon if the caller is cancelled: a program waits for it."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(plan_source, job, stop=stop)
    finally:
        stop.set()


def _plan_file(
    file: SourceFile, *, job: Job, is_only: bool, fragment_size: int, block_size: int, stop: threading.Event
) -> tuple[PlannedFile, list[Fragment]] | None:
    """Plan a file; return None if it is left out as one of several."""
    _check_wanted(file.path, stop)
    stored = StoredFile(file)
    if not is_only and (problem := describe_unread(read_sample(stored))):
        _log.info("left out of the source: %s %s", clean(stored.name), problem)
        return None
    format_ = detect_format(stored, chosen=job.file.format, feed=job.target.kind == "catalog")
    with closing(open_planned(stored, format_, job)) as source:
        planned = PlannedFile(source=file, format=format_)
        planner = _FilePlanner(stored, planned, fragment_size, block_size, stop)
        if format_ == "parquet":
            return planner.divide_row_groups(source.row_groups)
        if format_ == "jsonl":
            return planner.divide_json(source.encoding)
        return planner.divide_csv(source) if format_ in {"csv", "tsv"} else planner.keep_whole()


def _check_wanted(name: str, stop: threading.Event) -> None:
    """Raise SourceUnavailable if nobody waits for the plan any more."""
    if stop.is_set():
        raise SourceUnavailable(name, "is not read any more: the job was cancelled")


@attrs.frozen
class _FilePlanner:
    """Divides one file into fragments, whose numbers are assigned later."""

    stored: StoredFile
    file: PlannedFile
    fragment_size: int
    block_size: int
    stop: threading.Event

    def divide_row_groups(self, row_groups: Sequence[int]) -> tuple[PlannedFile, list[Fragment]]:
        fragments = []
        before = 0
        for group, rows in enumerate(row_groups):
            parts = -(-rows // FRAGMENT_ROWS)
            for part in range(parts):
                start, end = rows * part // parts, rows * (part + 1) // parts
                fragment = Fragment(number=0, file=self.file, start=start, end=end, before=before + start, group=group)
                fragments.append(fragment)
            before += rows
        return self.file, fragments

    def divide_json(self, encoding: str) -> tuple[PlannedFile, list[Fragment]]:
        if not is_splittable(encoding):
            return self.keep_whole()
        return self._divide_text(self.file, JsonRecords(self._refuse), Cut(0, 0))

    def divide_csv(self, source: CsvSource) -> tuple[PlannedFile, list[Fragment]]:
        delimiter = source.delimiter.encode()
        if len(delimiter) != 1 or not is_splittable(source.encoding):
            return self.keep_whole()
        records = CsvRecords(delimiter, self._refuse)
        with closing(self._read_blocks(0)) as blocks:
            head = find_head(blocks, records, source.head)
        file = attrs.evolve(self.file, head=head.offset, delimiter=source.delimiter)
        return self._divide_text(file, records, head)

    def keep_whole(self) -> tuple[PlannedFile, list[Fragment]]:
        """Return one fragment, if the file is small enough."""
        size = 0
        with closing(self._read_blocks(0)) as blocks:
            for block in blocks:
                size += len(block)
                if size > _MAX_WHOLE:
                    rule = "cannot be divided, and has more than 64 MiB; write several files, Parquet, or CSV in UTF-8"
                    raise self._refuse(rule)
        return self.file, [Fragment(number=0, file=self.file)]

    def _divide_text(
        self, file: PlannedFile, records: CsvRecords | JsonRecords, head: Cut
    ) -> tuple[PlannedFile, list[Fragment]]:
        with ByteReader(self.stored) as content:
            file = attrs.evolve(file, compressed=content.is_compressed)
        fragments: list[Fragment] = []
        last = head
        with closing(self._read_blocks(head.offset)) as blocks:
            for cut in find_cuts(blocks, records, start=head, size=self.fragment_size, lines=FRAGMENT_ROWS):
                fragments.append(Fragment(number=0, file=file, start=last.offset, end=cut.offset, before=last.lines))
                last = cut
                if file.compressed and len(fragments) > _MAX_COMPRESSED_FRAGMENTS:
                    rule = f"is compressed and has more than {_MAX_COMPRESSED_FRAGMENTS} fragments"
                    raise self._refuse(f"{rule}; write several files, Parquet, or text that is not compressed")
        return file, fragments

    def _read_blocks(self, start: int) -> Generator[bytes, None, None]:
        """Yield the text from a place, decompressed."""
        with ByteReader(self.stored) as content:
            content.skip(start)
            while block := content.read(self.block_size):
                _check_wanted(self.stored.name, self.stop)
                yield block

    def _refuse(self, problem: str) -> UnusableFile:
        return unusable(self.stored.name, problem)
