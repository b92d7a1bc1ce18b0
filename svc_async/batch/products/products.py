"""The products of a catalog: listed, sent in one request, or in batches of any number of them.

A product is a row and an operation of its own. Rows of one id keep their order and never share a request, in which the
service would ignore all of them (contract PROD-07). Each has its own result: what the service calls an error has
failed, and a product that the answer does not speak of is sent again, since its outcome is unknown.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import attrs
import msgspec

from svc_async.ads.products import (
    DELETE,
    LIST,
    PRODUCT_CHECKS,
    UPSERT,
    Product,
    ProductDeleteResult,
    ProductDeleteResults,
    ProductUpsertResult,
    ProductUpsertResults,
    ProductUpsertStatus,
)
from svc_async.batch.packing.batch import Batch
from svc_async.batch.packing.limits import Limits
from svc_async.batch.packing.operations import OperationFrame
from svc_async.batch.packing.rows import EncodedRows
from svc_async.batch.receipts import Receipts
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.source import Slice, Source, is_replayable, slice_rows
from svc_async.batch.uploader import Destination, Job, Observers, Settings, Verdict
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.errors import ErrorDetail, InvalidArgument
from svc_async.governor.slot import Priority
from svc_async.sources.source import UnparsedRow
from svc_async.users.template import PLAIN
from svc_async.wire.fields import fields_of
from svc_async.wire.route import Request
from svc_async.wire.writing import to_plain

__all__ = ["Products"]

T = TypeVar("T")

Row = Product | Mapping[str, Any]
Rows = Iterable[Row] | AsyncIterable[Row]
Keys = Iterable[str] | AsyncIterable[str]
Ordering = Literal["key", "none"]

_MOST = 25  # contract PROD-01; Unspecified: that it holds for deletions as well
# Unspecified: the most bytes of a request; it is that of audience users (contract CAU-02).
_MOST_BYTES = 5_000_000
_PRODUCTS = OperationFrame('{"products":[', "]}")
_KEYS = OperationFrame('{"product_keys":[', "]}")
_DONE = frozenset(
    {ProductUpsertStatus.CREATE_SUCCESS, ProductUpsertStatus.UPDATE_SUCCESS, ProductUpsertStatus.NO_CHANGE}
)
_ATTRIBUTES = frozenset(field.name for field in attrs.fields(Product) if field.init)
_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


@attrs.frozen
class _Alike:
    """Products have nothing in common that stands beside them."""

    overhead: int = 0

    def build_frame(self, now: datetime) -> OperationFrame:  # noqa: ARG002 - nothing is pinned
        return OperationFrame("", "")

    def to_plain(self) -> None:
        """Give the plain values that it has: none."""


_ALIKE = _Alike()


class _InvalidRow(Exception):
    """A row breaks rules: the first attribute, and what is wrong with it and the others."""

    def __init__(self, reason: str, attribute: str | None = None) -> None:
        super().__init__(reason)
        self.attribute = attribute


@attrs.frozen
class _Kept:
    """Products are nobody's personal data: the service's words are told as they are."""

    product_catalog_id: str

    @property
    def name(self) -> str:
        return f"{type(self).__name__.strip('_').lower()} of {self.product_catalog_id}"

    def parse_group(self, plain: Any) -> _Alike:  # noqa: ARG002 - all products are of one
        return _ALIKE

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:  # noqa: ARG002 - see above
        return reason


@attrs.frozen
class _Upserts(_Kept):
    """Where products go, and what their results mean."""

    on_result: Callable[[ProductUpsertResult], object] | None = None

    def build_request(self, batch: Batch) -> Request[ProductUpsertResults]:
        """Make the request that carries products (contract `products.upsert`)."""
        return UPSERT(product_catalog_id=self.product_catalog_id).with_body(batch.body())

    def evaluate(self, answer: ProductUpsertResults, batch: Batch) -> Verdict:
        ids = [row["id"] for row in _rows(batch)]
        results = {result.id: result for result in answer.products_response if result.id is not None}
        if len(answer.products_response) == len(ids):  # in the order in which they were sent
            for product_id, result in zip(ids, answer.products_response, strict=True):
                if result.id is None:
                    results.setdefault(product_id, result)
        found = [results.get(product_id) for product_id in ids]
        if self.on_result is not None:
            for result in filter(None, found):
                self.on_result(result)
        return Verdict(
            {
                index: _one_reason(result.errors)
                for index, result in enumerate(found)
                if result is not None and result.status == ProductUpsertStatus.ERROR
            },
            [index for index, result in enumerate(found) if result is None or not _is_final(result.status)],
        )


def _is_final(status: ProductUpsertStatus) -> bool:
    # Unspecified: what a status means that is not among the four; such a product is sent again, and fails at last.
    return status in _DONE or status == ProductUpsertStatus.ERROR


@attrs.frozen
class _Deletions(_Kept):
    """Where keys go, and what their results mean."""

    def build_request(self, batch: Batch) -> Request[ProductDeleteResults]:
        """Make the request that carries keys (contract `products.delete`)."""
        return DELETE(product_catalog_id=self.product_catalog_id).with_body(batch.body())

    def evaluate(self, answer: ProductDeleteResults, batch: Batch) -> Verdict:
        failed = {key: _one_reason(result.message) for result in answer.delete_products for key in _failed(result)}
        deleted = {result.product_key for result in answer.delete_products if not result.failed_product_key}
        keys = list(enumerate(_rows(batch)))
        return Verdict(
            {index: failed[key] for index, key in keys if key in failed},
            [index for index, key in keys if key not in failed and key not in deleted],
        )


def _failed(result: ProductDeleteResult) -> Sequence[str]:
    """Give the keys that were not deleted; the form of the field is not documented (UNS-product-result-shapes)."""
    told = result.failed_product_key
    if isinstance(told, str) and told:
        return [told]
    if isinstance(told, list):
        return [key for key in told if isinstance(key, str)]
    return [result.product_key] if told and result.product_key else []


def _rows(batch: Batch) -> list[Any]:
    return [row for index in range(batch.operations) for row in msgspec.json.decode(batch.users_of(index))]


def _one_reason(told: object) -> ErrorDetail:
    """Put the service's words about a row together: strings or objects, one or several (contract ASM-142)."""
    reasons = list(_reasons(told))
    return ErrorDetail(
        code=next((reason.code for reason in reasons if reason.code), "ERROR"),
        message="; ".join(reason.message for reason in reasons if reason.message) or "refused without a reason",
        parameter=next((reason.parameter for reason in reasons if reason.parameter), None),
    )


