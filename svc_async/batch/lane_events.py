"""What happens to a lane, and what it commands; `batch/lane.py` is the machine between them."""

from array import array
from collections.abc import Sequence

import attrs

from svc_async.batch.destination import Verdict
from svc_async.batch.packing.batch import Batch
from svc_async.batch.report import Receipt
from svc_async.errors import SvcError

__all__ = [
    "Abandoned",
    "Answered",
    "Command",
    "Elapsed",
    "Event",
    "Failed",
    "Pause",
    "Recorded",
    "Release",
    "Resumed",
    "Sealed",
    "Send",
    "Settle",
    "Stop",
    "Stopped",
    "Written",
]


@attrs.frozen
class Sealed:
    """Batches were sealed, newer than all before them."""

    batches: Sequence[Batch]


@attrs.frozen(kw_only=True)
class Resumed:
    """An earlier run left a batch unsettled.

    Attributes:
        superseded: positions of rows that are settled with it.
        in_doubt: whether it was sent and may have been applied.
        pause: seconds before it may be sent again.
    """

    batch: Batch
    superseded: "array[int]"
    in_doubt: bool
    pause: float


@attrs.frozen
class Recorded:
    """The ledger has recorded what it was asked to."""


@attrs.frozen
class Written:
    """The bytes of the request are written next; until then it certainly was not sent."""


@attrs.frozen
class Answered:
    """The request succeeded.

    Attributes:
        verdict: what the answer means for the rows; None if it counts other rows than were sent.
        request_id: the server-assigned request id, if any.
    """

    verdict: Verdict | None
    request_id: str | None = None


@attrs.frozen
class Failed:
    """The request failed.

    Attributes:
        error: the failure.
        pause: seconds that the service asks to wait, if it does.
    """

    error: SvcError
    pause: float | None = None


@attrs.frozen
class Elapsed:
    """The time to wait is over."""


@attrs.frozen
class Stopped:
    """The job ends; a request in flight is still answered."""


@attrs.frozen
class Abandoned:
    """Nobody executes the lane's command any more, because of a cancellation or a defect."""


@attrs.frozen
class Send:
    """Send the first batch: wait for its turn, record the intent, and then write the request."""


@attrs.frozen
class Release:
    """Record that the request had no effect."""


@attrs.frozen(kw_only=True)
class Settle:
    """Record the result of rows.

    Attributes:
        receipt: the rows.
        superseded: positions of rows that are settled with them, without having been sent.
        in_doubt: the rest of the batch, which the answer does not mention.
    """

    receipt: Receipt
    superseded: "array[int]"
    in_doubt: Batch | None = None


@attrs.frozen
class Pause:
    """Let time pass.

    Attributes:
        seconds: how much.
        after: the failure after which the first batch is sent again; None if an earlier run has sent it.
        gives_up: whether it is given up instead.
    """

    seconds: float
    after: SvcError | None = attrs.field(default=None, eq=False)
    gives_up: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class Stop:
    """End the job.

    Attributes:
        cause: the failure.
    """

    cause: SvcError


Event = Sealed | Resumed | Recorded | Written | Answered | Failed | Elapsed | Stopped | Abandoned
Command = Send | Release | Settle | Pause | Stop
