"""Curated categories: groups of publishers that line items can run with."""

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Route

__all__ = ["CuratedCategories", "CuratedCategory"]


@attrs.frozen(kw_only=True)
class CuratedCategory(Record):
    """A curated category (contract record `CuratedCategory`).

    Attributes:
        country_codes: the only countries in which it is available (contract CAT-02).
    """

    id: str
    name: str | None = None
    description: str | None = None
    country_codes: tuple[str, ...] = ()
    publisher_user_ids: tuple[str, ...] = ()
    videos_monetized_in_last_thirty_days: int | None = None
    created_at: Timestamp
    updated_at: Timestamp


_GET = Route("GET", "/12/accounts/{account_id}/curated_categories/{curated_category_id}", CuratedCategory)


@attrs.frozen(eq=False)
class CuratedCategories:
    """The curated categories that one account can use."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    async def get(self, curated_category_id: str) -> CuratedCategory:
        """Return a curated category.

        Contract: `curated_categories.get`.
        """
        return await self._pipeline.send(_GET(account_id=self.account_id, curated_category_id=curated_category_id))
