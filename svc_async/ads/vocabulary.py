"""Terms of the service that several families share; each family exports those it uses."""

import attrs

from svc_async.open_enum import OpenEnum
from svc_async.wire.records import EXACT, Record

__all__ = [
    "MEMBERSHIP_MONTHS",
    "AdProductType",
    "BatchCounts",
    "BatchOperationType",
    "NotTargetableReason",
    "PermissionLevel",
    "Placement",
]

MEMBERSHIP_MONTHS = 13
"""How long users stay on a list if no end is given (contract CAU-06c), and the most on a do-not-reach list (DNR-04)."""


class AdProductType(OpenEnum):
    """What a line item promotes."""

    MEDIA = "MEDIA"
    PROMOTED_ACCOUNT = "PROMOTED_ACCOUNT"
    PROMOTED_POSTS = "PROMOTED_POSTS"


class Placement(OpenEnum):
    """Where a line item appears; more values exist than the three that are documented."""

    ALL_ON_SVC = "ALL_ON_SVC"
    SVC_TIMELINE = "SVC_TIMELINE"
    PUBLISHER_NETWORK = "PUBLISHER_NETWORK"


class BatchOperationType(OpenEnum):
    """What an operation does with its users (contract CAU-04, DNR-01)."""

    UPDATE = "Update"
    DELETE = "Delete"


class NotTargetableReason(OpenEnum):
    """Why an audience or a list cannot be used; more values exist than the two that are documented."""

    PROCESSING = "PROCESSING"
    TOO_SMALL = "TOO_SMALL"


class PermissionLevel(OpenEnum):
    """The use of an audience that a permission allows (contract TAP-02)."""

    READ_ONLY = "READ_ONLY"
    READ_WRITE = "READ_WRITE"


@attrs.frozen(kw_only=True)
class BatchCounts(Record):
    """How many users the service accepted, and how many it received (contract CAU-10, DNR-02)."""

    success_count: int = attrs.field(metadata=EXACT)
    total_count: int = attrs.field(metadata=EXACT)
