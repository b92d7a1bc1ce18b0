"""The advertising API, one module a family; a family's rows are in its `OPERATIONS`."""

from svc_async.sandbox.surfaces.ads import (
    account_apps,
    accounts,
    advertiser_business_categories,
    curated_categories,
    custom_audiences,
    features,
    line_item_curated_categories,
    line_items,
    placements,
)

__all__ = ["OPERATIONS"]

OPERATIONS = (
    *account_apps.OPERATIONS,
    *accounts.OPERATIONS,
    *advertiser_business_categories.OPERATIONS,
    *curated_categories.OPERATIONS,
    *custom_audiences.OPERATIONS,
    *features.OPERATIONS,
    *line_item_curated_categories.OPERATIONS,
    *line_items.OPERATIONS,
    *placements.OPERATIONS,
)
