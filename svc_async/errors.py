"""Every exception of this SDK, by whose fault it is.

    SvcError                      .sent: no | maybe | yes   .repeatable: whether the same call may help   .retry_after
    │   the caller
    ├── InvalidArgument           an argument breaks a rule; also a ValueError
    ├── WrongState                the object cannot be used now: not open, already open, closed
    ├── AccessDenied              the session has no credentials of the kind that the call needs
    ├── UnusableFile              a file is missing, locked, unreadable, or holds something else
    ├── WouldWaitTooLong          a rate limit opens later than the caller is willing to wait
    │
    │   the shared state
    ├── StateUnavailable          its database cannot be reached
    ├── TakenUpElsewhere          another process has taken up the same job or sync
    ├── UnusableState             it holds something else than is expected, or belongs to another version
    │
    │   the network
    ├── TransportError            no answer arrived
    │   └── TimedOut              … in time
    ├── StreamDropped             an open stream ended
    ├── StreamOverflow            a stream's events arrive faster than they are consumed
    │
    │   the service
    ├── UnexpectedAnswer          an answer of success cannot be parsed
    ├── WebhookInvalid            a webhook fails its checks
    ├── AudienceNotReady          a custom audience cannot be targeted, or not in time
    ├── BatchError                a batch ended with rows that were not accepted
    └── ApiError                  the service refused the call
        ├── BadRequest            400
        ├── Unauthorized          401
        ├── Forbidden             403
        ├── NotFound              404
        ├── Conflict              409
        ├── RateLimited           429
        │   └── TooManyConnections    … because too many streams are open
        ├── UsageCapExceeded      429 of a cap that no wait opens
        └── ServerError           5xx

Which status raises which class, and what a failure means, is in `wire/outcome.py`.

An error of the caller may have a `Hint`, the next step, which `str(error)` adds to the message; an interface may have
words of its own for it, as the command does.

Messages have no secret or value that was sent: they name parameters, codes and positions, and quote the service's own
words, except those about refused operations, which may repeat what a row contains.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import PurePath
from typing import Any, ClassVar

import attrs

from svc_async.printable import clean, hide_people, join_first, replace_surrogates, shorten, strip_url

__all__ = [
    "AccessDenied",
    "ApiError",
    "AudienceNotReady",
    "BadRequest",
    "BatchError",
    "Conflict",
    "ErrorDetail",
    "Forbidden",
    "Hint",
    "InvalidArgument",
    "NotFound",
    "RateLimited",
    "Sent",
    "ServerError",
    "StateUnavailable",
    "StreamDropped",
    "StreamOverflow",
    "SvcError",
    "TakenUpElsewhere",
    "TimedOut",
    "TooManyConnections",
    "TransportError",
    "Unauthorized",
    "UnexpectedAnswer",
    "UnusableFile",
    "UnusableState",
    "UsageCapExceeded",
    "WebhookInvalid",
    "WouldWaitTooLong",
    "WrongState",
]


class Sent(StrEnum):
    """Whether a failed call was sent and may have had an effect, over all its attempts."""

    NO = "no"
    """It had no effect: nothing was written to a connection, or the service has turned every attempt away (429)."""
    MAYBE = "maybe"
    """Unknown: the connection failed after the request was begun, or the status says only that something failed."""
    YES = "yes"
    """It did: it was answered, and the status says what became of it; an answer that is unreadable may be a proxy's."""


@attrs.frozen(kw_only=True)
class ErrorDetail:
    """One reason of a refusal, from the service.

    Attributes:
        code: capitals with underscores on the advertising API, a number on the main API; empty if there is none.
        message: the service's own words, at most 1,000 characters of them; `…` stands for e-mail addresses and phone
            numbers, which a service may repeat from what it was sent.
        parameter: the parameter (or attribute) that is wrong.
    """

    code: str | int = ""
    message: str = ""
    parameter: str | None = None

    def __attrs_post_init__(self) -> None:
        for name, most in (("code", 200), ("message", 1_000), ("parameter", 200)):
            if isinstance(text := getattr(self, name), str):
                shown = hide_people(replace_surrogates(text[: 2 * most]))
                object.__setattr__(self, name, shorten(shown, most))


_OF_FILES = "of open_source or open_feed in svc_async.sources.detect"
_OF_TABLES = "of open_source, open_feed, from_arrow, from_rows or from_cursor"


