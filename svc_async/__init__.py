"""Async-first client SDK of the svc ads-and-social platform, with batch uploaders and an embedded sandbox.

The most common names, imported on first access, so that importing the package is cheap.
"""

from typing import TYPE_CHECKING

from svc_async._version import __version__
from svc_async.lazy import make_getattr

if TYPE_CHECKING:
    from svc_async.ads.dicts import MemberDict, OperationDict, ProductDict
    from svc_async.auth.credentials import AppCredentials, BearerToken, OAuth2UserCredentials, UserCredentials
    from svc_async.batch.journal.file import Journals
    from svc_async.batch.report import Failure, Progress, Receipt, Report
    from svc_async.deprecation import SvcDeprecationWarning
    from svc_async.drift import DriftReport
    from svc_async.engine.retry import Retries
    from svc_async.engine.transport import Timeouts
    from svc_async.errors import (
        AccessDenied,
        ApiError,
        AudienceNotReady,
        BadRequest,
        BatchError,
        Conflict,
        Forbidden,
        InvalidArgument,
        NotFound,
        RateLimited,
        ServerError,
        StateUnavailable,
        StreamDropped,
        StreamOverflow,
        SvcError,
        TakenUpElsewhere,
        TimedOut,
        TooManyConnections,
        TransportError,
        Unauthorized,
        UnexpectedAnswer,
        UnusableFile,
        UnusableState,
        UsageCapExceeded,
        WebhookInvalid,
        WouldWaitTooLong,
        WrongState,
    )
    from svc_async.governor.governor import Governor
    from svc_async.recording.file import Recording
    from svc_async.session import Session
    from svc_async.users.tables import Columns, Rows
    from svc_async.wire.base_urls import Endpoints
    from svc_async.wire.dialect import Dialect
    from svc_async.wire.envelope import Page

__all__ = [
    "AccessDenied",
    "ApiError",
    "AppCredentials",
    "AudienceNotReady",
    "BadRequest",
    "BatchError",
    "BearerToken",
    "Columns",
    "Conflict",
    "Dialect",
    "DriftReport",
    "Endpoints",
    "Failure",
    "Forbidden",
    "Governor",
    "InvalidArgument",
    "Journals",
    "MemberDict",
    "NotFound",
    "OAuth2UserCredentials",
    "OperationDict",
    "Page",
    "ProductDict",
    "Progress",
    "RateLimited",
    "Receipt",
    "Recording",
    "Report",
    "Retries",
    "Rows",
    "ServerError",
    "Session",
    "StateUnavailable",
    "StreamDropped",
    "StreamOverflow",
    "SvcDeprecationWarning",
    "SvcError",
    "TakenUpElsewhere",
    "TimedOut",
    "Timeouts",
    "TooManyConnections",
    "TransportError",
    "Unauthorized",
    "UnexpectedAnswer",
    "UnusableFile",
    "UnusableState",
    "UsageCapExceeded",
    "UserCredentials",
    "WebhookInvalid",
    "WouldWaitTooLong",
    "WrongState",
    "__version__",
]

_HOMES = {
    "svc_async.ads.dicts": ("MemberDict", "OperationDict", "ProductDict"),
    "svc_async.auth.credentials": (
        "AppCredentials",
        "BearerToken",
        "OAuth2UserCredentials",
        "UserCredentials",
    ),
    "svc_async.users.tables": ("Columns", "Rows"),
    "svc_async.batch.journal.file": ("Journals",),
    "svc_async.batch.report": ("Failure", "Progress", "Receipt", "Report"),
    "svc_async.errors": (
        "AccessDenied",
        "ApiError",
        "AudienceNotReady",
        "BadRequest",
        "BatchError",
        "Conflict",
        "Forbidden",
        "InvalidArgument",
        "NotFound",
        "RateLimited",
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
    ),
    "svc_async.deprecation": ("SvcDeprecationWarning",),
    "svc_async.drift": ("DriftReport",),
    "svc_async.governor.governor": ("Governor",),
    "svc_async.engine.retry": ("Retries",),
    "svc_async.recording.file": ("Recording",),
    "svc_async.session": ("Session",),
    "svc_async.engine.transport": ("Timeouts",),
    "svc_async.wire.base_urls": ("Endpoints",),
    "svc_async.wire.dialect": ("Dialect",),
    "svc_async.wire.envelope": ("Page",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # for a type checker, the module has the names above and no others
    __getattr__ = make_getattr(__name__, globals(), _HOME_OF)


def __dir__() -> list[str]:
    return __all__
