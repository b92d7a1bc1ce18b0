"""The users of a custom audience: one request, or batches of any number of rows."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import attrs

from svc_async.ads.custom_audiences import USERS_BATCH, BatchCounts, BatchOperationType
from svc_async.ads.vocabulary import MEMBERSHIP_MONTHS
from svc_async.batch.cluster.calls import ClusterClient, ClusterSource, ListIds
from svc_async.batch.journal.ledger import JournalPath
from svc_async.batch.lists.members import Members, open_members
from svc_async.batch.lists.operations import Operation
from svc_async.batch.lists.rules import ListRules
from svc_async.batch.lists.user_list import UserList
from svc_async.batch.receipts import Receipts
from svc_async.batch.report import Failure, Progress, Receipt, Report
from svc_async.batch.settings import DEFAULTS, BatchSettings, Observers, Ordering, Reading
from svc_async.batch.sync.audience import AudienceTarget, MemberRows
from svc_async.batch.sync.location import StateLocation, check_location, check_shared, open_sync_state
from svc_async.batch.sync.plan import PARTS, Plan
from svc_async.batch.sync.report import SyncReport
from svc_async.batch.sync.settings import SYNC_DEFAULTS, SyncObservers, SyncSettings
from svc_async.batch.sync.snapshot import SliceSpill, Snapshot
from svc_async.batch.sync.sync import Sync, make_sending_hooks
from svc_async.clock import months_after
from svc_async.users.encoding import BadIdentifiers
from svc_async.users.identifiers import IDENTIFIERS
from svc_async.wire.route import Request

__all__ = ["AudienceUsers"]

_RULES = ListRules(
    identifiers=tuple(IDENTIFIERS),
    times=("effective_at", "expires_at"),
    default_times=lambda now: {
        "effective_at": now,
        "expires_at": months_after(now, MEMBERSHIP_MONTHS),
    },  # contract CAU-06c
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
            UnexpectedAnswer: the answer does not confirm what was sent; it may be that to another request.
            SvcError: any other failure. After one whose `sent` is `maybe`, and after an UnexpectedAnswer, the request
                may still be applied: wait two minutes before you send it again, and send nothing newer about its users
                before.

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
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        cluster: ClusterClient | None = None,
        shards: int | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Report:
        """Add any number of members to the audience, or renew them.

        Arguments, settings and exceptions: see `UserList.upload`.

        Args:
            effective_at: when they become members; by default now.

        Contract: `custom_audience_users.batch`.
        """
        job = self._run_members(
            members,
            self._build_operation(BatchOperationType.UPDATE, effective_at=effective_at, expires_at=expires_at),
            BatchSettings(
                concurrency=concurrency,
                users_per_operation=users_per_operation,
                ordering=ordering,
                quarantine=quarantine,
                retry_delays=retry_delays,
            ),
            Observers(progress=progress, on_receipt=on_receipt, on_failure=on_failure),
            reading=Reading(phone_region, bad_identifiers),
            journal=journal,
            cluster=cluster,
            shards=shards,
        )
        del members  # its rows must not be among the locals of a traceback
        return await job

    async def sync(
        self,
        members: Members,
        *,
        state: StateLocation,
        dry_run: bool = SYNC_DEFAULTS.dry_run,
        max_removal_share: float = SYNC_DEFAULTS.max_removal_share,
        refresh_within: timedelta = SYNC_DEFAULTS.refresh_within,
        lifetime: timedelta | None = None,
        phone_region: str | None = None,
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        cluster: ClusterClient | None = None,
        on_plan: Callable[[Plan], object] | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_receipt: Callable[[Receipt], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
        on_removal_failure: Callable[[Failure], object] | None = None,
        on_wait: Callable[[float], object] | None = None,
    ) -> SyncReport:
        """Make the audience equal to a source, by sending only the differences from the last sync.

        Members who were added by other means are left untouched. Settings: see `SyncSettings` and `BatchSettings`.
        Observers: see `SyncObservers`.

        Args:
            members: the path of a file, or members as in `upload` that can be iterated again: all who are to belong to
                the audience. They are read once, and kept in an unnamed temporary file: next to the state, or in the
                folder for temporary files.
            state: what keeps what was accepted: the path of a file, one for each audience; or a `SharedState`, where
                several machines may run the sync: one that begins ends another one of the same audience.
            lifetime: how long members stay that are sent, at least a day; by default 13 months.
            phone_region: the region of national phone numbers, such as `DE`; needs the extra `phone`.
            bad_identifiers: whether a row with an identifier that breaks its rule fails ("fail"), or is sent with its
                other identifiers ("drop"); `Report.partly_valid` counts these rows.
            cluster: a `distributed.Client(..., asynchronous=True)` whose workers read and hash the members: the path,
                pattern or URL of files. This process compares and sends them, with a `SharedState`; failures have
                their file and row. If a part of the source cannot be read, nothing is sent.

        Raises:
            InvalidArgument: invalid setting or source, or too many members would be removed; nothing was sent.
            UnusableFile: the state or a file cannot be used, is locked or belongs to another list; nothing was sent.
            StateUnavailable: the shared state cannot be reached; nothing was sent.
            TakenUpElsewhere: another process began the same sync while this one compared; nothing was sent. Later, it
                is the cause of the BatchError.
            BatchError: the sync could not be finished; `report` is a `SyncReport`. Repeat the call to finish it.

        Contract: `custom_audience_users.batch`.
        """
        check_location(state)
        settings = SyncSettings(dry_run=dry_run, max_removal_share=max_removal_share, refresh_within=refresh_within)
        batch = BatchSettings(
            concurrency=concurrency,
            users_per_operation=users_per_operation,
            ordering=ordering,
            quarantine=quarantine,
            retry_delays=retry_delays,
        )
        observers = SyncObservers(
            on_plan=on_plan,
            progress=progress,
            on_receipt=on_receipt,
            on_failure=on_failure,
            on_removal_failure=on_removal_failure,
            on_wait=on_wait,
        )
        target = f"audience {self.account_id} {self.custom_audience_id} at {self._host}"
        reading = Reading(phone_region, bad_identifiers)
        opening = self._open_snapshot(members, state, reading, observers, cluster)
        del members  # its rows must not be among the locals of a traceback
        async with (
            opening as snapshot,
            open_sync_state(state, target) as store,
        ):
            with SliceSpill(store.folder) as spill:
                return await Sync(
                    target=AudienceTarget(
                        users=attrs.evolve(self, **make_sending_hooks(store, self._sender.clock)),
                        snapshot=snapshot,
                        spill=spill,
                        lifetime=lifetime,
                        settings=batch,
                    ),
                    state=store,
                    settings=settings,
                    observers=observers,
                    sender=self._sender,
                    requests=dict.fromkeys(PARTS, self._build_request()),
                ).run()

    @asynccontextmanager
    async def _open_snapshot(
        self,
        members: Members | Snapshot,
        state: StateLocation,
        reading: Reading,
        observers: Observers,
        cluster: ClusterClient | None,
    ) -> AsyncGenerator[Snapshot]:
        """Open the members of a sync, here or on a cluster; a command has opened them already."""
        if cluster is not None:
            check_shared(state)
            source = ClusterSource(
                client=cluster, ids=self._describe_list(), source=members, reading=reading, observers=observers
            )
            async with self.cluster_runner.open_snapshot(source) as snapshot:
                yield snapshot
        elif isinstance(members, Snapshot):
            yield members
        else:
            async with open_members(members, self._rules.identifiers) as rows:
                yield MemberRows(rows, reading)

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        effective_at: datetime | None = None,
        expires_at: datetime | None = None,
        phone_region: str | None = None,
        bad_identifiers: BadIdentifiers = "fail",
        concurrency: int = DEFAULTS.concurrency,
        users_per_operation: int = DEFAULTS.users_per_operation,
        ordering: Ordering = DEFAULTS.ordering,
        quarantine: float = DEFAULTS.quarantine,
        retry_delays: Sequence[float] = DEFAULTS.retry_delays,
        journal: JournalPath | None = None,
        progress: Callable[[Progress], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
    ) -> Receipts[BatchCounts]:
        """Upload or remove members, and iterate over the receipts as they come; `report` is available at any time.

        Use the result as a context manager, or iterate to the end.
        Arguments, settings and exceptions: see `UserList.upload`.

        Args:
            operation_type: `Update` or `Delete`.
            effective_at: when they become members; by default now. A Delete has no times.

        Contract: `custom_audience_users.batch`.
        """
        operation = self._build_operation(operation_type, effective_at=effective_at, expires_at=expires_at)
        return self._stream(
            self._read(members, operation, Reading(phone_region, bad_identifiers)),
            BatchSettings(
                concurrency=concurrency,
                users_per_operation=users_per_operation,
                ordering=ordering,
                quarantine=quarantine,
                retry_delays=retry_delays,
            ),
            Observers(progress=progress, on_failure=on_failure),
            journal,
            purpose=operation.operation_type,
        )

    @property
    def _rules(self) -> ListRules:
        return _RULES

    def _build_request(self) -> Request[BatchCounts]:
        return USERS_BATCH(account_id=self.account_id, custom_audience_id=self.custom_audience_id)

    def _describe_list(self) -> ListIds:
        return {"kind": "audience", "account_id": self.account_id, "list_id": self.custom_audience_id}

    def _confirms(self, answer: BatchCounts, sent: int) -> bool:
        """Compare the counts (contract CAU-10, CAU-12)."""
        return answer.success_count == answer.total_count == sent
