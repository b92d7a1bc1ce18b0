"""The users of a custom audience: one request, or batches of any number of rows."""

from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Unpack

import attrs

from svc_async.ads.custom_audiences import USERS_BATCH, BatchCounts, BatchOperationType
from svc_async.ads.vocabulary import MEMBERSHIP_MONTHS
from svc_async.batch.job import Job, StateLocation, TargetSpec, read_job
from svc_async.batch.ledger import Ledger
from svc_async.batch.options import AudienceSyncOptions, UserStreamOptions, UserUploadOptions
from svc_async.batch.plan import PARTS, SyncReport
from svc_async.batch.report import Report
from svc_async.batch.settings import Reading
from svc_async.batch.uploader import Receipts
from svc_async.clock import months_after
from svc_async.lists.members import Members, open_members
from svc_async.lists.operations import ListRules, Operation
from svc_async.lists.user_list import UserList
from svc_async.sync.audience import AudienceTarget, MemberRows
from svc_async.sync.ledger import PartJob
from svc_async.sync.snapshot import Snapshot
from svc_async.sync.sync import run_sync
from svc_async.users.encoding import EncodedSlices
from svc_async.users.identifiers import IDENTIFIERS
from svc_async.users.tables import Columns
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

    _rules: ClassVar[ListRules] = _RULES

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
        **options: Unpack[UserUploadOptions],
    ) -> Report:
        """Add any number of members to the audience, or renew them.

        Values may be raw, and are then normalised and hashed, or hashes already. A row that breaks a rule fails by
        itself. Rows that share their first identifier, in the order partner_user_id, svc_id, email, phone_number,
        handle, device_id, are applied in input order; rows that share only a later one are not ordered.

        A `str` or `Path` is the path or `file://` URL of a local file: CSV, TSV, JSON lines or Parquet, compressed or
        not. The format is detected from the content. The file is checked before anything is sent. For mapped columns
        or other encodings, pass the `rows()` of `svc_async.sources.detect.open_source`. No other URL is fetched.

        Args:
            members: mappings with the service's keys, each a string or several; `Rows` or `Columns`, which are faster;
                a table of Arrow, whose columns are recognised as those of a file; or a file.
            effective_at: when they become members; by default now.
            expires_at: when they cease to be members; by default in 13 months.
            options: see `UserUploadOptions` in `svc_async.batch.options`.

        Raises:
            InvalidArgument: invalid setting (nothing read).
            UnusableFile: the file cannot be read, or the journal is locked or belongs to another job or source
                (nothing sent).
            BatchError: the job could not be finished; `report` says what became of the rows that were read.

        Contract: `custom_audience_users.batch`.
        """
        job = read_job(
            "upload",
            options,
            UserUploadOptions.__optional_keys__,
            target=self._target,
            effective_at=effective_at,
            expires_at=expires_at,
        )
        running = self._run(job, members)
        del members  # its rows must not be among the locals of a traceback
        return await running

    async def sync(
        self,
        members: Members,
        *,
        state: StateLocation,
        lifetime: timedelta | None = None,
        **options: Unpack[AudienceSyncOptions],
    ) -> SyncReport:
        """Make the audience equal to a source, by sending only the differences from the last sync.

        Members who were added by other means are left untouched.

        Args:
            members: the path of a file, or members as in `upload` that can be iterated again: all who are to belong to
                the audience. They are read once, and kept in an unnamed temporary file: next to the state, or in the
                folder for temporary files.
            state: what keeps what was accepted: the path of a file, one for each audience; or a `SharedState`, where
                several machines may run the sync: one that begins ends another one of the same audience.
            lifetime: how long members stay that are sent, at least a day; by default 13 months.
            options: see `AudienceSyncOptions` in `svc_async.batch.options`.

        Raises:
            InvalidArgument: invalid setting or source, or too many members would be removed; nothing was sent.
            UnusableFile: the state or a file cannot be used, is locked or belongs to another list; nothing was sent.
            StateUnavailable: the shared state cannot be reached; nothing was sent.
            TakenUpElsewhere: another process began the same sync while this one compared; nothing was sent. Later, it
                is the cause of the BatchError.
            BatchError: the sync could not be finished; `report` is a `SyncReport`. Repeat the call to finish it.

        Contract: `custom_audience_users.batch`.
        """
        known = AudienceSyncOptions.__optional_keys__
        job = read_job("sync", options, known, target=self._target, operation="sync", state=state)
        running = self._sync(job, members, lifetime)
        del members  # its rows must not be among the locals of a traceback
        return await running

    def run_job(
        self, job: Job, members: Any = None, *, ledger: Ledger | None = None
    ) -> Coroutine[Any, Any, Report | SyncReport]:
        """Run an upload, a removal or a sync that a value describes, as `jobs.run.run` does with a file.

        Arguments: see `DoNotReachUsers.run_job`.
        """
        return self._sync(job, members) if job.operation == "sync" else self._run(job, members, ledger)

    async def _sync(self, job: Job, members: Any, lifetime: timedelta | None = None) -> SyncReport:
        running = run_sync(
            job,
            members,
            partial(self._open_snapshot, reading=job.reading),
            lambda snapshot, spill: AudienceTarget(
                send_part=self._send_part, snapshot=snapshot, spill=spill, lifetime=lifetime, settings=job.settings
            ),
            parameter="members",
            name=self._state_name,
            sender=self._sender,
            requests=dict.fromkeys(PARTS, self._build_request()),
        )
        del members
        return await running

    async def _send_part(
        self,
        operation_type: BatchOperationType,
        members: Columns | EncodedSlices,
        part: PartJob,
        expires_at: datetime | None,
    ) -> Report:
        """Send a part of a sync."""
        job = Job(
            target=self._target,
            operation="upload" if operation_type == BatchOperationType.UPDATE else "remove",
            expires_at=expires_at,
            settings=part.settings,
            observers=part.observers,
        )
        return await self._run(job, members, part.ledger)

    @asynccontextmanager
    async def _open_snapshot(self, members: Any, *, reading: Reading) -> AsyncGenerator[Snapshot]:
        async with open_members(members, self._rules.identifiers) as rows:
            yield MemberRows(rows, reading)

    def stream(
        self,
        members: Members,
        *,
        operation_type: BatchOperationType | str = BatchOperationType.UPDATE,
        effective_at: datetime | None = None,
        expires_at: datetime | None = None,
        **options: Unpack[UserStreamOptions],
    ) -> Receipts[BatchCounts]:
        """Upload or remove members, and iterate over the receipts as they come; `report` is available at any time.

        Use the result as a context manager, or iterate to the end.
        Arguments, settings and exceptions: see `upload`.

        Args:
            operation_type: `Update` or `Delete`.
            effective_at: when they become members; by default now. A Delete has no times.
            options: see `UserStreamOptions` in `svc_async.batch.options`.

        Contract: `custom_audience_users.batch`.
        """
        operation = self._build_operation(operation_type, effective_at=effective_at, expires_at=expires_at)
        return self._stream(members, operation, options)

    def _build_request(self) -> Request[BatchCounts]:
        return USERS_BATCH(account_id=self.account_id, custom_audience_id=self.custom_audience_id)

    @property
    def _target(self) -> TargetSpec:
        return TargetSpec(kind="audience", account_id=self.account_id, list_id=self.custom_audience_id)

    def _confirms(self, answer: BatchCounts, sent: int) -> bool:
        """Compare the counts (contract CAU-10, CAU-12)."""
        return answer.success_count == answer.total_count == sent
