"""The features of an ad account."""

from collections.abc import Sequence

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import not_empty
from svc_async.wire.route import Listing, Surface

__all__ = ["FeatureKey", "Features"]


class FeatureKey(OpenEnum):
    """The documented features, whichever call returns, accepts or requires them (contract FEAT-01b to FEAT-04)."""

    AGE_TARGETING = "AGE_TARGETING"
    ALLOW_SKIPPABLE_VIDEOS_FOR_PREROLL_VIEWS_OBJECTIVE = "ALLOW_SKIPPABLE_VIDEOS_FOR_PREROLL_VIEWS_OBJECTIVE"
    AWARENESS_OBJECTIVE = "AWARENESS_OBJECTIVE"
    BRAND_TPN = "BRAND_TPN"
    CHARGE_FOR_GOOD_CLICK = "CHARGE_FOR_GOOD_CLICK"
    CITY_TARGETING = "CITY_TARGETING"
    CONVERSATION_CARD = "CONVERSATION_CARD"
    CONVERSATION_CARD_FOUR_OPTIONS = "CONVERSATION_CARD_FOUR_OPTIONS"
    CONVERSATION_CARD_UNLOCK = "CONVERSATION_CARD_UNLOCK"
    CPI_CHARGING = "CPI_CHARGING"
    DIRECT_MESSAGE_CARD = "DIRECT_MESSAGE_CARD"
    DR_TAP = "DR_TAP"
    ENGAGER_RETARGETING = "ENGAGER_RETARGETING"
    EVENT_TARGETING = "EVENT_TARGETING"
    INSTALLED_APP_CATEGORY_TARGETING = "INSTALLED_APP_CATEGORY_TARGETING"
    MOBILE_CONVERSION_TRANSACTION_VALUE = "MOBILE_CONVERSION_TRANSACTION_VALUE"
    OPTIMIZED_ACTION_BIDDING = "OPTIMIZED_ACTION_BIDDING"
    PREROLL_VIEWS_OBJECTIVE = "PREROLL_VIEWS_OBJECTIVE"
    PROMOTED_MEDIA_POLLS = "PROMOTED_MEDIA_POLLS"
    REACH_AND_FREQUENCY_ANALYTICS = "REACH_AND_FREQUENCY_ANALYTICS"
    REACH_FREQUENCY_CAP = "REACH_FREQUENCY_CAP"
    SHARE_AUDIENCE_OUTSIDE_BUSINESS = "SHARE_AUDIENCE_OUTSIDE_BUSINESS"
    UNIVERSAL_LOOKALIKE = "UNIVERSAL_LOOKALIKE"
    VALIDATED_AGE_TARGETING = "VALIDATED_AGE_TARGETING"
    VIDEO_APP_DOWNLOAD_CARD = "VIDEO_APP_DOWNLOAD_CARD"
    VIDEO_VIEWS_MIDROLL_OBJECTIVE = "VIDEO_VIEWS_MIDROLL_OBJECTIVE"
    WEBSITE_CLICKS_CPM_BILLING = "WEBSITE_CLICKS_CPM_BILLING"


_ALL = "/12/accounts/{account_id}/features"

_LIST = Listing(_ALL, FeatureKey)
_ADD = Listing(_ALL, FeatureKey, method="POST", surface=Surface.ADS_SANDBOX, checks=(not_empty("feature_keys"),))
_REMOVE = Listing(_ALL, FeatureKey, method="DELETE", surface=Surface.ADS_SANDBOX, checks=(not_empty("feature_keys"),))


@attrs.frozen(eq=False)
class Features:
    """The features of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(self, *, feature_keys: Sequence[FeatureKey] | None = None) -> Pager[FeatureKey]:
        """List the features of the account.

        Args:
            feature_keys: only these, of `REACH_AND_FREQUENCY_ANALYTICS`, `REACH_FREQUENCY_CAP` and
                `WEBSITE_CLICKS_CPM_BILLING` (contract FEAT-01b).

        Contract: `features.list`.
        """
        return Pager(self._pipeline, _LIST(account_id=self.account_id, feature_keys=feature_keys))

    async def add(self, feature_keys: Sequence[FeatureKey]) -> Sequence[FeatureKey]:
        """Add features to the account, on the sandbox host only, and return all it has.

        Contract: FEAT-02, `features.add`.
        """
        page = await self._pipeline.send(_ADD(account_id=self.account_id, feature_keys=feature_keys))
        return page.items

    async def remove(self, feature_keys: Sequence[FeatureKey]) -> Sequence[FeatureKey]:
        """Remove features from the account, on the sandbox host only, and return those it still has.

        Contract: FEAT-02, `features.remove`.
        """
        page = await self._pipeline.send(_REMOVE(account_id=self.account_id, feature_keys=feature_keys))
        return page.items
