"""Merchant feeds in CSV or TSV."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from svc_async.sources.columns import IGNORED, Matching, Vocabulary
from svc_async.sources.csv_table import CsvTable
from svc_async.sources.decoding import Texts
from svc_async.sources.files import Input, as_input, digest_of
from svc_async.sources.line_index import Lines
from svc_async.sources.product_attributes import PRODUCTS, tidied
from svc_async.sources.source import Replay, UnparsedRow

__all__ = ["CsvFeed"]


class CsvFeed:
    """A feed of products as a table with a header.

    A column is known by the attribute's name, in any case, with spaces or dashes for underscores and with or without
    `g:`; else by `mapping`. Other columns are left out. Blank cells are absent. A row with more cells than the header
    fails, and says so.

    Args:
        file: its path, or an input.
        mapping: from names of columns to attributes; `-` ignores a column.
        encoding: any of Python's, if it is not Unicode.
        delimiter: what stands between cells, if it is not to be told from the header.
        vocabulary: what columns may hold.

    Attributes:
        name: its path.
        columns: the attributes that the file has a column for.
        ignored: the names of the columns that are left out.
        size: bytes of the file.
        exhausted: whether `products()` has given its last product.

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
        vocabulary: Vocabulary = PRODUCTS,
    ) -> None:
        self._input = as_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.exhausted = False
        self._texts = Texts(self._input, encoding=encoding)
        self._table = CsvTable(self._texts, delimiter=delimiter)
        header = [_bare(name) for name in self._table.header]
        mapping = {_bare(name): key for name, key in (mapping or {}).items()}
        chosen = Matching(self.name, header, mapping, vocabulary).chosen()
        self.columns: Sequence[str] = tuple(key for key in chosen if key != IGNORED)
        self.ignored: Sequence[str] = tuple(name for name, key in zip(header, chosen, strict=True) if key == IGNORED)
        self._wanted = [index for index, key in enumerate(chosen) if key != IGNORED]
        self._lines = Lines()
        self._reading: Generator[Mapping[str, Any], None, None] | None = None

    @property
    def bytes_read(self) -> int:
        """How far `products()` has come."""
        return self._texts.bytes_read if self._reading is not None else 0

    async def check(self) -> None:
        """Look through the whole file for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the line that is not in its encoding, holds a NUL or opens a quote that is not
                closed.
        """
        await self._table.check()

    def products(self) -> Replay[Mapping[str, Any]]:
        """Give the products from the start, for an uploader; positions count them from 0."""
        return Replay(self._begin)

    def line(self, position: int) -> int:
        """Give the line of the file, counted from 1, on which a product begins that `products()` has given."""
        return self._lines.of(position)

    async def fingerprint(self) -> str:
        """Give a digest of the file and of what its columns mean."""
        return await digest_of(
            self._input, "csv", self._texts.encoding, self._table.delimiter, self.columns, self._wanted
        )

    def close(self) -> None:
        """Let go of the file, if `products()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterator[Mapping[str, Any]]:
        self._stop()
        self._lines = Lines()
        self.exhausted = False
        self._reading = self._given()
        return self._reading

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def _given(self) -> Generator[Mapping[str, Any], None, None]:
        for row in chain.from_iterable(self._table.slices(self._wanted, self._lines)):
            # A row without cells is one that has too many.
            yield self._product(row) if row else UnparsedRow("must not have more cells than the header")
        self.exhausted = True

    def _product(self, row: Sequence[str]) -> Mapping[str, Any]:
        cells = zip(self.columns, row, strict=True)
        return {name: tidied(name, value) for name, value in cells if value.strip()}


def _bare(name: str) -> str:
    """Take off the prefix that attributes have in XML."""
    return name.strip().removeprefix("g:").removeprefix("G:")