class Hint(StrEnum):
    """The next step after an error; its value is the advice for callers in Python."""

    # files and tables
    NAME_THE_COLUMNS = f"name the columns with header=, {_OF_FILES}"
    NAME_THE_ENCODING = (
        f"save it as UTF-8, or name the encoding of the program that wrote it with encoding=, {_OF_FILES}: with "
        "another one, other letters are read, and other people are sent"
    )
    MAP_A_COLUMN = f"name what a column contains with mapping={{COLUMN: KEY}}, {_OF_TABLES}"
    MAP_OR_IGNORE = (
        "name what each contains with mapping={COLUMN: KEY}, ignore it with {COLUMN: '-'}, or ignore all of them with "
        f"{{'*': '-'}}, {_OF_TABLES}"
    )
    LEAVE_OUT_THE_COLUMN = f"if that identifies nothing, ignore its column with mapping={{COLUMN: '-'}}, {_OF_TABLES}"
    IGNORE_THE_OTHERS = f"ignore the others with mapping={{COLUMN: '-'}}, {_OF_TABLES}"
    NAME_EACH_COLUMN = "give each a name of its own"
    LIST_PRODUCT_KEYS = "products.list() yields the product_key of each id, and a sync deletes by id"
    SHARE_WITH_THREADS = "open it with sqlite3.connect(..., check_same_thread=False), or pass a list"
    USE_A_FEED = "XML is for products: open_feed reads it"
    DOWNLOAD_IT = "download it first"
    GIVE_ONE_FILE = "a pattern is not expanded: give one file at a time"

    # credentials
    GIVE_CREDENTIALS = "Session.from_env() reads them from the environment, Session.sandbox() needs none"
    SET_CREDENTIALS = "set them, or try without credentials: Session.sandbox()"
    NAME_THE_PROFILE = "SVC_PROFILE is read by the command only: use Session.from_profile(name)"
    STORE_A_PROFILE = "svc_async.profiles.write() makes one, or try without credentials: Session.sandbox()"
    GIVE_A_USER = (
        "pass UserCredentials, set SVC_ACCESS_TOKEN and SVC_ACCESS_TOKEN_SECRET, or add access_token and "
        "access_token_secret to the profile"
    )
    GIVE_AN_APP = "pass AppCredentials or a BearerToken"
    REQUEST_OFFLINE_ACCESS = "the scope `offline.access` grants one"

    # jobs and syncs
    LIST_ACCOUNTS = "session.accounts.list() yields yours"
    GIVE_AN_ID = "the page of the list in the ads manager shows it"
    GIVE_A_JOURNAL = "give the path of a journal, such as FILE.journal; a sync has a state instead"
    CREATE_THE_FOLDER = "create that first, or give another path"
    NAME_A_FILE = "name a file"
    LEAVE_THE_JOURNAL_OUT = "leave journal= out for a job that cannot be resumed"
    GIVE_A_STATE = "give the file of an earlier sync, or a new name"
    SEND_AGAIN = "delete it after the quarantine and run the job again: what the service has already is sent once more"
    GIVE_THE_SAME_ROWS = (
        "make the same call with the same rows, or with an iterator of them, such as (row for row in rows), which the "
        "journal stores before anything is sent"
    )
    GIVE_ALL_ROWS = "pass all rows again, or delete the journal if no rows are left; nothing was sent"
    GIVE_ITS_SOURCE = (
        "resume it with its own source, or delete it to give up what it left; a new job needs a new journal"
    )
    NAME_A_NEW_JOURNAL = "a new job needs a new journal: journal=Journals(folder) names one for each run"
    KEEP_THE_SETTINGS = "a job is resumed with the settings that it was begun with; a new job needs a new journal"
    USE_A_FILE = "use a file as source"
    SYNC_ANEW = "without it, the next sync sends all rows and removes none: move the file away"
    RESTORE_OR_DELETE = "restore it from a backup, or delete it"
    RENAME_THE_JOB = "begin a job of another name, after the quarantine"
    RESTORE_THE_SOURCE = "restore it, or begin a job of another name"
    RESTORE_THE_DATABASE = "restore the database from a backup"
    READ_THE_LOG = "its log says why; if its tables were changed or are damaged, restore them from a backup"

    # sessions and shared states
    OPEN_IT = "use it inside `async with`, or between open() and close() where it has them"
    MAKE_ANOTHER_SESSION = "make another one with as_user() or but()"
    KEEP_EVENTS_IN_MEMORY = "Ack.enqueue() and MemoryDedupe() keep events in memory"
    RUN_ONE_RECEIVER = "start this one when that has ended, or have them share a SharedState by state="
    MIGRATE = "enter SharedState.open(url) once, as a role that may create them"


