"""Products and product keys as the rows of a job."""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from svc_async.ads.dicts import ProductDict
from svc_async.ads.products import ATTRIBUTES, PRODUCT_CHECKS, Product, normalize_product
from svc_async.batch.files import open_file, read_file, read_opened
from svc_async.batch.packing.batch import OperationFrame, PackedRows
from svc_async.batch.packing.positions import Positions
from svc_async.batch.report import Failure
from svc_async.batch.slicing import slice_rows
from svc_async.batch.source import RowSource, Slice, check_rows, is_replayable
from svc_async.cancellation import in_thread
from svc_async.errors import InvalidArgument
from svc_async.sources.detect import open_feed
from svc_async.sources.product_attributes import PRODUCT_KEYS, PRODUCTS, UnparsedRow, read_id
from svc_async.sources.rows import ArrowTable, from_arrow, products_from_arrow, replay_as
from svc_async.users.names import quote_name
from svc_async.users.packed import PLAIN, TextUsers
from svc_async.users.tables import Columns
from svc_async.wire.records import describe_mapping, fields_of
from svc_async.wire.writing import to_plain

__all__ = [
    "PRODUCT_GROUP",
    "CheckFirst",
    "Encode",
    "ProductGroup",
    "ProductRows",
    "check_first",
    "check_mapping",
    "encode_checked",
    "encode_unchecked",
    "is_valid",
    "name_row",
    "open_products",
    "read_keys",
    "read_products",
    "read_rows",
]

AnyProduct = ProductDict | Mapping[str, Any] | Product
IterableProducts = Iterable[AnyProduct] | AsyncIterable[AnyProduct]
ProductRows = IterableProducts | ArrowTable | str | Path
"""Mappings with the attributes of a merchant's feed, records, a table of Arrow, or a file."""

_escape = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode

_NO_MAPPING = "must be a mapping of attributes, or a Product"
_NO_KEY = "must be the key of a product, as text"

_NAMED_LENGTH = 100
"""Characters of an id in a failure."""

Encode = Callable[[Any], tuple[str, str]]
"""Returns what tells a row apart, and the row in JSON."""
CheckFirst = Callable[[Any], object]
"""Raises InvalidArgument for a first row that shows that all rows are wrong."""


@attrs.frozen
class ProductGroup:
    """The group of all products: they have nothing in common that is written beside them."""

    overhead: int = 0

    def build_frame(self, now: datetime) -> OperationFrame:  # noqa: ARG002 - nothing is pinned
        """Return an empty frame."""
        return OperationFrame("", "")

    def to_plain(self) -> None:
        """Return None: there is nothing to tell groups apart."""


PRODUCT_GROUP = ProductGroup()


class InvalidRow(Exception):
    """A row breaks rules, of which the first may be about an attribute."""

    def __init__(self, reason: str, attribute: str | None = None) -> None:
        super().__init__(reason if attribute is None else f"{attribute} {reason}")
        self.attribute = attribute


@asynccontextmanager
async def open_products(products: ProductRows) -> AsyncGenerator[IterableProducts]:
    """Open products given as a file or a table of Arrow; others are returned as they are.

    Raises:
        InvalidArgument: the file is not a local one, or a column of the table cannot be read.
        UnusableFile: the file cannot be read.
    """
    if isinstance(products, ArrowTable):
        yield await in_thread(partial(products_from_arrow, products))  # an export may run a query
        return
    if not isinstance(products, str | Path):
        yield products
        return
    async with open_file("products", products, open_feed) as feed:
        yield feed.products()


def read_products(
    products: ProductRows, encode: Encode, slice_size: int, check_first: CheckFirst | None = None
) -> RowSource:
    """Return the source of a job that sends these products.

    Args:
        products: the products.
        encode: encodes one.
        slice_size: products in a slice.
        check_first: checks the first of those that are no file and no table.

    Raises:
        InvalidArgument: they cannot be iterated, are no local file, a column of the table cannot be read, or the first
            product is wrong.
    """
    if isinstance(products, ArrowTable):
        return read_opened(
            partial(open_products, products),
            lambda rows: read_rows("products", rows, encode, slice_size),
            replayable=is_replayable(products),
        )
    if not isinstance(products, str | Path):
        return read_rows("products", products, encode, slice_size, check_first)
    return read_file(
        "products", products, open_feed, lambda feed: read_rows("products", feed.products(), encode, slice_size)
    )


def read_keys(keys: object, slice_size: int) -> RowSource:
    """Return the source of a job that deletes the products with these keys.

    Raises:
        InvalidArgument: they cannot be iterated, or a table of Arrow has no column `product_key`.
    """
    if isinstance(keys, ArrowTable):
        return read_opened(
            partial(_open_keys, keys),
            lambda columns: read_rows("product_keys", columns, encode_key, slice_size),
            replayable=is_replayable(keys),
        )
    return read_rows("product_keys", keys, encode_key, slice_size, _check_first_key)


@asynccontextmanager
async def _open_keys(table: ArrowTable) -> AsyncGenerator[Iterable[str]]:
    columns = await in_thread(partial(from_arrow, table, vocabulary=PRODUCT_KEYS))
    yield replay_as(table, partial(_read_column, columns))


def _check_first_key(key: object) -> None:
    """Check the first key: one that is no text is most likely wrong in all of them; one that is missing need not be.

    Raises:
        InvalidArgument: it is no text.
    """
    if isinstance(key, str | None):
        return
    code = "row.product_key" if hasattr(key, "product_key") else 'row["product_key"]' if hasattr(key, "keys") else ""
    proposal = code and f"; pass {code} for each row"
    raise InvalidArgument("product_keys[0]", f"{_NO_KEY}{proposal}")


