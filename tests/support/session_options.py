"""The options that tests pass on to `Session`."""

from collections.abc import Callable
from typing import TypedDict

from svc_async import AppCredentials, DriftReport, Governor, OAuth2UserCredentials, Retries, Timeouts
from svc_async.monitoring import CallEvent

__all__ = ["SessionOptions"]


class SessionOptions(TypedDict, total=False):
    """Keyword arguments of `Session`."""

    app: AppCredentials | None
    validate: bool
    keep_unknown: bool
    strict_reading: bool
    governor: Governor | None
    retries: Retries | None
    timeouts: Timeouts | None
    max_answer_bytes: int
    memory: int
    on_event: Callable[[CallEvent], object] | None
    on_token: Callable[[OAuth2UserCredentials], object] | None
    request_id_header: str | None
    drift: DriftReport | None