class SvcError(Exception):
    """The base class of every exception of this SDK."""

    sent: Sent = Sent.NO
    repeatable: bool = False
    retry_after: float | None = None  # seconds from when the call failed, by the clock of its session; if known
    rule_ids: tuple[str, ...] = ()  # the rules of the service's contract that are broken, such as CAU-06b

    def __init__(self, *args: object, hint: Hint | None = None) -> None:
        super().__init__(*args)
        self.hint = hint  # what to do next

    def __str__(self) -> str:
        message = clean(super().__str__())  # messages quote names and the service's words
        return f"{message}; {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions can be pickled although their constructors are keyword-only.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[SvcError], args: tuple[Any, ...], state: dict[str, Any]) -> SvcError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class InvalidArgument(SvcError, ValueError):
    """An argument breaks a rule that can be checked without the service.

    Attributes:
        parameter: the parameter's name.
        rule: what it must be, with the bound; together they make the message.
        hint: what to do next, which `str(error)` adds.
    """

    def __init__(self, parameter: str, rule: str, *, rule_ids: Sequence[str] = (), hint: Hint | None = None) -> None:
        super().__init__(f"{parameter} {rule}", hint=hint)
        self.parameter, self.rule, self.rule_ids = parameter, rule, tuple(rule_ids)


class WrongState(SvcError):
    """The object cannot be used in this way now: it is not open, open already, closed, or of another thread."""


class AccessDenied(SvcError):
    """The session has no credentials of the kind that the call needs; nothing was sent."""


class UnusableFile(SvcError):
    """A file cannot be used: it is missing, locked, unreadable, or holds something else.

    Attributes:
        parameter: the parameter that names the file, such as `journal`.
        path: the file.
        problem: what is wrong with it; together they make the message.
        hint: what to do next, which `str(error)` adds.
        repeatable: whether the same call may help: another process has locked the file, and will release it.
    """

    def __init__(
        self, parameter: str, path: PurePath | str, problem: str, *, hint: Hint | None = None, repeatable: bool = False
    ) -> None:
        super().__init__(f"{parameter} {str(path)[-1_000:]} {problem}", hint=hint)  # no file has a longer name
        self.parameter, self.path, self.problem, self.repeatable = parameter, str(path), problem, repeatable


class WouldWaitTooLong(SvcError):
    """A rate limit opens too late for the caller; nothing was sent, or the service answered with 429: the `__cause__`.

    Attributes:
        until: when the limit `limit` opens for the call, or when those that wait for it have had their turn.
        retry_after: the seconds until then.
    """

    repeatable = True

    def __init__(self, *, until: datetime, limit: str, max_wait: float, retry_after: float | None = None) -> None:
        super().__init__(
            f"within max_wait={max_wait:g} s the requests before this call got no answer; call again later"
            if retry_after == 0
            else f"the limit {limit!r} admits this call at {until:%Y-%m-%dT%H:%M:%SZ}, "
            f"later than max_wait={max_wait:g} s allows; call again then, or pass a Governor with a longer max_wait"
        )
        self.until, self.limit, self.retry_after = until, limit, retry_after


class TransportError(SvcError):
    """No answer arrived, or none that can be read; `sent` says whether the request may have.

    The `__cause__` is what the system, OpenSSL or the parser of HTTP said. A certificate that is refused, and versions
    of TLS that do not fit, are not `repeatable`.

    Attributes:
        reason: what happened, without the call, such as `connection refused`.
    """

    repeatable = True

    def __init__(self, message: str, *, sent: Sent) -> None:
        super().__init__(message)
        self.reason, self.sent = message, sent

    def __str__(self) -> str:
        return f"{super().__str__()} (sent: {self.sent})"


class TimedOut(TransportError):
    """No answer arrived within the timeout."""


class _Kept:
    """A body that nothing shows or pickles: what reports an error with its attributes is not to report people."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content

    def __repr__(self) -> str:
        return f"<{len(self.content):,} bytes>"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Kept, ())


class _AnsweredCall(SvcError):
    """An exception about an answer."""

    sent = Sent.YES

    def __init__(self, message: str, *, status: int, headers: Mapping[str, str], request_id: str | None) -> None:
        super().__init__(message)
        self.status = status
        lowered = {name.lower(): value for name, value in headers.items()}
        self.headers = {name: _hide(name, value) for name, value in lowered.items()}
        self.request_id = request_id

    @property
    def body(self) -> bytes:
        """What came; empty once the error was pickled."""
        return self._body.content

    @body.setter
    def body(self, content: bytes) -> None:
        self._body = _Kept(content)


def _hide(name: str, value: str) -> str:
    """Return the value of a header without what may be secret in it, whoever is meant by it."""
    return "…" if name == "set-cookie" else strip_url(value) if name == "location" else value


class UnexpectedAnswer(_AnsweredCall):
    """The service answered with success, but the answer cannot be parsed.

    The service has done what the call asked for, unless `repeatable` is True: such an answer was cut off, or may have
    come from a proxy. An answer that is whole has the same form if the call is repeated.

    Attributes:
        status: the HTTP status.
        headers: the answer's headers, their names in lower case.
        request_id: the server-assigned request id, if any.
        body: the answer as it came, at most its first MiB; it may contain personal data, so neither `repr` nor `vars`
            show it, and a pickled error leaves without it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        body: bytes = b"",
        repeatable: bool = False,
    ) -> None:
        self.body = body[: 2**20]
        self.repeatable = repeatable
        message = f"{message} (HTTP {status}{_name_request(request_id)})"
        super().__init__(message, status=status, headers=headers or {}, request_id=request_id)


