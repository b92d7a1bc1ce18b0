"""Assembles what a session uses while it is open: governor, transport, pipeline and tokens."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from weakref import WeakSet

import attrs

from svc_async._version import __version__
from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import (
    NEEDS_USER,
    AppCredentials,
    BearerToken,
    Credentials,
    OAuth2UserCredentials,
    has_user,
)
from svc_async.auth.refreshes import Refreshes
from svc_async.auth.tokens import AppTokens, Token, UserTokens
from svc_async.clock import Clock
from svc_async.engine.memory import MemoryBudget
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries, RetryBudget
from svc_async.engine.transport import Timeouts, Transport
from svc_async.errors import AccessDenied
from svc_async.governor.governor import Governor
from svc_async.wire.reading import Reader
from svc_async.wiring.settings import (
    PROFILE_KEYWORDS,
    RETRIES,
    SANDBOX_KEYWORDS,
    SESSION_KEYWORDS,
    CommonOptions,
    SandboxSource,
    SessionOptions,
    SessionSettings,
    SettingsSource,
    app_of,
)

__all__ = [
    "PROFILE_KEYWORDS",
    "RETRIES",
    "SANDBOX_KEYWORDS",
    "SESSION_KEYWORDS",
    "CommonOptions",
    "SandboxSource",
    "SessionOptions",
    "SessionResources",
    "SessionSettings",
    "SettingsSource",
    "app_of",
    "open_resources",
]


@attrs.frozen
class SharedTokens:
    """The tokens of all sessions over the same connections.

    Attributes:
        open: those of each session, as long as one of these is used.
        refreshes: the refreshes of users' tokens.
    """

    open: "WeakSet[AppTokens | UserTokens]" = attrs.field(factory=WeakSet)
    refreshes: Refreshes = attrs.field(factory=Refreshes)

    async def close(self, clock: Clock) -> None:
        """Wait for the requests for tokens that are in progress."""
        await asyncio.gather(self.refreshes.close(clock), *(tokens.close() for tokens in self.open))


@attrs.frozen(kw_only=True)
class SessionResources:
    """What a session uses while it is open.

    Attributes:
        settings: what it was opened with.
        pipeline: makes calls with the session's credentials.
        app_tokens: the app-only bearer token, if it is known or can be fetched.
        user_tokens: the scoped token of the user, if the credentials have one.
        shared_tokens: the tokens of all sessions over these connections.
    """

    settings: SessionSettings
    pipeline: Pipeline
    app_tokens: AppTokens | None
    user_tokens: UserTokens | None
    shared_tokens: SharedTokens

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in which they were opened."""
        return self.pipeline.transport.loop

    @property
    def ads_pipeline(self) -> Pipeline:
        """Makes the calls of the advertising API, which require a user (contract AUTH-27).

        Raises:
            AccessDenied: the credentials are those of an app.
        """
        if not has_user(self.settings.credentials):
            raise AccessDenied(f"{NEEDS_USER}; {_advise(self.settings.origin)}")
        return self.pipeline

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

    def but(self, timeout: float | None, retries: Retries | None) -> "SessionResources":
        """Return what a session with another timeout or other retries uses; None leaves them."""
        pipeline = self.pipeline.but(
            timeout=self.pipeline.timeout if timeout is None else timeout,
            retries=self.pipeline.retries if retries is None else retries,
        )
        return attrs.evolve(self, pipeline=pipeline)

    def as_user(
        self, credentials: Credentials, on_token: Callable[[OAuth2UserCredentials], object] | None
    ) -> "SessionResources":
        """Return what a session of another user uses, over the same connections and governor."""
        own, app = self.settings.app, app_of(credentials)
        if own is not None and (app is None or app.consumer_key == own.consumer_key):
            app = own  # which may know its OAuth 2.0 client as well
        settings = attrs.evolve(self.settings, credentials=credentials, app=app, on_token=on_token, origin=None)
        pipeline = self.pipeline.but(
            authorization=authorization(credentials, settings.clock),
            user=identity(credentials),
            tokens=None,
            origin=None,
        )
        shares_token = app is own and not isinstance(credentials, BearerToken)
        return _build_resources(settings, pipeline, self.shared_tokens, self.app_tokens if shares_token else None)

    async def close_tokens(self) -> None:
        """Wait for a refresh of the user's token that is in progress."""
        if self.user_tokens is not None:
            await self.user_tokens.close()


