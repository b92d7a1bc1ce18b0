"""Assembles what a session uses while it is open: governor, transport, pipeline and tokens."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, TypedDict

import attrs

from svc_async._version import __version__
from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import (
    AppCredentials,
    BearerToken,
    Credentials,
    OAuth2UserCredentials,
    UserCredentials,
)
from svc_async.auth.tokens import AppTokens, Token, UserTokens
from svc_async.clock import Clock, SystemClock
from svc_async.engine.memory import MEMORY, MemoryBudget
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import CallEvent, Pipeline
from svc_async.engine.retry import Retries, RetryBudget
from svc_async.engine.transport import MAX_ANSWER_BYTES, Connector, Timeouts, Transport
from svc_async.errors import AccessDenied, InvalidArgument
from svc_async.governor.governor import Governor
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.reading import Reader
from svc_async.wire.route import Surface

if TYPE_CHECKING:
    from svc_async.state import SharedState

__all__ = ["SessionOptions", "SessionResources", "SessionSettings", "SettingsSource", "app_of", "open_resources"]


class SessionOptions(TypedDict, total=False):
    """The keywords of `Session` besides credentials and hosts."""

    validate: bool
    keep_unknown: bool
    strict_reading: bool
    governor: Governor | None
    retries: Retries | None
    timeouts: Timeouts | None
    max_answer_bytes: int
    memory: int
    connector: Connector | None
    proxy: str | None
    clock: Clock | None
    on_event: Callable[[CallEvent], object] | None
    on_token: Callable[[OAuth2UserCredentials], object] | None
    request_id_header: str | None
    state: "SharedState | None"
    state_required: bool


class SettingsSource(Protocol):
    """Provides the settings of a session when it is entered."""

    @property
    def app(self) -> AppCredentials | None:
        """The app, if it is known before."""

    async def resolve(self, stack: AsyncExitStack) -> "SessionSettings":
        """Return the settings; whatever had to be started for them is closed with the stack."""
        ...


@attrs.frozen(kw_only=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        state: what it shares with other processes; one that is not open is opened and closed with the session.
        state_required: whether a state that cannot be reached is an error; otherwise it is tried again meanwhile.
        origin: where another process finds the same settings; None if they were given to the session.
    """

    credentials: Credentials
    app: AppCredentials | None
    endpoints: Endpoints
    validate: bool = True
    keep_unknown: bool = False
    strict_reading: bool = False
    governor: Governor | None = None
    retries: Retries = attrs.field(factory=Retries)
    timeouts: Timeouts = attrs.field(factory=Timeouts)
    max_answer_bytes: int = MAX_ANSWER_BYTES
    memory: int = MEMORY
    connector: Connector | None = None
    proxies: Mapping[Surface, str] = attrs.field(factory=dict, repr=False)  # may contain the password of a proxy
    clock: Clock = attrs.field(factory=SystemClock)
    on_event: Callable[[CallEvent], object] | None = None
    on_token: Callable[[OAuth2UserCredentials], object] | None = None
    request_id_header: str | None = None
    state: "SharedState | None" = None
    state_required: bool = True
    origin: SessionOrigin | None = None

    async def resolve(self, stack: AsyncExitStack) -> Self:
        """Return these settings; a state that was not open is closed with the stack.

        Raises:
            StateUnavailable: its database cannot be reached.
        """
        if self.state is None or self.state.is_open:
            return self
        if self.state_required:
            await stack.enter_async_context(self.state)
        else:  # its limits open it, now or as soon as it can be reached
            stack.push_async_exit(self.state)
        return self


def app_of(credentials: Credentials) -> AppCredentials | None:
    """Return the app that credentials imply, if any."""
    if isinstance(credentials, UserCredentials):
        return credentials.app
    return credentials if isinstance(credentials, AppCredentials) else None