class StreamDropped(SvcError):
    """An open stream ended: it was closed or cut off, timed out, or the service announced that it disconnects.

    Attributes:
        errors: the reasons that the service reported, possibly none.
    """

    sent = Sent.YES
    repeatable = True

    def __init__(self, message: str, *, errors: Sequence[ErrorDetail] = ()) -> None:
        super().__init__(join_first([message, *map(_describe_reason, errors)]))
        self.errors = tuple(errors)


class StreamOverflow(SvcError):
    """Events of a stream arrive faster than they are consumed, and its overflow policy is `error`.

    Attributes:
        queue_size: the number of queued events.
        queue_bytes: the memory that they take, estimated.
    """

    sent = Sent.YES

    def __init__(self, *, queue_size: int, queue_bytes: int) -> None:
        super().__init__(
            f"the queue is full with {queue_size:,} events of about {queue_bytes:,} bytes: consume them faster, "
            'increase queue_size or queue_bytes, or choose overflow="block" or "drop_oldest"'
        )
        self.queue_size, self.queue_bytes = queue_size, queue_bytes


class BatchError(SvcError):
    """A batch ended with rows that were not accepted.

    Attributes:
        report: a `Report` of the whole batch, or the `SyncReport` of a sync, which a type checker does not know.
        sent: `no` if nothing was sent, `maybe` if rows were sent without a conclusive answer, otherwise `yes`.
    """

    def __init__(self, message: str, *, report: Any, sent: Sent = Sent.YES) -> None:
        super().__init__(message)
        self.report, self.sent = report, sent


class WebhookInvalid(SvcError):
    """A webhook fails its checks, so nothing is delivered to it.

    Attributes:
        webhook_id: the webhook.
    """

    sent = Sent.YES

    def __init__(self, webhook_id: str) -> None:
        super().__init__(f"the webhook {webhook_id} is not valid: check what its URL answers to a CRC check")
        self.webhook_id = webhook_id


class AudienceNotReady(SvcError):
    """A custom audience cannot be targeted: the time to wait for it is over, or waiting does not help.

    Attributes:
        custom_audience_id: the audience.
        reasons: why it cannot be targeted, in the service's words, such as `PROCESSING`; possibly none.
        repeatable: whether waiting longer may help.
    """

    sent = Sent.YES

    def __init__(self, custom_audience_id: str, reasons: Sequence[str], *, repeatable: bool) -> None:
        why = join_first([shorten(each, 200) for each in reasons]) or "no reason given"
        outlook = "it may be later" if repeatable else "waiting does not change that"
        super().__init__(f"the audience {custom_audience_id} cannot be targeted ({why}); {outlook}")
        self.custom_audience_id, self.reasons, self.repeatable = custom_audience_id, tuple(reasons), repeatable


_MOST_OF_REFUSAL = 16_384
"""Bytes of the body that an error keeps, since errors may be kept by the thousand."""