def _reasons(told: object) -> Iterable[ErrorDetail]:
    if isinstance(told, Mapping):
        attribute = told.get("attribute") or told.get("parameter")
        yield ErrorDetail(
            code=str(told.get("code") or ""),
            message=str(told.get("message") or ""),
            parameter=None if attribute is None else str(attribute),
        )
    elif isinstance(told, list | tuple):
        for each in told:
            yield from _reasons(each)
    elif told:
        yield ErrorDetail(message=str(told))


@attrs.frozen
class Products:
    """The products of one catalog."""

    _pipeline: Pipeline
    product_catalog_id: str

    def list(self, *, item_group_key: str | None = None, count: int | None = None) -> Pager[Product]:
        """List them; of grouped ones only the one that was sent first (contract PROD-10b).

        Args:
            item_group_key: only the variants of this group.
            count: records a page, from 1 to 100, the service's default.

        Contract: PROD-10, `products.list`.
        """
        return Pager(
            self._pipeline,
            LIST(product_catalog_id=self.product_catalog_id, item_group_key=item_group_key, count=count),
        )

    async def send(self, products: Sequence[Row]) -> Sequence[ProductUpsertResult]:
        """Make or change products in one request; one result for each comes back, in their order.

        Args:
            products: at most 25, none twice: the service would ignore all of one id (contract PROD-07).

        Contract: PROD-01, `products.upsert`.
        """
        answer = await self._pipeline.send(UPSERT(product_catalog_id=self.product_catalog_id, products=products))
        return answer.products_response

    async def upsert(
        self,
        products: Rows,
        *,
        concurrency: int = 32,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
        on_result: Callable[[ProductUpsertResult], object] | None = None,
    ) -> Report:
        """Make or change products, however many there are; what is there and not given stays, save what is empty.

        Every product is checked before it is sent, unless the session does not validate; one that breaks a rule fails
        by itself, and the failure names the attribute and every rule that it breaks. Products of one id arrive in
        their order, each in a request of its own; of equal ones that would share a request the last is sent.

        Args:
            products: mappings with the attributes of a merchant's feed, or `Product`. An empty text takes the value
                of an optional attribute away.
            concurrency: the most requests under way.
            ordering: `none` for products whose ids come once only; what is in doubt is then sent again at once.
            quarantine: seconds for which products of the same lane wait after a request of unknown outcome.
            retry_delays: seconds before each repeat of a request; its products fail when they are used up.
            journal: a file that tells what is settled. The same call after any end, a kill included, then goes on where
                the job had come to; when it was finished, it gives its report. It takes the same source: one that can
                be read again, such as a list or an object with `__iter__`; what an iterator gives is put on the disk
                beside the journal first, hashed. `concurrency` is that of the first call.
            progress: told how far the job is.
            on_receipt: told of each request that settled products.
            on_failure: told of each product that failed; the report lists the first 10,000.
            on_result: told of the service's result for each product, with its `product_key`, before the receipt.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
            BatchError: the job could not be finished; `report` says what became of the products that were read.

        Contract: PROD-01 to PROD-09b, `products.upsert`.
        """
        settings = _settings(_PRODUCTS, concurrency, ordering, quarantine, retry_delays)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        destination = _Upserts(self.product_catalog_id, on_result)
        return await self._job(self._products(products), destination, settings, observers, journal).run()

    async def delete(
        self,
        product_keys: Keys,
        *,
        concurrency: int = 32,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Delete products for good, however many there are.

        A key that is not there fails. So may one that is sent again after an unclear answer; the reason says so then.

        Args:
            product_keys: the keys that the service has made, as `list` gives them.
            concurrency: as for `upsert`.
            ordering: as for `upsert`.
            quarantine: as for `upsert`.
            retry_delays: as for `upsert`.
            journal: as for `upsert`.
            progress: as for `upsert`.
            on_receipt: as for `upsert`.
            on_failure: as for `upsert`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
            BatchError: the job could not be finished; `report` says what became of the keys that were read.

        Contract: PROD-11, PROD-11b, `products.delete`.
        """
        settings = _settings(_KEYS, concurrency, ordering, quarantine, retry_delays)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        source = _source("product_keys", product_keys, _key)
        return await self._job(source, _Deletions(self.product_catalog_id), settings, observers, journal).run()

    def stream(
        self,
        products: Rows,
        *,
        concurrency: int = 32,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[ProductUpsertResults]:
        """Make or change products and give the receipts as they come; the result's `report` is there at any time.

        Use it as a context manager, or iterate to the end.

        Args:
            products: as for `upsert`.
            concurrency: as for `upsert`.
            ordering: as for `upsert`.
            quarantine: as for `upsert`.
            retry_delays: as for `upsert`.
            journal: as for `upsert`.
            progress: as for `upsert`.
            on_failure: as for `upsert`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.

        Contract: PROD-01 to PROD-09b, `products.upsert`.
        """
        settings = _settings(_PRODUCTS, concurrency, ordering, quarantine, retry_delays)
        source = self._products(products)
        return Receipts(
            lambda on_receipt: self._job(
                source,
                _Upserts(self.product_catalog_id),
                settings,
                Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure),
                journal,
            )
        )

    def _products(self, products: Rows) -> Source:
        return _source("products", products, _checked if self._pipeline.validate else _unchecked)

    def _job(
        self,
        source: Source,
        destination: Destination[T],
        settings: Settings,
        observers: Observers,
        journal: str | Path | None,
    ) -> Job[T]:
        return Job(
            source,
            sender=self._pipeline.but(retries=Retries.none(), priority=Priority.BULK, max_wait=None),
            destination=destination,
            settings=settings,
            observers=observers,
            journal=journal,
        )


def _settings(
    wrapper: OperationFrame, concurrency: int, ordering: Ordering, quarantine: float, retry_delays: Sequence[float]
) -> Settings:
    if ordering not in get_args(Ordering):
        raise InvalidArgument("ordering", f"must be one of {', '.join(get_args(Ordering))}")
    return Settings(
        limits=Limits(operations=_MOST, size=_MOST_BYTES, wrapper=wrapper, distinct=True),
        concurrency=concurrency,
        ordered=ordering == "key",
        quarantine=quarantine,
        retry_delays=tuple(retry_delays),
    )


async def _encoded(
    rows: Iterable[Any] | AsyncIterable[Any], encode: Callable[[Any], tuple[str, str]]
) -> AsyncGenerator[Slice, None]:
    first = 0
    async with aclosing(slice_rows(rows)) as parts:
        async for part in parts:
            yield _slice(part, first, encode)
            first += len(part)


def _readable(row: T) -> T:
    if isinstance(row, UnparsedRow):
        raise _InvalidRow(row.reason)
    return row


def _slice(part: Sequence[Any], first: int, encode: Callable[[Any], tuple[str, str]]) -> Slice:
    encoded = EncodedRows(_ALIKE, PLAIN, keys := [], users := [], positions := [])
    failures: list[Failure] = []
    for position, row in enumerate(part, first):
        try:
            name, user = encode(_readable(row))
        except _InvalidRow as invalid:
            failures.append(Failure(position, str(invalid), "INVALID_ROW", invalid.attribute))
        else:
            keys.append(int.from_bytes(sha256(name.encode()).digest()[:8]))
            users.append(user)
            positions.append(position)
    return Slice(len(part), encoded, failures)


def _checked(row: object) -> tuple[str, str]:
    """Write a product that keeps every rule; give its id beside it."""
    fields = fields_of(row)
    if fields is not None:
        problems = dict.fromkeys(_strangers(row, fields), "must be an attribute of a product")
        for problem in filter(None, (check(fields) for check in PRODUCT_CHECKS)):
            problems.setdefault(problem.parameter, problem.rule)
        if problems:
            first, *others = problems.items()
            more = "".join(f"; {name} {rule}" for name, rule in others)
            raise _InvalidRow(first[1] + more, first[0])
    return _unchecked(row)


def _strangers(row: object, fields: Mapping[str, Any]) -> Iterable[str]:
    return () if isinstance(row, Product) else sorted(str(name)[:40] for name in fields.keys() - _ATTRIBUTES)


def _unchecked(row: object) -> tuple[str, str]:
    if fields_of(row) is None:
        raise _InvalidRow("must be a mapping of attributes, or a Product")
    try:
        plain: dict[str, Any] = to_plain(row)
        product_id = plain.get("id")
        if isinstance(product_id, str) and product_id:
            product_id.encode()
            return product_id, _ascii(plain)
    except (TypeError, ValueError):  # no form in JSON, or in UTF-8
        raise _InvalidRow("must contain only values that JSON can represent") from None
    raise _InvalidRow("must be given as text", "id")


def _key(row: object) -> tuple[str, str]:
    if not isinstance(row, str) or not row.strip():
        raise _InvalidRow("must be the key of a product, as text", "product_key")
    try:
        row.encode()
    except UnicodeEncodeError:
        raise _InvalidRow("must be text in valid Unicode", "product_key") from None
    return row, _ascii(row)


def _source(name: str, rows: Any, encode: Callable[[Any], tuple[str, str]]) -> Source:
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable | AsyncIterable):
        raise InvalidArgument(name, "must be an iterable or async iterable")
    return Source(lambda: _encoded(rows, encode), is_replayable(rows))
