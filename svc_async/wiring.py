"""Assembles what a session uses while it is open: governor, transport, pipeline and tokens."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict
from weakref import WeakSet

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
from svc_async.clock import Clock, SystemClock, require_event_loop
from svc_async.engine.memory import MEMORY, MemoryBudget
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries, RetryBudget
from svc_async.engine.transport import MAX_ANSWER_BYTES, Connector, Timeouts, Transport
from svc_async.errors import AccessDenied, InvalidArgument
from svc_async.governor.governor import Governor
from svc_async.monitoring import Subscribers
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.reading import Reader
from svc_async.wire.route import Surface

if TYPE_CHECKING:
    from svc_async.state import SharedState

__all__ = [
    "CommonOptions",
    "SandboxSource",
    "SessionOptions",
    "SessionResources",
    "SessionSettings",
    "SettingsSource",
    "app_of",
    "open_resources",
]

_log = logging.getLogger("svc_async")


class CommonOptions(TypedDict, total=False):
    """The keywords that `Session` and `Session.sandbox` have in common."""

    validate: bool
    keep_unknown: bool
    strict_reading: bool
    governor: Governor | None
    retries: Retries | None
    timeouts: Timeouts | None
    max_answer_bytes: int
    memory: int
    connector: Connector | None
    on_event: Callable[[Any], object] | None
    on_token: Callable[[OAuth2UserCredentials], object] | None
    request_id_header: str | None
    state: "SharedState | None"
    state_required: bool


class SessionOptions(CommonOptions, total=False):
    """The keywords of `Session` besides credentials and hosts; those of `from_env` and `from_profile`."""

    proxy: str | None
    clock: Clock | None


class SettingsSource(Protocol):
    """Provides the settings of a session when it is opened."""

    @property
    def app(self) -> AppCredentials | None:
        """The app, if it is known before."""

    @property
    def subscribers(self) -> Subscribers:
        """What receives the events of the session."""
        ...

    @property
    def description(self) -> str:
        """Whose session it is, and with which service."""
        ...

    async def resolve(self, stack: AsyncExitStack) -> "SessionSettings":
        """Return the settings; whatever had to be started for them is closed with the stack."""
        ...


def _to_subscribers(on_event: Subscribers | Callable[[Any], object] | None) -> Subscribers:
    return on_event if isinstance(on_event, Subscribers) else Subscribers(on_event)


def _must(is_valid: Callable[[Any], bool], words: str) -> Callable[[Any, Any, Any], None]:
    def check(_: object, field: "attrs.Attribute[Any]", value: object) -> None:
        if not is_valid(value):
            raise InvalidArgument(field.name, f"must be {words}")

    return check


def _must_be(kind: Any, words: str) -> Callable[[Any, Any, Any], None]:
    return _must(lambda value: isinstance(value, kind | None), words)


_must_be_size = _must(lambda value: isinstance(value, int) and value >= 1, "a whole number of at least 1")
_must_be_governor = _must(lambda value: value is None or hasattr(value, "slot"), "a Governor")  # or a test's own


@attrs.frozen(kw_only=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        on_event: what receives its events.
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
    governor: Governor | None = attrs.field(default=None, validator=_must_be_governor)
    retries: Retries | None = attrs.field(default=None, validator=_must_be(Retries, "Retries(...)"))
    timeouts: Timeouts | None = attrs.field(default=None, validator=_must_be(Timeouts, "Timeouts(...), in seconds"))
    max_answer_bytes: int = attrs.field(default=MAX_ANSWER_BYTES, validator=_must_be_size)
    memory: int = attrs.field(default=MEMORY, validator=_must_be_size)
    connector: Connector | None = attrs.field(
        default=None, validator=_must_be(Connector, "a connector of aiohttp or an ssl.SSLContext")
    )
    proxies: Mapping[Surface, str] = attrs.field(factory=dict, repr=False)  # may contain the password of a proxy
    clock: Clock = attrs.field(factory=SystemClock)
    on_event: Subscribers = attrs.field(default=None, converter=_to_subscribers)
    on_token: Callable[[OAuth2UserCredentials], object] | None = None
    request_id_header: str | None = None
    state: "SharedState | None" = None
    state_required: bool = True
    origin: SessionOrigin | None = None

    @property
    def subscribers(self) -> Subscribers:
        """What receives the events of the session."""
        return self.on_event

    @property
    def description(self) -> str:
        """The kind of credentials and the host."""
        return f"of {type(self.credentials).__name__} at {self.endpoints.ads_url}"

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


@attrs.frozen
class SandboxSource:
    """The settings of a session with the sandbox, which are complete once the sandbox runs.

    Attributes:
        running: a sandbox that was started; without one, it is started and closed with the session.
        create_sandbox: returns the one to start.
        settings: the others; hosts, credentials and clock are those of the sandbox.
    """

    running: Any
    create_sandbox: Callable[[], AbstractAsyncContextManager[Any]]
    settings: SessionSettings

    @classmethod
    def create(
        cls, running: object, create_sandbox: Callable[[], AbstractAsyncContextManager[Any]], options: CommonOptions
    ) -> Self:
        """Return the settings of a session with these options."""
        nobody = AppCredentials(consumer_key="sandbox", consumer_secret="sandbox")  # noqa: S106 - stands for the sandbox's
        nowhere = Endpoints(base_url="http://localhost", ads_url="http://localhost")
        settings = SessionSettings(credentials=nobody, app=None, endpoints=nowhere, **options)
        return cls(running, create_sandbox, settings)

    @property
    def app(self) -> AppCredentials | None:
        """None: it is known once the sandbox runs."""
        return None

    @property
    def subscribers(self) -> Subscribers:
        """What receives the events of the session."""
        return self.settings.subscribers

    @property
    def description(self) -> str:
        """That it is the sandbox."""
        return "with the sandbox"

    async def resolve(self, stack: AsyncExitStack) -> SessionSettings:
        """Return the settings with those of the sandbox, which is started if none was given."""
        sandbox = self.running
        if sandbox is None:
            sandbox = await stack.enter_async_context(self.create_sandbox())
        _log.info("this session uses the embedded sandbox at %s", sandbox.base_url)
        hosts = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url, ads_sandbox_url=sandbox.ads_sandbox_url)
        settings = attrs.evolve(
            self.settings,
            credentials=UserCredentials(**sandbox.credentials),
            app=AppCredentials(**sandbox.app),
            endpoints=hosts,
            clock=sandbox.clock,
        )
        return await settings.resolve(stack)


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
        open_tokens: the tokens of all sessions over these connections, as long as one of these is used.
    """

    settings: SessionSettings
    pipeline: Pipeline
    app_tokens: AppTokens | None
    user_tokens: UserTokens | None
    open_tokens: "WeakSet[AppTokens | UserTokens]"

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
        return _build_resources(settings, pipeline, self.open_tokens, self.app_tokens if shares_token else None)

    async def close_tokens(self) -> None:
        """Wait for a refresh of the user's token that is in progress."""
        if self.user_tokens is not None:
            await self.user_tokens.close()


