"""Handles: an id bound to the services that act on it. Binding sends nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from svc_async import services
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


@attrs.frozen(eq=False)
class CustomAudienceHandle:
    """One custom audience of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str
    custom_audience_id: str

    def __attrs_post_init__(self) -> None:
        segment("custom_audience_id", self.custom_audience_id)

    @property
    def users(self) -> "services.AudienceUsers":
        """The members of the audience."""
        run = services.ClusterRunner(self._pipeline.origin)
        return services.AudienceUsers(self._pipeline, self.account_id, self.custom_audience_id, cluster_runner=run)

    @property
    def permissions(self) -> "services.CustomAudiencePermissions":
        """The permissions of other accounts to use the audience."""
        return services.CustomAudiencePermissions(self._pipeline, self.account_id, self.custom_audience_id)

    def targeted(self, *, with_active: bool | None = None) -> "Pager[services.TargetedAudienceEntry]":
        """List the campaigns whose line items target the audience.

        Args:
            with_active: False includes line items that cannot be served; the service's default is True (TGT-01).

        Contract: `targeted_audiences.list`.
        """
        audiences = services.CustomAudiences(self._pipeline, self.account_id)
        return audiences.targeted(self.custom_audience_id, with_active=with_active)

    async def ready(self, *, timeout: float | None = None) -> "services.CustomAudience":  # noqa: ASYNC109 - on the session's clock
        """Wait until the audience can be targeted, and return it with its size.

        The service processes changes in batches, which takes hours (contract CA-08). It is asked at once, then after
        30 seconds, then ever more rarely, up to every 5 minutes, and a last time when the time is over.

        Args:
            timeout: the seconds to wait; 0 asks once, None waits without an end.

        Raises:
            AudienceNotReady: the time is over; or waiting does not help, since the audience is deleted, or was
                processed and is too small: it needs at least 100 matched users (CA-06).
        """
        audiences = services.CustomAudiences(self._pipeline, self.account_id)
        return await audiences.ready(self.custom_audience_id, timeout=timeout)


@attrs.frozen(eq=False)
class TailoredAudienceHandle:
    """One tailored audience of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str
    tailored_audience_id: str

    def __attrs_post_init__(self) -> None:
        segment("tailored_audience_id", self.tailored_audience_id)

    @property
    def permissions(self) -> "services.TailoredAudiencePermissions":
        """The permissions of other accounts to use the audience."""
        return services.TailoredAudiencePermissions(self._pipeline, self.account_id, self.tailored_audience_id)


@attrs.frozen(eq=False)
class DoNotReachListHandle:
    """One do-not-reach list of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str
    do_not_reach_list_id: str

    def __attrs_post_init__(self) -> None:
        segment("do_not_reach_list_id", self.do_not_reach_list_id)

    @property
    def users(self) -> "services.DoNotReachUsers":
        """The users on the list."""
        run = services.ClusterRunner(self._pipeline.origin)
        return services.DoNotReachUsers(self._pipeline, self.account_id, self.do_not_reach_list_id, cluster_runner=run)

    async def delete(self) -> "services.DoNotReachList":
        """Delete the list; the record is returned with `deleted` true.

        Contract: DNR-06, `do_not_reach_lists.delete`.
        """
        return await services.DoNotReachLists(self._pipeline, self.account_id).delete(self.do_not_reach_list_id)


@attrs.frozen(eq=False)
class ProductCatalogHandle:
    """One product catalog."""

    _pipeline: Pipeline = attrs.field(repr=False)
    product_catalog_id: str

    def __attrs_post_init__(self) -> None:
        segment("product_catalog_id", self.product_catalog_id)

    @property
    def products(self) -> "services.Products":
        """The products of the catalog."""
        run = services.ClusterRunner(self._pipeline.origin)
        return services.Products(self._pipeline, self.product_catalog_id, cluster_runner=run)

    @property
    def product_sets(self) -> "services.ProductSets":
        """The product sets of the catalog."""
        return services.ProductSets(self._pipeline, self.product_catalog_id)


@attrs.frozen(eq=False)
class AccountHandle:
    """One ad account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def __attrs_post_init__(self) -> None:
        segment("account_id", self.account_id)

    @property
    def account_media(self) -> "services.AccountMediaItems":
        """The media that the account can use."""
        return services.AccountMediaItems(self._pipeline, self.account_id)

    @property
    def apps(self) -> "services.AccountApps":
        """The account's apps."""
        return services.AccountApps(self._pipeline, self.account_id)

    @property
    def cards(self) -> "services.Cards":
        """Website and app cards."""
        return services.Cards(self._pipeline, self.account_id)

    @property
    def curated_categories(self) -> "services.CuratedCategories":
        """The curated categories that the account can use."""
        return services.CuratedCategories(self._pipeline, self.account_id)

    @property
    def custom_audiences(self) -> "services.CustomAudiences":
        """The account's custom audiences."""
        return services.CustomAudiences(self._pipeline, self.account_id)

    @property
    def do_not_reach_lists(self) -> "services.DoNotReachLists":
        """The account's do-not-reach lists, of which there is at most one."""
        return services.DoNotReachLists(self._pipeline, self.account_id)

    @property
    def features(self) -> "services.Features":
        """The features that are enabled for the account."""
        return services.Features(self._pipeline, self.account_id)

    @property
    def history(self) -> "services.AccountHistory":
        """The change history of the account."""
        return services.AccountHistory(self._pipeline, self.account_id)

    @property
    def line_items(self) -> "services.LineItems":
        """The account's line items."""
        return services.LineItems(self._pipeline, self.account_id)

    @property
    def line_item_curated_categories(self) -> "services.LineItemCuratedCategories":
        """The curated categories that the account's line items run in."""
        return services.LineItemCuratedCategories(self._pipeline, self.account_id)

    @property
    def media_library(self) -> "services.MediaLibrary":
        """The account's media library."""
        return services.MediaLibrary(self._pipeline, self.account_id)

    @property
    def poll_cards(self) -> "services.PollCards":
        """Poll cards."""
        return services.PollCards(self._pipeline, self.account_id)

    @property
    def posts(self) -> "services.Posts":
        """Posts created for promotion."""
        return services.Posts(self._pipeline, self.account_id)

    @property
    def video_conversation_cards(self) -> "services.VideoConversationCards":
        """Video conversation cards."""
        return services.VideoConversationCards(self._pipeline, self.account_id)

    async def audience_estimate(
        self,
        *,
        targeting_criteria: Sequence[Mapping[str, Any]],
        operator_type: "services.AudienceOperatorType | None" = None,
    ) -> "services.AudienceEstimate":
        """Estimate how many people targeting criteria reach.

        Args:
            targeting_criteria: the criteria in the form in which they are created; at least a primary one (contract
                EST-01c). Which are is not specified; the sandbox takes those of its setting `primary_targeting_types`.
            operator_type: `NE` negates; the service's default is `EQ`.

        Contract: EST-01, `audience_estimate.create`.
        """
        request = services.ESTIMATE(
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
