"""The catalog that products and keys are sent to, and what the service's results mean."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar

import attrs
import msgspec

from svc_async.ads.products import (
    DELETE,
    MAX_PRODUCTS,
    UPSERT,
    ProductDeleteResult,
    ProductDeleteResults,
    ProductUpsertResult,
    ProductUpsertResults,
    ProductUpsertStatus,
)
from svc_async.batch.destination import Verdict, describe_dialect
from svc_async.batch.packing.batch import Batch, Limits, OperationFrame
from svc_async.batch.plan import Part
from svc_async.errors import ErrorDetail
from svc_async.lists.product_codec import PRODUCT_GROUP, ProductGroup, name_row
from svc_async.wire.dialect import Dialect
from svc_async.wire.reasons import MOST_REASONS, parse_details
from svc_async.wire.route import Request, Route

__all__ = ["SYNC_ROUTES", "Deletions", "Upserts"]

_FINAL = frozenset(ProductUpsertStatus)
# Unspecified: that the number of products holds for deletions as well, and the most bytes of a request.
_UPSERT_LIMITS = Limits(operations=MAX_PRODUCTS, wrapper=OperationFrame('{"products":[', "]}"), distinct=True)
_DELETE_LIMITS = Limits(operations=MAX_PRODUCTS, wrapper=OperationFrame('{"product_keys":[', "]}"), distinct=True)
SYNC_ROUTES: Mapping[Part, Route[Any]] = MappingProxyType({"removals": DELETE, "upserts": UPSERT})
"""What each part of a sync is sent to."""


@attrs.frozen
class _CatalogDestination:
    """A catalog that batches are sent to.

    Attributes:
        dialect: the words in which they are sent, if they are not those of the contract.
    """

    product_catalog_id: str
    host: str
    dialect: Dialect | None
    _limits: ClassVar[Limits]

    @property
    def limits(self) -> Limits:
        """What one request may hold."""
        if self.dialect is None:
            return self._limits
        return attrs.evolve(self._limits, wrapper=self._limits.wrapper.write_in(self.dialect))

    def _decode(self, batch: Batch) -> list[Any]:
        read = (lambda json: json) if self.dialect is None else self.dialect.read_json
        return [row for users in batch.write_users() for row in msgspec.json.decode(read(users.encode()))]

    def parse_group(self, plain: Any) -> ProductGroup:  # noqa: ARG002 - all products are of one group
        """Return the group of all products."""
        return PRODUCT_GROUP

    def name_rows(self, batch: Batch) -> Sequence[str | None]:  # noqa: ARG002 - keys have no ids
        """Return nothing: it is not known which product a row is."""
        return ()

    def redact(self, reason: ErrorDetail, row: str) -> ErrorDetail:  # noqa: ARG002 - products are not personal data
        """Return the service's words as they are."""
        return reason


@attrs.frozen
class Upserts(_CatalogDestination):
    """A catalog that products are sent to.

    Attributes:
        on_result: called with the service's result for each product.
    """

    _limits: ClassVar[Limits] = _UPSERT_LIMITS

    on_result: Callable[[ProductUpsertResult], object] | None = None

    @property
    def about(self) -> Mapping[str, Any]:
        """The host, the work with the catalog, and the words."""
        destination = f"upserts of {self.product_catalog_id}"
        return {"host": self.host, "destination": destination, **describe_dialect(self.dialect)}

    @property
    def empty(self) -> Request[ProductUpsertResults]:
        """The request without products (contract `products.upsert`)."""
        return UPSERT(product_catalog_id=self.product_catalog_id)

    def build_request(self, batch: Batch) -> Request[ProductUpsertResults]:
        """Return the request that carries products."""
        return self.empty.with_body(batch.write_body())

    def name_rows(self, batch: Batch) -> Sequence[str | None]:
        """Return the ids of the products."""
        return [name_row(row) for row in self._decode(batch)]

    def evaluate(self, answer: ProductUpsertResults, batch: Batch) -> Verdict:
        """Return which products the service refused, and of which it says nothing."""
        found = _match([row["id"] for row in self._decode(batch)], answer.products_response)
        if self.on_result is not None:
            for result in filter(None, found):
                self.on_result(result)
        return Verdict(
            {
                index: _join_reasons(result.errors)
                for index, result in enumerate(found)
                if result is not None and result.status == ProductUpsertStatus.ERROR
            },
            # Unspecified: the meaning of a fifth status; such a product is sent again, and fails in the end.
            [index for index, result in enumerate(found) if result is None or result.status not in _FINAL],
        )


def _match(ids: Sequence[str], results: Sequence[ProductUpsertResult]) -> Sequence[ProductUpsertResult | None]:
    """Return the result of each product, by its id or, where a result has none, by its place.

    Of a product with several results, nothing is known.
    """
    occurrences = Counter(result.id for result in results)
    by_id = {result.id: result for result in results if result.id is not None and occurrences[result.id] == 1}
    if len(results) == len(ids):  # in the order in which they were sent
        in_order = zip(ids, results, strict=True)
        by_id |= {name: result for name, result in in_order if result.id is None and name not in occurrences}
    return [by_id.get(product_id) for product_id in ids]


@attrs.frozen
class Deletions(_CatalogDestination):
    """A catalog that the keys of products to delete are sent to."""

    _limits: ClassVar[Limits] = _DELETE_LIMITS

    @property
    def about(self) -> Mapping[str, Any]:
        """The host, the work with the catalog, and the words."""
        destination = f"deletions of {self.product_catalog_id}"
        return {"host": self.host, "destination": destination, **describe_dialect(self.dialect)}

    @property
    def empty(self) -> Request[ProductDeleteResults]:
        """The request without keys (contract `products.delete`)."""
        return DELETE(product_catalog_id=self.product_catalog_id)

    def build_request(self, batch: Batch) -> Request[ProductDeleteResults]:
        """Return the request that carries keys."""
        return self.empty.with_body(batch.write_body())

    def evaluate(self, answer: ProductDeleteResults, batch: Batch) -> Verdict:
        """Return which keys the service refused, and of which it says nothing."""
        failed: dict[str, ErrorDetail] = {}
        for result in answer.delete_products:
            if keys_of_result := _find_failed_keys(result):
                failed |= dict.fromkeys(keys_of_result, _join_reasons(result.message))
        deleted = {result.product_key for result in answer.delete_products if not result.failed_product_key}
        contradictory = deleted & failed.keys()
        keys = list(enumerate(self._decode(batch)))
        return Verdict(
            {index: failed[key] for index, key in keys if key in failed and key not in contradictory},
            [index for index, key in keys if key in contradictory or (key not in failed and key not in deleted)],
        )


def _find_failed_keys(result: ProductDeleteResult) -> Sequence[str]:
    """Return the keys that were not deleted; the form of the field is not documented (UNS-product-result-shapes)."""
    failed = result.failed_product_key
    if isinstance(failed, str) and failed:
        return [failed]
    if isinstance(failed, list):
        return [key for key in failed if isinstance(key, str)]
    return [result.product_key] if failed and result.product_key else []


def _join_reasons(words: object) -> ErrorDetail:
    """Join the service's words about a row: strings or objects, one or several (contract ASM-142)."""
    reasons = [*islice(parse_details(words), MOST_REASONS)]
    return ErrorDetail(
        code=next((reason.code for reason in reasons if reason.code), "ERROR"),
        message="; ".join(reason.message for reason in reasons if reason.message) or "refused without a reason",
        parameter=next((reason.parameter for reason in reasons if reason.parameter), None),
    )