async def open_resources(source: SettingsSource, stack: AsyncExitStack) -> SessionResources:
    """Open a governor, unless one is shared, and the connections; the stack closes them.

    Raises:
        WrongState: no event loop of asyncio runs.
        StateUnavailable: the database of the state cannot be reached.
    """
    require_event_loop("a session")
    settings = await source.resolve(stack)
    governor = await _open_governor(settings, stack)
    pipeline = _build_pipeline(settings, governor)
    stack.push_async_callback(pipeline.transport.close)
    resources = _build_resources(settings, pipeline, WeakSet())
    stack.push_async_callback(_close_all, resources.open_tokens)
    return resources


def _build_resources(
    settings: SessionSettings,
    pipeline: Pipeline,
    open_tokens: "WeakSet[AppTokens | UserTokens]",
    app_tokens: AppTokens | None = None,
) -> SessionResources:
    app_tokens = app_tokens or _build_app_tokens(settings, pipeline)
    user_tokens = _build_user_tokens(settings, pipeline)
    open_tokens.update(tokens for tokens in (app_tokens, user_tokens) if tokens is not None)
    is_app = isinstance(settings.credentials, AppCredentials | BearerToken)
    return SessionResources(
        settings=settings,
        pipeline=pipeline.but(tokens=app_tokens if is_app else user_tokens),
        app_tokens=app_tokens,
        user_tokens=user_tokens,
        open_tokens=open_tokens,
    )


async def _close_all(open_tokens: "WeakSet[AppTokens | UserTokens]") -> None:
    await asyncio.gather(*(tokens.close() for tokens in open_tokens))


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


def _build_user_tokens(settings: SessionSettings, pipeline: Pipeline) -> UserTokens | None:
    if not isinstance(settings.credentials, OAuth2UserCredentials):
        return None
    from svc_async.platform.oauth2 import refresh_user_token  # noqa: PLC0415 - few programs need it

    refresh = partial(refresh_user_token, pipeline, settings.app)
    return UserTokens(settings.credentials, refresh, settings.clock, settings.on_token)