class ApiError(_AnsweredCall):
    """The service refused a call.

    Attributes:
        status: the HTTP status.
        errors: the reasons, possibly none.
        operation_errors: the reasons of refused operations of a batch, by the position of the operation.
        request_id: the server-assigned request id, from the header that the session configures, else None.
        headers: the answer's headers, their names in lower case; without cookies, and a `location` without its query.
        body: the first 16 KiB of the answer, without the secrets of the call, kept as that of `UnexpectedAnswer` is.
        retry_at: the earliest time for a repeat, if the service states one.
        retry_after: the seconds until then, from when the answer arrived.
    """

    def __init__(
        self,
        *,
        status: int,
        errors: Sequence[ErrorDetail] = (),
        operation_errors: Mapping[int, tuple[ErrorDetail, ...]] | None = None,
        headers: Mapping[str, str] | None = None,
        request_id: str | None = None,
        body: bytes = b"",
        retry_at: datetime | None = None,
        retry_after: float | None = None,
        repeatable: bool = False,
        sent: Sent = Sent.YES,
    ) -> None:
        self.sent = sent
        self.body = body[:_MOST_OF_REFUSAL]
        self.errors = tuple(errors)
        self.operation_errors = dict(operation_errors or {})
        self.retry_at, self.retry_after = retry_at, retry_after
        self.repeatable = repeatable
        message = self._describe(status, request_id)
        if body and not self.errors and not self.operation_errors:
            kind = (headers or {}).get("content-type", "no content type")
            message += f" ({shorten(kind, 100)}, {len(body):,} bytes)"
        super().__init__(message, status=status, headers=headers or {}, request_id=request_id)

    def has_code(self, code: str | int) -> bool:
        """Whether one of the reasons has this code."""
        return any(str(error.code) == str(code) for error in self.errors)

    def _describe(self, status: int, request_id: str | None) -> str:
        reasons = [_describe_reason(error) for error in self.errors] + [
            f"operation {index}: {_describe_code(error)}"
            for index, errors in sorted(self.operation_errors.items())[:3]
            for error in errors
        ]
        advice = f"; try again at {self.retry_at:%Y-%m-%dT%H:%M:%SZ}" if self.retry_at else ""
        return f"HTTP {status}{_name_request(request_id)}: {join_first(reasons) or 'no reason given'}{advice}"


def _describe_reason(error: ErrorDetail) -> str:
    return f"{_describe_code(error)} {error.message.removeprefix(f'{error.parameter} ')}".strip()


def _describe_code(error: ErrorDetail) -> str:
    return f"{error.code} ({error.parameter})" if error.parameter else str(error.code)


def _name_request(request_id: str | None) -> str:
    return f", request {request_id}" if request_id else ""


class BadRequest(ApiError):
    """400: the request breaks a rule."""


class Unauthorized(ApiError):
    """401: the credentials are wrong, expired or invalidated (code 89); or the clock of this machine is wrong.

    Attributes:
        clock_difference: the seconds that the service's clock is ahead of this machine's, if these are minutes and a
            signed call was refused that this may explain; they are negative if it is behind.
    """

    clock_difference: float | None = None

    def blame_clock(self, difference: float) -> None:
        """Say in the message that the clocks differ by a number of seconds."""
        self.clock_difference = difference
        amount, direction = timedelta(seconds=round(abs(difference))), "behind" if difference > 0 else "ahead of"
        self.args = (f"{self.args[0]}; the clock of this machine is {amount} {direction} the service's clock",)


class Forbidden(ApiError):
    """403: the credentials do not permit this."""


class NotFound(ApiError):
    """404: the object does not exist, or was deleted."""


class Conflict(ApiError):
    """409: the state of the object does not allow this."""


class RateLimited(ApiError):
    """429: a rate limit is exhausted; `retry_at` is when it opens."""


class TooManyConnections(RateLimited):
    """429 `TooManyConnections`: too many streams of the app are open (contract STR-02)."""

    name: ClassVar[str] = "TooManyConnections"

    def _describe(self, status: int, request_id: str | None) -> str:
        message = super()._describe(status, request_id)
        return f"{message}; close the app's other streams, in other processes too, or wait until they are dropped"


class UsageCapExceeded(ApiError):
    """429 `UsageCapExceeded`: what the plan of the app includes is used up, such as its posts of this month.

    It is not a rate limit: waiting for a window does not help, so nothing waits and nothing is repeated.
    """

    name: ClassVar[str] = "UsageCapExceeded"


class ServerError(ApiError):
    """5xx: the service failed."""


class StateUnavailable(SvcError):
    """The database of the shared state cannot be reached.

    Attributes:
        name: host and database.
    """

    repeatable = True

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the shared state at {name} cannot be reached ({reason}): check the URL and the server")
        self.name = name


class TakenUpElsewhere(SvcError):
    """Another process has taken up the same job or sync; this one sends nothing more of it.

    Attributes:
        name: the job or the sync.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} was taken up elsewhere; this process sends nothing more of it")
        self.name = name


class UnusableState(SvcError):
    """The shared state holds something else than is expected, or belongs to another version.

    Attributes:
        name: the database, or a name in it.
        problem: what is wrong with it.
        hint: what to do next, which `str(error)` adds.
        parameter: the parameter that names it, such as `journal`; None if it is the database.
    """

    def __init__(self, name: str, problem: str, *, parameter: str | None = None, hint: Hint | None = None) -> None:
        super().__init__(f"{parameter or 'the shared state'} {name} {problem}", hint=hint)
        self.parameter, self.name, self.problem = parameter, name, problem
