"""The advertising API, one module a family; a family's rows are in its `OPERATIONS`."""

from svc_async.sandbox.surfaces.ads import accounts, custom_audiences, line_item_curated_categories

__all__ = ["OPERATIONS"]

OPERATIONS = (
    *accounts.OPERATIONS,
    *custom_audiences.OPERATIONS,
    *line_item_curated_categories.OPERATIONS,
)
