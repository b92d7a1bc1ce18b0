"""How many people targeting criteria reach."""

import attrs

from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import not_empty
from svc_async.wire.records import Record
from svc_async.wire.route import Route

__all__ = ["ESTIMATE", "AudienceEstimate", "AudienceOperatorType", "AudienceSize"]


class AudienceOperatorType(OpenEnum):
    """Whether criteria include or exclude (contract EST-01b)."""

    EQ = "EQ"
    NE = "NE"


@attrs.frozen(kw_only=True)
class AudienceSize(Record):
    """The bounds of an estimate."""

    min: int | None = None
    max: int | None = None


@attrs.frozen(kw_only=True)
class AudienceEstimate(Record):
    """An estimate, None where the service answers in another form."""

    # Unspecified: the answer is not documented (UNS-estimate-response); this is the form known of such services.
    audience_size: AudienceSize | None = None


ESTIMATE = Route(
    "POST",
    "/12/accounts/{account_id}/audience_estimate",
    AudienceEstimate,
    json=True,
    checks=(not_empty("targeting_criteria"),),
)
"""The route that estimates the size of an audience (contract `audience_estimate.create`)."""
