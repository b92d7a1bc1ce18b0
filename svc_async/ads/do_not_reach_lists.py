"""Do-not-reach lists, and the route that sends their users."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs

from svc_async.ads.vocabulary import BatchCounts, BatchOperationType, NotTargetableReason
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = [
    "USERS_BATCH",
    "BatchCounts",
    "BatchOperationType",
    "DoNotReachList",
    "DoNotReachLists",
    "DoNotReachOperation",
    "DoNotReachOperationParams",
    "DoNotReachUser",
    "NotTargetableReason",
]


@attrs.frozen(kw_only=True)
class DoNotReachList(Record):
    """A list of users who are excluded from every campaign (contract DNR-07, record `DoNotReachList`).

    Attributes:
        list_size: in the service's form, which is not documented.
    """

    id: str
    name: str | None = None
    description: str | None = None
    targetable: bool
    reasons_not_targetable: tuple[NotTargetableReason, ...] = ()
    list_size: Any = attrs.field(default=None, hash=False)
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


@attrs.frozen(kw_only=True)
class DoNotReachUser:
    """One user by hashes of any of its identifiers (contract DNR-03)."""

    email: Sequence[str] | None = None
    phone_number: Sequence[str] | None = None


@attrs.frozen(kw_only=True)
class DoNotReachOperationParams:
    """The users of one operation.

    Attributes:
        users: the users.
        expires_at: the end, later than now; the service's default is in 13 months (contract DNR-04, DNR-04b).
    """

    users: Sequence[DoNotReachUser]
    expires_at: datetime | None = None


@attrs.frozen(kw_only=True)
class DoNotReachOperation:
    """One operation of a users batch (contract DNR-01)."""

    operation_type: BatchOperationType
    params: DoNotReachOperationParams


_ALL = "/12/accounts/{account_id}/do_not_reach_lists"

_LIST = Listing(_ALL, DoNotReachList)
_CREATE = Route("POST", _ALL, DoNotReachList)
_DELETE = Route("DELETE", "/12/accounts/{account_id}/do_not_reach_lists/{do_not_reach_list_id}", DoNotReachList)
USERS_BATCH = Listing(
    "/12/batch/accounts/{account_id}/do_not_reach_lists/{do_not_reach_list_id}/users",
    BatchCounts,
    method="POST",
    decides=True,
)
"""The route that sends operations; its answer has the counts of each (contract `do_not_reach_users.batch`)."""


@attrs.frozen(eq=False)
class DoNotReachLists:
    """The do-not-reach lists of one account, which has at most one (contract DNL-01)."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(self, *, with_deleted: bool | None = None) -> Pager[DoNotReachList]:
        """List the lists of the account.

        Args:
            with_deleted: include deleted ones.

        Contract: DNL-03, `do_not_reach_lists.list`.
        """
        return Pager(self._pipeline, _LIST(account_id=self.account_id, with_deleted=with_deleted))

    async def create(self, *, description: str | None = None) -> DoNotReachList:
        """Create the list of an account that has none; the service names it, and it is empty.

        Contract: DNL-02, `do_not_reach_lists.create`.
        """
        return await self._pipeline.send(_CREATE(account_id=self.account_id, description=description))

    async def delete(self, do_not_reach_list_id: str) -> DoNotReachList:
        """Delete a list and return its record, with `deleted` true.

        Contract: DNR-06, `do_not_reach_lists.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=self.account_id, do_not_reach_list_id=do_not_reach_list_id))
