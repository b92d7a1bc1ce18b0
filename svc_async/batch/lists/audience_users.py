"""The users of a custom audience: one request, or batches of any number of rows."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import attrs

from svc_async.ads.custom_audiences import USERS_BATCH, BatchCounts, BatchOperationType
from svc_async.batch.lists.user_list import Members, Operation, Ordering, Rules, UserList, months_after, settings_of
from svc_async.batch.receipts import Receipts
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.uploader import Observers
from svc_async.users.identifiers import IDENTIFIERS
from svc_async.wire.route import Request

__all__ = ["AudienceUsers"]

_RULES = Rules(
    identifiers=tuple(IDENTIFIERS),
    times=("effective_at", "expires_at"),
    pinned=lambda now: {"effective_at": now, "expires_at": months_after(now, 13)},  # contract CAU-06c
    begin="effective_at",
    contract={
        "operations": "CAU-01b",
        "bytes": "CAU-02",
        "type": "CAU-04",
        "users": "CAU-05",
        "times": "CAU-06",
        "end": "CAU-06b",
        "keys": "CAU-07",
        "values": "CAU-08",
    },
)


@attrs.frozen
class AudienceUsers(UserList[BatchCounts]):
    """The users of one custom audience.

    Attributes:
        counted: what `success_count` and `total_count` count.

    Contract: CAU-01 to CAU-12, `custom_audience_users.batch`.
    """

    custom_audience_id: str

    async def send(self, operations: Sequence[Operation]) -> BatchCounts:
        """Send one request, which the service accepts or refuses as a whole.

        Values must be hashes already, except those of `partner_user_id`; `upload` and `apply` hash for you.

        Args:
            operations: 1 to 2,500, of up to 5,000,000 bytes of JSON.

        Raises:
            InvalidArgument: names the operation, the user and the rule that it breaks.
            UnexpectedAnswer: the service counted other users than were sent, so none is accepted: send them again.

        Contract: `custom_audience_users.batch`.
        """
        return await self._send(operations)

    async def upload(
        self,
        members: Members,
        *,
        effective_at: datetime | None = None,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Add members to the audience, or renew them, however many there are.

        Values may be raw, and are then normalised and hashed, or hashes already. A row that breaks a rule fails by
        itself. Rows that share their first identifier, in the order partner_user_id, svc_id, email, phone_number,
        handle, device_id, arrive in their order; rows that share only a later one are not ordered.

        Args:
            members: mappings with the service's keys, each a string or several; or `Rows`, which is faster.
            effective_at: when they become members; now, if not given.
            expires_at: when they cease to be; 13 months from now, if not given.
            phone_region: the region of national phone numbers, such as `DE`; needs the extra `phone`.
            concurrency: the most requests under way.
            users_per_operation: how many users share an operation; with 1, a refusal names the row at once.
            ordering: `none` saves a little where no key comes twice; it does not coalesce.
            quarantine: seconds for which rows of the same lane wait after a request of unknown outcome.
            retry_delays: seconds before each repeat of a request; its rows fail when they are used up.
            journal: a file that tells what is settled. The same call after any end, a kill included, then goes on where
                the job had come to; when it was finished, it gives its report. It takes the same source: one that can
                be read again, such as a list or an object with `__iter__`; what an iterator gives is put on the disk
                beside the journal first, hashed. `concurrency` is that of the first call.
            progress: told how far the job is.
            on_receipt: told of each request that settled rows.
            on_failure: told of each row that failed; the report lists the first 10,000.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.
            BatchError: the job could not be finished; `report` says what became of the rows that were read.

        Contract: `custom_audience_users.batch`.
        """
        kind = self._kind("Update", effective_at=effective_at, expires_at=expires_at)
        settings = settings_of(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        observers = Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure)
        return await self._job(self._of_members(members, kind, phone_region), settings, observers, journal).run()

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        effective_at: datetime | None = None,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        concurrency: int = 32,
        users_per_operation: int = 25,
        ordering: Ordering = "key",
        quarantine: float = 120.0,
        retry_delays: Sequence[float] = (0, 60, 300),
        journal: str | Path | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[BatchCounts]:
        """Upload or remove members and give the receipts as they come; the result's `report` is there at any time.

        Use it as a context manager, or iterate to the end.

        Args:
            members: as for `upload`.
            operation_type: `Update` or `Delete`.
            effective_at: as for `upload`; a Delete goes without.
            expires_at: as for `upload`; a Delete goes without.
            phone_region: as for `upload`.
            concurrency: as for `upload`.
            users_per_operation: as for `upload`.
            ordering: as for `upload`.
            quarantine: as for `upload`.
            retry_delays: as for `upload`.
            journal: as for `upload`.
            progress: as for `upload`.
            on_failure: as for `upload`.

        Raises:
            InvalidArgument: a setting breaks a rule; nothing was read. Or the journal is in use, or is of another job
                or source; nothing was sent.

        Contract: `custom_audience_users.batch`.
        """
        kind = self._kind(operation_type, effective_at=effective_at, expires_at=expires_at)
        settings = settings_of(concurrency, users_per_operation, ordering, quarantine, retry_delays)
        source = self._of_members(members, kind, phone_region)
        return self._receipts(source, settings, progress, on_failure, journal, of=kind.operation_type)

    @property
    def _rules(self) -> Rules:
        return _RULES

    def _request(self) -> Request[BatchCounts]:
        return USERS_BATCH(account_id=self.account_id, custom_audience_id=self.custom_audience_id)

    def _counts(self, answer: BatchCounts, sent: int) -> bool:
        """Compare the counts (contract CAU-10, CAU-12)."""
        return answer.success_count == answer.total_count == sent
