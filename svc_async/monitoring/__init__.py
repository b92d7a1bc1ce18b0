"""What the SDK reports about its own work, for logs, metrics and spans; and the functions that receive it.

Every event is a frozen value. None contains a secret, personal data, the value of a query or the contents of a row.
"""

import logging
from collections.abc import Callable, Sequence
from contextvars import Context
from datetime import datetime
from typing import Any

import attrs

from svc_async.counts import Counts
from svc_async.errors import ErrorDetail, SvcError
from svc_async.value_rules import PLAIN_FUNCTION, or_none

__all__ = [
    "CallEvent",
    "DeliveryEvent",
    "HandlingEndedEvent",
    "HandlingStartedEvent",
    "LimitExceededEvent",
    "LimitWaitEvent",
    "RowsEvent",
    "StreamGapEvent",
    "StreamLagEvent",
    "StreamStateEvent",
    "Subscribers",
]

_log = logging.getLogger("svc_async")


@attrs.frozen(kw_only=True)
class CallEvent:
    """One attempt of one call.

    Attributes:
        method: the HTTP method.
        path: the path as the reference prints it, without ids; of `Session.request`, its beginning only.
        base_path: the path of the base URL, which comes before it; usually empty.
        host: the host of the service.
        port: its port.
        is_secure: whether it is reached by HTTPS.
        account: the id of the ad account in the path, if it names one.
        attempt: the number of the attempt, from 1.
        started: when the attempt began, before its wait at the governor.
        monotonic: the same by the monotonic clock, in seconds.
        seconds: how long the attempt took, the wait at the governor included.
        waited: how many of these seconds it waited at the governor; never more than `seconds`.
        backoff: the seconds between the failure of the attempt before and this one; 0 for the first.
        bytes_sent: the size of the body of the request; 0 if nothing was sent.
        bytes_received: the size of the body of the answer, decompressed.
        status: the status of the answer; None without an answer.
        request_id: the server-assigned request id, if any.
        error: why the attempt failed, if it did.
        is_cancelled: the caller cancelled it; whether it had an effect is unknown.
        errors: errors that the main API reports in an answer of success.
        misfits: what is left out of the value of an answer because it does not fit: places and rules, no values.
        unreadable: how many records of a page could not be read; they are in `page.unreadable`.
    """

    method: str
    path: str
    base_path: str = ""
    host: str
    port: int
    is_secure: bool
    account: str | None
    attempt: int
    started: datetime
    monotonic: float
    seconds: float
    waited: float
    backoff: float
    bytes_sent: int
    bytes_received: int
    status: int | None
    request_id: str | None
    error: SvcError | None
    is_cancelled: bool = False
    errors: Sequence[ErrorDetail] = ()
    misfits: Sequence[str] = ()
    unreadable: int = 0


@attrs.frozen(kw_only=True)
class LimitWaitEvent:
    """A request waited at the governor, and was then granted.

    Attributes:
        limit: the name of its limit.
        account: the id of the ad account, if the path names one.
        seconds: how long it waited.
        priority: `interactive`, or `bulk` for the requests of a job.
    """

    limit: str
    account: str | None
    seconds: float
    priority: str


@attrs.frozen(kw_only=True)
class LimitExceededEvent:
    """The service refused a request for its rate (429).

    Attributes:
        limit: the name of its limit.
        account: the id of the ad account, if the path names one.
        closed_until: until when the governor grants nothing from this limit.
    """

    limit: str
    account: str | None
    closed_until: datetime | None


@attrs.frozen(kw_only=True)
class RowsEvent(Counts):
    """How much the counts of a job have changed since its last event; reported with each request that settles rows.

    Attributes:
        path: the path of its requests as the reference prints it.
        account: the id of the ad account.
        in_doubt: how many rows are now pending after they were sent without a conclusive answer; 0 once the job ends.
        in_doubt_change: how many more these are than in the last event.
    """

    path: str
    account: str | None
    in_doubt_change: int


@attrs.frozen(kw_only=True)
class StreamStateEvent:
    """The connection of a stream has changed.

    Attributes:
        path: the path of the stream as the reference prints it.
        state: `connecting`, `open`, `backoff` (disconnected, with a wait before the next connection) or `closed`.
        error: the error that ended the connection or the stream, if any.
        wait: seconds until the next connection, in the state `backoff`.
    """

    path: str
    state: str
    error: SvcError | None
    wait: float | None


@attrs.frozen(kw_only=True)
class StreamGapEvent:
    """A stream had no connection for a while.

    Attributes:
        path: the path of the stream as the reference prints it.
        seconds: how long.
        recovery: how its events were requested: `backfill`, `replay` or `none`, when they are lost.
    """

    path: str
    seconds: float
    recovery: str


@attrs.frozen(kw_only=True)
class StreamLagEvent:
    """How far a stream is behind; reported at most once a second, while events are taken.

    Attributes:
        path: the path of the stream as the reference prints it.
        lag: the seconds that the event taken last had waited in the queue.
        waiting: events that are in the queue now.
    """

    path: str
    lag: float
    waiting: int


@attrs.frozen(kw_only=True)
class DeliveryEvent:
    """A receiver has answered a delivery.

    Attributes:
        reason: why it was rejected, such as `signature_wrong`; None if it was verified and accepted.
        started: when it was received.
        seconds: how long its answer took.
        events: how many events it contains; 0 if it was rejected.
        bytes_received: the size of its body, as far as it was read.
    """

    reason: str | None
    started: datetime
    seconds: float
    events: int
    bytes_received: int


@attrs.frozen(kw_only=True)
class HandlingStartedEvent:
    """The handlers of an event are about to be called, in the same task.

    Attributes:
        event_type: the type of the event.
        context: the context in which the delivery was received; None if the event was left by an earlier receiver.
    """

    event_type: str
    context: Context | None = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class HandlingEndedEvent:
    """The handlers of an event have returned; reported in the same task as the start.

    Attributes:
        event_type: the type of the event.
        started: when they were called.
        seconds: how long they took.
        handlers: how many were called; 0 if none is registered for the type.
        error_type: the type of the exception that one of them raised, if one did.
        handler: the module and the qualified name of the one that raised it.
    """

    event_type: str
    started: datetime
    seconds: float
    handlers: int
    error_type: str | None
    handler: str | None = None


class Subscribers:
    """The functions that receive the events of a session or of a receiver.

    Attributes:
        functions: the functions; without any, no event need be made.
    """

    def __init__(self, function: Callable[[Any], object] | None = None) -> None:
        or_none(PLAIN_FUNCTION).check("on_event", function)
        self.functions: tuple[Callable[[Any], object], ...] = () if function is None else (function,)

    def add(self, function: Callable[[Any], object]) -> Callable[[], None]:
        """Call a function with every event from now on; return a function that ends this.

        Raises:
            InvalidArgument: it is not a plain function of one argument.
        """
        PLAIN_FUNCTION.check("function", function)
        self.functions = (*self.functions, function)

        def end() -> None:
            self.functions = tuple(each for each in self.functions if each is not function)

        return end

    def notify(self, event: object) -> None:
        """Call the functions with an event; an exception in one is logged, by its type, and has no other effect."""
        for function in self.functions:
            try:
                function(event)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as problem:  # noqa: BLE001 - an observer must not change what it observes
                _log.error("on_event failed: %s", type(problem).__name__)