@attrs.frozen(kw_only=True)
class SessionResources:
    """What a session uses while it is open.

    Attributes:
        settings: what it was opened with.
        pipeline: makes calls with the session's credentials.
        app_tokens: the app-only bearer token, if it is known or can be fetched.
        user_tokens: the scoped token of the user, if the credentials have one.
    """

    settings: SessionSettings
    pipeline: Pipeline
    app_tokens: AppTokens | None
    user_tokens: UserTokens | None

    @property
    def app_pipeline(self) -> Pipeline:
        """Makes the calls that require the app-only bearer token (contract AUTH-25).

        Raises:
            AccessDenied: there is no bearer token, and no app to fetch one with.
        """
        if self.app_tokens is None:
            raise AccessDenied("these calls need the app's bearer token; pass AppCredentials or a BearerToken")
        user = identity(self.settings.app or self.settings.credentials)
        return self.pipeline.but(tokens=self.app_tokens, user=user)


async def open_resources(settings: SessionSettings, stack: AsyncExitStack) -> SessionResources:
    """Open a governor, unless one is shared, and the connections; the stack closes them."""
    governor = await _open_governor(settings, stack)
    pipeline = _build_pipeline(settings, governor)
    stack.push_async_callback(pipeline.transport.close)
    app_tokens, user_tokens = _build_app_tokens(settings, pipeline), _build_user_tokens(settings, pipeline)
    for tokens in (user_tokens, app_tokens):
        if tokens is not None:
            stack.push_async_callback(tokens.close)
    is_app = isinstance(settings.credentials, AppCredentials | BearerToken)
    return SessionResources(
        settings=settings,
        pipeline=pipeline.but(tokens=app_tokens if is_app else user_tokens),
        app_tokens=app_tokens,
        user_tokens=user_tokens,
    )


async def _open_governor(settings: SessionSettings, stack: AsyncExitStack) -> Governor:
    state = settings.state
    if settings.governor is None:
        windows = None
        if state is not None:
            windows = state.windows(clock=settings.clock, required=settings.state_required)
        return await stack.enter_async_context(Governor(clock=settings.clock, windows=windows))
    if state is not None and not state.owns(settings.governor.windows):
        raise InvalidArgument("governor", "must have windows=state.windows() of the same state, or be left out")
    return settings.governor


def _build_pipeline(settings: SessionSettings, governor: Governor) -> Pipeline:
    return Pipeline(
        transport=Transport.open(
            user_agent=f"svc-async/{__version__}",
            clock=settings.clock,
            timeouts=settings.timeouts,
            max_answer_bytes=settings.max_answer_bytes,
            connector=settings.connector,
        ),
        endpoints=settings.endpoints,
        authorization=authorization(settings.credentials, settings.clock),
        user=identity(settings.credentials),
        governor=governor,
        retries=settings.retries,
        budget=RetryBudget(),
        reader=Reader(
            keep_unknown=settings.keep_unknown,
            strict=settings.strict_reading,
            request_id_header=settings.request_id_header,
        ),
        clock=settings.clock,
        proxies=settings.proxies,
        max_wait=governor.max_wait,
        validate=settings.validate,
        memory=MemoryBudget(settings.memory),
        on_event=settings.on_event,
        origin=settings.origin,
    )


def _build_app_tokens(settings: SessionSettings, pipeline: Pipeline) -> AppTokens | None:
    token = Token(settings.credentials.token) if isinstance(settings.credentials, BearerToken) else None
    if settings.app is None:
        return AppTokens(None, settings.clock, token) if token else None
    return AppTokens(partial(_fetch_token, pipeline, settings.app), settings.clock, token)


async def _fetch_token(pipeline: Pipeline, app: AppCredentials) -> str:
    from svc_async.platform.oauth2 import fetch_app_token  # noqa: PLC0415 - few programs need it

    return (await fetch_app_token(pipeline, app)).access_token


def _build_user_tokens(settings: SessionSettings, pipeline: Pipeline) -> UserTokens | None:
    if not isinstance(settings.credentials, OAuth2UserCredentials):
        return None
    from svc_async.platform.oauth2 import refresh_user_token  # noqa: PLC0415 - few programs need it

    refresh = partial(refresh_user_token, pipeline, settings.app)
    return UserTokens(settings.credentials, refresh, settings.clock, settings.on_token)