def _read_column(columns: Columns) -> Iterator[Iterable[Any]]:
    batches: Any = columns.batches
    for (values,) in batches:
        yield values


def read_rows(
    name: str, rows: Any, encode: Encode, slice_size: int, check_first: CheckFirst | None = None
) -> RowSource:
    """Return the source of a job that sends these rows.

    Raises:
        InvalidArgument: they cannot be iterated, or the first is wrong.
    """
    check_rows(name, rows, name.replace("_", " "), takes_path=name == "products")
    if check_first is not None and isinstance(rows, Sequence) and rows:
        check_first(rows[0])
    return RowSource(lambda: _encode(rows, encode, slice_size, check_first), is_replayable(rows))


def check_mapping(product: object) -> None:
    """Check that the first product is a mapping: if it is none, most likely none of them is one.

    Raises:
        InvalidArgument: it is no mapping.
    """
    if not isinstance(product, UnparsedRow) and fields_of(product) is None:
        proposal = describe_mapping(product, tuples="dict(zip(columns, row))")
        raise InvalidArgument("products[0]", f"{_NO_MAPPING}{proposal}")


def check_first(product: object) -> None:
    """Check the first product, as `check_mapping` does and its attributes: what is wrong is most likely so in all.

    Raises:
        InvalidArgument: it is no mapping, or has an attribute that is not known.
    """
    check_mapping(product)
    fields = None if isinstance(product, UnparsedRow) else fields_of(product)
    unknown = [] if fields is None else [*_find_unknown(fields)]
    if unknown:
        meant = ((name, PRODUCTS.find_key(name) or PRODUCTS.propose_key(name)) for name in unknown)
        proposal = next((f"; write {found!r} for {quote_name(name)}" for name, found in meant if found), "")
        rule = f"must have no attribute {quote_name(unknown[0])}, which products do not have{proposal}"
        raise InvalidArgument("products[0]", rule)


def encode_checked(row: object) -> tuple[str, str]:
    """Encode a product that keeps every rule.

    Raises:
        InvalidRow: it breaks rules.
    """
    product = normalize_product(row)
    if not isinstance(product, dict):
        raise InvalidRow(_NO_MAPPING)
    problems = dict.fromkeys(_find_unknown(product), "must be an attribute of a product")
    for problem in filter(None, (check(product) for check in PRODUCT_CHECKS)):
        problems.setdefault(problem.parameter, problem.rule)
    if problems:
        first, *others = problems.items()
        more = "".join(f"; {name} {rule}" for name, rule in others)
        raise InvalidRow(first[1] + more, first[0])
    return product["id"], _escape(product)


def encode_unchecked(row: object) -> tuple[str, str]:
    """Encode a product, and leave its attributes to the service, but for its id, which says which product it is.

    Raises:
        InvalidRow: it is not a product, has no id that keeps its rule, or cannot be written as JSON.
    """
    product = normalize_product(row)
    if not isinstance(product, dict):
        raise InvalidRow(_NO_MAPPING)
    product_id = product.get("id", "")
    breach = "must be given" if product_id == "" else ATTRIBUTES["id"].find_breach(product_id)
    if breach is not None:
        raise InvalidRow(breach, "id")
    try:
        return product_id, _escape(to_plain(product))
    except (TypeError, ValueError):
        raise InvalidRow("must contain only values that JSON can represent") from None


def encode_key(row: object) -> tuple[str, str]:
    """Encode the key of a product.

    Raises:
        InvalidRow: it is no text.
    """
    if not isinstance(row, str) or not row.strip():
        raise InvalidRow(_NO_KEY, "product_key")
    try:
        row.encode()
    except UnicodeEncodeError:
        raise InvalidRow("must be text in valid Unicode", "product_key") from None
    return row, _escape(row)


def _find_unknown(fields: Mapping[str, Any]) -> Iterable[str]:
    return sorted(str(name)[:40] for name in fields.keys() - ATTRIBUTES.keys())


def name_row(row: object) -> str | None:
    """Return the id of a product as a failure names it."""
    product_id = read_id(row)
    return product_id and product_id[:_NAMED_LENGTH]


async def _encode(
    rows: Iterable[Any] | AsyncIterable[Any], encode: Encode, slice_size: int, check_first: CheckFirst | None = None
) -> AsyncGenerator[Slice, None]:
    first = 0
    async with aclosing(slice_rows(rows, slice_size)) as parts:
        async for part in parts:
            if check_first is not None and first == 0:
                check_first(part[0])
            yield _build_slice(part, first, encode)
            first += len(part)


def is_valid(row: object, encode: Encode) -> bool:
    """Return whether a product can be sent."""
    try:
        _encode_row(row, encode)
    except InvalidRow:
        return False
    return True


def _encode_row(row: object, encode: Encode) -> tuple[str, str]:
    if isinstance(row, UnparsedRow):
        raise InvalidRow(row.reason)
    return encode(row)


def _build_slice(part: Sequence[Any], first: int, encode: Encode) -> Slice:
    keys: list[int] = []
    encoded: list[str] = []
    positions: list[int] = []
    failures: list[Failure] = []
    for position, row in enumerate(part, first):
        try:
            name, product = _encode_row(row, encode)
        except InvalidRow as invalid:
            failures.append(Failure(position, str(invalid), "INVALID_ROW", invalid.attribute, id=name_row(row)))
        else:
            keys.append(int.from_bytes(sha256(name.encode()).digest()[:8]))
            encoded.append(product)
            positions.append(position)
    rows = PackedRows(PRODUCT_GROUP, PLAIN, TextUsers.pack(keys, encoded), Positions.pack(positions))
    return Slice(len(part), rows, failures)
