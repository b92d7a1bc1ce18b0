"""The users of a do-not-reach list: one request, or batches of any number of rows."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, Unpack

import attrs

from svc_async.ads.do_not_reach_lists import USERS_BATCH, BatchCounts
from svc_async.ads.vocabulary import MEMBERSHIP_MONTHS, BatchOperationType
from svc_async.batch.job import TargetSpec, read_job
from svc_async.batch.options import UserStreamOptions, UserUploadOptions
from svc_async.batch.report import Report
from svc_async.batch.uploader import Receipts
from svc_async.clock import months_after
from svc_async.lists.members import Members
from svc_async.lists.operations import ListRules, Operation
from svc_async.lists.user_list import UserList
from svc_async.users.names import DO_NOT_REACH_USERS
from svc_async.wire.envelope import Page
from svc_async.wire.route import Request

__all__ = ["DoNotReachUsers"]

_MARGIN = timedelta(hours=1)
"""How far a default end stays below the latest one, since the service's clock may be behind ours."""


def _latest_end(now: datetime) -> datetime:
    return months_after(now, MEMBERSHIP_MONTHS)


# Unspecified: the most operations and bytes, and the latest end (contract UNS-dnr-limits); they are those of audiences.
_RULES = ListRules(
    identifiers=tuple(DO_NOT_REACH_USERS.keys),
    times=("expires_at",),
    # Unspecified: whether the end must be given (contract CON-05); one that is given is right in any case.
    default_times=lambda now: {"expires_at": _latest_end(now) - _MARGIN},
    begin="now",
    latest_end=_latest_end,
    contract={
        "operations": "UNS-dnr-limits",
        "bytes": "UNS-dnr-limits",
        "type": "DNR-01",
        "users": "DNR-01",
        "times": "DNR-04",
        "end": "DNR-04",
        "keys": "DNR-03",
        "values": "DNR-03",
    },
)


@attrs.frozen
class DoNotReachUsers(UserList[Page[BatchCounts]]):
    """The users of one do-not-reach list.

    A user has `email` and `phone_number` (contract DNR-03); an operation has `expires_at`, which is within 13 months,
    and no `effective_at` (contract DNR-01, DNR-04).

    Attributes:
        counted: what `success_count` and `total_count` count.

    Contract: DNR-01 to DNR-04, `do_not_reach_users.batch`.
    """

    _rules: ClassVar[ListRules] = _RULES

    do_not_reach_list_id: str

    async def send(self, operations: Sequence[Operation]) -> Sequence[BatchCounts]:
        """Send one request, which the service accepts or refuses as a whole.

        Values must be hashes already; `upload` and `apply` hash for you.

        Args:
            operations: 1 to 2,500, of up to 5,000,000 bytes of JSON.

        Returns:
            The counts of each operation.

        Raises:
            InvalidArgument: names the operation, the user and the rule that it breaks.
            UnexpectedAnswer: the answer does not confirm what was sent; it may be that to another request.
            SvcError: any other failure. After one whose `sent` is `maybe`, and after an UnexpectedAnswer, the request
                may still be applied: wait two minutes before you send it again, and send nothing newer about its users
                before.

        Contract: `do_not_reach_users.batch`.
        """
        return (await self._send(operations)).items

    async def upload(
        self, members: Members, *, expires_at: datetime | None = None, **options: Unpack[UserUploadOptions]
    ) -> Report:
        """Add any number of members to the list, or renew them.

        Arguments, settings and exceptions: see `AudienceUsers.upload`.

        Contract: `do_not_reach_users.batch`.
        """
        known = UserUploadOptions.__optional_keys__
        running = self._run(read_job("upload", options, known, target=self._target, expires_at=expires_at), members)
        del members  # its rows must not be among the locals of a traceback
        return await running

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        expires_at: datetime | None = None,
        **options: Unpack[UserStreamOptions],
    ) -> Receipts[Page[BatchCounts]]:
        """Upload or remove members, and iterate over the receipts as they come; `report` is available at any time.

        Arguments, settings and exceptions: see `AudienceUsers.stream`.

        Contract: `do_not_reach_users.batch`.
        """
        return self._stream(members, self._build_operation(operation_type, expires_at=expires_at), options)

    def _build_request(self) -> Request[Page[BatchCounts]]:
        return USERS_BATCH(account_id=self.account_id, do_not_reach_list_id=self.do_not_reach_list_id)

    @property
    def _target(self) -> TargetSpec:
        return TargetSpec(kind="do_not_reach_list", account_id=self.account_id, list_id=self.do_not_reach_list_id)

    def _confirms(self, answer: Page[BatchCounts], sent: int) -> bool:
        """Compare the sums of the counts of the operations (contract DNR-02)."""
        succeeded = sum(counts.success_count for counts in answer.items)
        return succeeded == sum(counts.total_count for counts in answer.items) == sent