def _advise(origin: SessionOrigin | None) -> str:
    if origin is None:
        return "pass UserCredentials"
    if origin.profile is None:
        return "set SVC_ACCESS_TOKEN and SVC_ACCESS_TOKEN_SECRET"
    return f"add access_token and access_token_secret to the profile {origin.profile!r}"


async def open_resources(source: SettingsSource, stack: AsyncExitStack) -> SessionResources:
    """Open a governor, unless one is shared, and the connections; the stack closes them.

    Raises:
        InvalidArgument: the governor counts elsewhere than in the state.
        StateUnavailable: the database of the state cannot be reached.
    """
    async with AsyncExitStack() as opened:
        settings = await source.resolve(opened)
        governor = await _open_governor(settings, opened)
        pipeline = _build_pipeline(settings, governor)
        opened.push_async_callback(pipeline.transport.close)
        resources = _build_resources(settings, pipeline, SharedTokens())
        opened.push_async_callback(resources.shared_tokens.close, settings.clock)
        stack.push_async_callback(_close, opened.pop_all(), resources)
    return resources


async def _close(opened: AsyncExitStack, resources: SessionResources) -> None:
    """Close what a session has opened; if its event loop was closed before, let go of it."""
    if not resources.loop.is_closed():
        await opened.aclose()
        return
    await resources.pipeline.transport.close()
    state = resources.settings.state
    if state is not None and not state.is_open:  # else it was opened again in another one
        await state.__aexit__(None, None, None)


def _build_resources(
    settings: SessionSettings,
    pipeline: Pipeline,
    shared_tokens: SharedTokens,
    app_tokens: AppTokens | None = None,
) -> SessionResources:
    app_tokens = app_tokens or _build_app_tokens(settings, pipeline)
    user_tokens = _build_user_tokens(settings, pipeline, shared_tokens.refreshes)
    shared_tokens.open.update(tokens for tokens in (app_tokens, user_tokens) if tokens is not None)
    is_app = isinstance(settings.credentials, AppCredentials | BearerToken)
    return SessionResources(
        settings=settings,
        pipeline=pipeline.but(tokens=app_tokens if is_app else user_tokens),
        app_tokens=app_tokens,
        user_tokens=user_tokens,
        shared_tokens=shared_tokens,
    )


async def _open_governor(settings: SessionSettings, stack: AsyncExitStack) -> Governor:
    state = settings.state
    if settings.governor is not None and state is None:
        return settings.governor
    governor = settings.governor or Governor(clock=settings.clock)
    if state is not None and not state.owns(governor.windows):
        governor.use_windows(state.windows(clock=governor.clock, required=settings.state_required))
    return await stack.enter_async_context(governor)


def _build_pipeline(settings: SessionSettings, governor: Governor) -> Pipeline:
    return Pipeline(
        transport=Transport.open(
            user_agent=f"svc-async/{__version__}",
            clock=settings.clock,
            timeouts=settings.timeouts or Timeouts(),
            max_answer_bytes=settings.max_answer_bytes,
            connector=settings.connector,
        ),
        endpoints=settings.endpoints,
        authorization=authorization(settings.credentials, settings.clock),
        user=identity(settings.credentials),
        governor=governor,
        retries=settings.retries or Retries(),
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
        subscribers=settings.subscribers,
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


def _build_user_tokens(settings: SessionSettings, pipeline: Pipeline, refreshes: Refreshes) -> UserTokens | None:
    if not isinstance(settings.credentials, OAuth2UserCredentials):
        return None
    from svc_async.platform.oauth2 import refresh_user_token  # noqa: PLC0415 - few programs need it

    refresh = partial(refresh_user_token, pipeline, settings.app)
    return UserTokens(settings.credentials, refresh, settings.clock, settings.on_token, refreshes)
