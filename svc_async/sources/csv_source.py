"""Files of people in CSV."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from svc_async.sources.columns import IGNORED, PEOPLE, Matching, Vocabulary
from svc_async.sources.csv_table import CsvTable
from svc_async.sources.decoding import Texts
from svc_async.sources.files import Input, as_input, digest_of
from svc_async.sources.line_index import Lines
from svc_async.sources.source import Replay
from svc_async.users.encoding import Rows

__all__ = ["CsvSource"]


class CsvSource:
    """A CSV file with a header.

    The encoding is told from the first bytes, the delimiter (comma, semicolon, tab or bar) from the header. A column is
    known by the service's key or another common name, in any case, with spaces or dashes for underscores; else by
    `mapping`. Blank lines are skipped. A row with fewer cells than the header lacks the last ones; a row with more
    fails.

    Args:
        file: its path, or an input.
        mapping: from names of columns to the service's keys; `-` ignores a column, and `*` stands for all columns
            that are not known.
        encoding: any of Python's, if it is not Unicode.
        delimiter: what stands between cells, if it is not to be told from the header.
        vocabulary: what columns may hold.

    Attributes:
        name: its path.
        columns: the service's keys that the file has a column for.
        ignored: the names of the columns that are left out.
        size: bytes of the file.
        exhausted: whether `rows()` has given its last row.

    Raises:
        InvalidArgument: says why the file cannot be used.
    """

    def __init__(
        self,
        file: str | Path | Input,
        *,
        mapping: Mapping[str, str] | None = None,
        encoding: str | None = None,
        delimiter: str | None = None,
        vocabulary: Vocabulary = PEOPLE,
    ) -> None:
        self._input = as_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.exhausted = False
        self._texts = Texts(self._input, encoding=encoding)
        self._table = CsvTable(self._texts, delimiter=delimiter)
        header = self._table.header
        chosen = Matching(self.name, header, mapping or {}, vocabulary).chosen()
        self.columns: Sequence[str] = tuple(key for key in chosen if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(header, chosen, strict=True) if key == IGNORED)
        self._wanted = [index for index, key in enumerate(chosen) if key != IGNORED]
        self._lines = Lines()
        self._reading: Generator[Iterable[Sequence[str]], None, None] | None = None

    @property
    def bytes_read(self) -> int:
        """How far `rows()` has come."""
        return self._texts.bytes_read if self._reading is not None else 0

    async def check(self) -> None:
        """Look through the whole file for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the line that is not in its encoding, holds a NUL or opens a quote that is not
                closed.
        """
        await self._table.check()

    def rows(self) -> Rows:
        """Give the rows from the start, for an uploader; positions count them from 0."""
        return Rows(self.columns, Replay(self._begin))

    def line(self, position: int) -> int:
        """Give the line of the file, counted from 1, on which a row begins that `rows()` has given."""
        return self._lines.of(position)

    async def fingerprint(self) -> str:
        """Give a digest of the file and of what its columns mean."""
        return await digest_of(
            self._input, "csv", self._texts.encoding, self._table.delimiter, self.columns, self._wanted
        )

    def close(self) -> None:
        """Let go of the file, if `rows()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterator[Sequence[str]]:
        self._stop()
        self._lines = Lines()
        self.exhausted = False
        self._reading = self._slices()
        return chain.from_iterable(self._reading)

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def _slices(self) -> Generator[Iterable[Sequence[str]], None, None]:
        yield from self._table.slices(self._wanted, self._lines)
        self.exhausted = True
