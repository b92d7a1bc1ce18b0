"""The curated categories that line items run in."""

import attrs

from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.checks import between
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = ["LineItemCuratedCategories", "LineItemCuratedCategory"]


@attrs.frozen(kw_only=True)
class LineItemCuratedCategory(Record):
    """A line item that runs in a curated category (contract record `LineItemCuratedCategory`)."""

    id: str
    line_item_id: str
    curated_category_id: str
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ALL = "/12/accounts/{account_id}/line_item_curated_categories"
_ONE = "/12/accounts/{account_id}/line_item_curated_categories/{line_item_curated_category_id}"

_LIST = Listing(_ALL, LineItemCuratedCategory, checks=(between("count", 1, 1000),))
_GET = Route("GET", _ONE, LineItemCuratedCategory)
_CREATE = Route("POST", _ALL, LineItemCuratedCategory)
_UPDATE = Route("PUT", _ONE, LineItemCuratedCategory)
_DELETE = Route("DELETE", _ONE, LineItemCuratedCategory)


@attrs.frozen(eq=False)
class LineItemCuratedCategories:
    """The curated categories that line items of one account run in."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self, *, count: int | None = None, sort_by: str | None = None, with_deleted: bool | None = None
    ) -> CountedPager[LineItemCuratedCategory]:
        """List the line items and the curated categories they run in.

        Args:
            count: records per page, from 1 to 1000; the service's default is 200.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: `line_item_curated_categories.list`.
        """
        return CountedPager(
            self._pipeline,
            _LIST(account_id=self.account_id, count=count, sort_by=sort_by, with_deleted=with_deleted),
        )

    async def get(
        self, line_item_curated_category_id: str, *, with_deleted: bool | None = None
    ) -> LineItemCuratedCategory:
        """Return one of them; a deleted one only with `with_deleted`.

        Contract: `line_item_curated_categories.get`.
        """
        return await self._pipeline.send(
            _GET(
                account_id=self.account_id,
                line_item_curated_category_id=line_item_curated_category_id,
                with_deleted=with_deleted,
            )
        )

    async def create(self, *, line_item_id: str, curated_category_id: str) -> LineItemCuratedCategory:
        """Add a line item to a curated category.

        Contract: `line_item_curated_categories.create`.
        """
        return await self._pipeline.send(
            _CREATE(account_id=self.account_id, line_item_id=line_item_id, curated_category_id=curated_category_id)
        )

    async def update(
        self,
        line_item_curated_category_id: str,
        *,
        line_item_id: str | None = None,
        curated_category_id: str | None = None,
    ) -> LineItemCuratedCategory:
        """Update the given fields; None leaves a field as it is.

        Contract: `line_item_curated_categories.update`.
        """
        return await self._pipeline.send(
            _UPDATE(
                account_id=self.account_id,
                line_item_curated_category_id=line_item_curated_category_id,
                line_item_id=line_item_id,
                curated_category_id=curated_category_id,
            )
        )

    async def delete(self, line_item_curated_category_id: str) -> LineItemCuratedCategory:
        """Remove the line item from the category and return its record, with `deleted` true.

        Contract: LICC-05, `line_item_curated_categories.delete`.
        """
        return await self._pipeline.send(
            _DELETE(account_id=self.account_id, line_item_curated_category_id=line_item_curated_category_id)
        )
