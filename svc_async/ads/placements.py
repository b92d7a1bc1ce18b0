"""Where line items may appear."""

import attrs

from svc_async.ads.vocabulary import AdProductType, Placement
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.records import Record
from svc_async.wire.route import Listing

__all__ = ["AdProductType", "Placement", "PlacementGroup", "Placements"]


@attrs.frozen(kw_only=True)
class PlacementGroup(Record):
    """The placements of one product type (contract PLC-01).

    Attributes:
        placements: the combinations that are possible, each of one or several placements.
    """

    product_type: AdProductType
    placements: tuple[tuple[Placement, ...], ...] = ()


_LIST = Listing("/12/line_items/placements", PlacementGroup)


@attrs.frozen(eq=False)
class Placements:
    """The placements of all product types."""

    _pipeline: Pipeline = attrs.field(repr=False)

    def list(self, *, product_type: AdProductType | None = None) -> Pager[PlacementGroup]:
        """List the placements, or those of one product type.

        Contract: PLC-01, `placements.list`.
        """
        return Pager(self._pipeline, _LIST(product_type=product_type))
