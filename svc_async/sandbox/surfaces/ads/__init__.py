"""The advertising API, one module a family; a family's rows are in its `OPERATIONS`."""

from svc_async.sandbox.surfaces.ads import (
    account_apps,
    account_history,
    accounts,
    advertiser_business_categories,
    audience_estimate,
    curated_categories,
    custom_audiences,
    do_not_reach,
    features,
    keyword_insights,
    line_item_curated_categories,
    line_items,
    placements,
    tailored_audience_permissions,
    account_media,
    accounts,
    cards,
    custom_audiences,
    line_item_curated_categories,
    media_library,
)

__all__ = ["OPERATIONS"]

OPERATIONS = (
    *account_apps.OPERATIONS,
    *account_history.OPERATIONS,
    *account_media.OPERATIONS,
    *accounts.OPERATIONS,
    *advertiser_business_categories.OPERATIONS,
    *audience_estimate.OPERATIONS,
    *curated_categories.OPERATIONS,
    *cards.OPERATIONS,
    *custom_audiences.OPERATIONS,
    *do_not_reach.OPERATIONS,
    *features.OPERATIONS,
    *keyword_insights.OPERATIONS,
    *line_item_curated_categories.OPERATIONS,
    *line_items.OPERATIONS,
    *placements.OPERATIONS,
    *tailored_audience_permissions.OPERATIONS,
    *media_library.OPERATIONS,
)
