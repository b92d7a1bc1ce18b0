"""An id bound to what can be done with it. Binding sends nothing."""

import attrs

from svc_async.ads.custom_audiences import CustomAudiences, TargetedAudienceEntry
from svc_async.ads.line_item_curated_categories import LineItemCuratedCategories
from svc_async.batch.audience_users import AudienceUsers
from svc_async.paging import Pager
from svc_async.pipeline import Pipeline
from svc_async.wire.params import segment

__all__ = ["AccountHandle", "CustomAudienceHandle"]


@attrs.frozen
class CustomAudienceHandle:
    """One custom audience of one account."""

    _pipeline: Pipeline
    account_id: str
    custom_audience_id: str

    def __attrs_post_init__(self) -> None:
        segment("custom_audience_id", self.custom_audience_id)

    @property
    def users(self) -> AudienceUsers:
        """Send, upload, remove: who belongs to the audience."""
        return AudienceUsers(self._pipeline, self.account_id, self.custom_audience_id)

    def targeted(self, *, with_active: bool | None = None) -> Pager[TargetedAudienceEntry]:
        """List the campaigns whose line items target the audience.

        Args:
            with_active: False includes line items that cannot be served; the service's default is True (TGT-01).

        Contract: `targeted_audiences.list`.
        """
        audiences = CustomAudiences(self._pipeline, self.account_id)
        return audiences.targeted(self.custom_audience_id, with_active=with_active)


@attrs.frozen
class AccountHandle:
    """One ad account."""

    _pipeline: Pipeline
    account_id: str

    def __attrs_post_init__(self) -> None:
        segment("account_id", self.account_id)

    @property
    def line_item_curated_categories(self) -> LineItemCuratedCategories:
        """The curated categories that the account's line items run in."""
        return LineItemCuratedCategories(self._pipeline, self.account_id)

    def custom_audience(self, custom_audience_id: str) -> CustomAudienceHandle:
        """Bind a custom audience."""
        return CustomAudienceHandle(self._pipeline, self.account_id, custom_audience_id)
