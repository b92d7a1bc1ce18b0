"""Handles: an id bound to the services that act on it. Binding sends nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from svc_async.ads.account_apps import AccountApps
from svc_async.ads.account_history import AccountHistory
from svc_async.ads.account_media import AccountMediaItems
from svc_async.ads.audience_estimate import ESTIMATE, AudienceEstimate, AudienceOperatorType
from svc_async.ads.cards import Cards
from svc_async.ads.curated_categories import CuratedCategories
from svc_async.ads.custom_audiences import CustomAudiences, TargetedAudienceEntry
from svc_async.ads.do_not_reach_lists import DoNotReachList, DoNotReachLists
from svc_async.ads.features import Features
from svc_async.ads.line_item_curated_categories import LineItemCuratedCategories
from svc_async.ads.line_items import LineItems
from svc_async.ads.media_library import MediaLibrary
from svc_async.ads.poll_cards import PollCards
from svc_async.ads.posts import Posts
from svc_async.ads.product_sets import ProductSets
from svc_async.ads.tailored_audience_permissions import TailoredAudiencePermissions
from svc_async.ads.video_conversation_cards import VideoConversationCards
from svc_async.batch.lists.audience_users import AudienceUsers
from svc_async.batch.lists.do_not_reach_users import DoNotReachUsers
from svc_async.batch.products.products import Products
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.params import segment

__all__ = [
    "AccountHandle",
    "CustomAudienceHandle",
    "DoNotReachListHandle",
    "ProductCatalogHandle",
    "TailoredAudienceHandle",
]


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
        """The members of the audience."""
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
class TailoredAudienceHandle:
    """One tailored audience of one account."""

    _pipeline: Pipeline
    account_id: str
    tailored_audience_id: str

    def __attrs_post_init__(self) -> None:
        segment("tailored_audience_id", self.tailored_audience_id)

    @property
    def permissions(self) -> TailoredAudiencePermissions:
        """The permissions of other accounts to use the audience."""
        return TailoredAudiencePermissions(self._pipeline, self.account_id, self.tailored_audience_id)


@attrs.frozen
class DoNotReachListHandle:
    """One do-not-reach list of one account."""

    _pipeline: Pipeline
    account_id: str
    do_not_reach_list_id: str

    def __attrs_post_init__(self) -> None:
        segment("do_not_reach_list_id", self.do_not_reach_list_id)

    @property
    def users(self) -> DoNotReachUsers:
        """The users on the list."""
        return DoNotReachUsers(self._pipeline, self.account_id, self.do_not_reach_list_id)

    async def delete(self) -> DoNotReachList:
        """Delete the list; the record is returned with `deleted` true.

        Contract: DNR-06, `do_not_reach_lists.delete`.
        """
        return await DoNotReachLists(self._pipeline, self.account_id).delete(self.do_not_reach_list_id)


@attrs.frozen
class ProductCatalogHandle:
    """One product catalog."""

    _pipeline: Pipeline
    product_catalog_id: str

    def __attrs_post_init__(self) -> None:
        segment("product_catalog_id", self.product_catalog_id)

    @property
    def products(self) -> Products:
        """The products of the catalog."""
        return Products(self._pipeline, self.product_catalog_id)

    @property
    def product_sets(self) -> ProductSets:
        """The product sets of the catalog."""
        return ProductSets(self._pipeline, self.product_catalog_id)


@attrs.frozen
class AccountHandle:
    """One ad account."""

    _pipeline: Pipeline
    account_id: str

    def __attrs_post_init__(self) -> None:
        segment("account_id", self.account_id)

    @property
    def account_media(self) -> AccountMediaItems:
        """The media that the account can use."""
        return AccountMediaItems(self._pipeline, self.account_id)

    @property
    def apps(self) -> AccountApps:
        """The account's apps."""
        return AccountApps(self._pipeline, self.account_id)

    @property
    def cards(self) -> Cards:
        """Website and app cards."""
        return Cards(self._pipeline, self.account_id)

    @property
    def curated_categories(self) -> CuratedCategories:
        """The curated categories that the account can use."""
        return CuratedCategories(self._pipeline, self.account_id)

    @property
    def features(self) -> Features:
        """The features that are enabled for the account."""
        return Features(self._pipeline, self.account_id)

    @property
    def history(self) -> AccountHistory:
        """The change history of the account."""
        return AccountHistory(self._pipeline, self.account_id)

    @property
    def line_items(self) -> LineItems:
        """The account's line items."""
        return LineItems(self._pipeline, self.account_id)

    @property
    def line_item_curated_categories(self) -> LineItemCuratedCategories:
        """The curated categories that the account's line items run in."""
        return LineItemCuratedCategories(self._pipeline, self.account_id)

    @property
    def media_library(self) -> MediaLibrary:
        """The account's media library."""
        return MediaLibrary(self._pipeline, self.account_id)

    @property
    def poll_cards(self) -> PollCards:
        """Poll cards."""
        return PollCards(self._pipeline, self.account_id)

    @property
    def posts(self) -> Posts:
        """Posts created for promotion."""
        return Posts(self._pipeline, self.account_id)

    @property
    def video_conversation_cards(self) -> VideoConversationCards:
        """Video conversation cards."""
        return VideoConversationCards(self._pipeline, self.account_id)

    async def audience_estimate(
        self, *, targeting_criteria: Sequence[Mapping[str, Any]], operator_type: AudienceOperatorType | None = None
    ) -> AudienceEstimate:
        """Estimate how many people targeting criteria reach.

        Args:
            targeting_criteria: the criteria in the form in which they are created; at least a primary one (contract
                EST-01c).
            operator_type: `NE` negates; the service's default is `EQ`.

        Contract: EST-01, `audience_estimate.create`.
        """
        request = ESTIMATE(
            account_id=self.account_id, targeting_criteria=targeting_criteria, operator_type=operator_type
        )
        return await self._pipeline.send(request)

    def custom_audience(self, custom_audience_id: str) -> CustomAudienceHandle:
        """Bind a custom audience."""
        return CustomAudienceHandle(self._pipeline, self.account_id, custom_audience_id)

    def do_not_reach_list(self, do_not_reach_list_id: str) -> DoNotReachListHandle:
        """Bind a do-not-reach list."""
        return DoNotReachListHandle(self._pipeline, self.account_id, do_not_reach_list_id)

    def tailored_audience(self, tailored_audience_id: str) -> TailoredAudienceHandle:
        """Bind a tailored audience."""
        return TailoredAudienceHandle(self._pipeline, self.account_id, tailored_audience_id)
