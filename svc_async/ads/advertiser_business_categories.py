"""The business categories that pre-roll advertisers choose from."""

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.records import Record
from svc_async.wire.route import Listing

__all__ = ["AdvertiserBusinessCategories", "AdvertiserBusinessCategory", "AdvertiserBusinessCategoryName"]


class AdvertiserBusinessCategoryName(OpenEnum):
    """The names that are documented."""

    CONSUMER_PACKAGED_GOODS = "Consumer Packaged Goods"
    HEALTH_AND_PHARMA = "Health & Pharma"
    ALCOHOL = "Alcohol"
    DINING = "Dining"
    FINANCIAL_SERVICES = "Financial Services"
    RETAIL = "Retail"
    TRAVEL = "Travel"
    GAMING = "Gaming"
    TECHNOLOGY = "Technology"
    TELECOMMUNICATION = "Telecommunication"
    AUTO = "Auto"
    MEDIA_AND_ENTERTAINMENT = "Media & Entertainment"
    POLITICS = "Politics"
    GAMBLING = "Gambling"
    DATING = "Dating"
    NON_PROFIT = "Non-Profit"


@attrs.frozen(kw_only=True)
class AdvertiserBusinessCategory(Record):
    """A business category (contract record `AdvertiserBusinessCategory`).

    Attributes:
        iab_categories: the values for the `categories` of a line item whose objective is `PREROLL_VIEWS`, which
            must have one or two (contract CAT-03b, CAT-03c).
    """

    id: str
    name: AdvertiserBusinessCategoryName
    iab_categories: tuple[str, ...] = ()


_LIST = Listing("/12/advertiser_business_categories", AdvertiserBusinessCategory)


@attrs.frozen(eq=False)
class AdvertiserBusinessCategories:
    """All business categories."""

    _pipeline: Pipeline = attrs.field(repr=False)

    def list(self) -> Pager[AdvertiserBusinessCategory]:
        """List them.

        Contract: CAT-01, `advertiser_business_categories.list`.
        """
        return Pager(self._pipeline, _LIST())
