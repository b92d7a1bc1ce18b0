"""The settings of a session, and what it uses while it is open."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack
from weakref import WeakSet

import attrs

from svc_async._version import __version__
from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import (
    CREDENTIALS,
    AppCredentials,
    BearerToken,
    Credentials,
    OAuth2UserCredentials,
    UserCredentials,
)
from svc_async.auth.oauth1 import SigningClock
from svc_async.auth.tokens import AppTokens, Refreshes, Token, UserTokens
from svc_async.clock import Clock, SystemClock
from svc_async.drift import DriftReport
from svc_async.engine.memory import MEMORY, MemoryBudget
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.engine.transport import MAX_ANSWER_BYTES, Connector, Timeouts, Transport
from svc_async.errors import Hint, InvalidArgument
from svc_async.governor.governor import Governor
from svc_async.monitoring import Subscribers
from svc_async.value_rules import (
    CLOCK,
    COUNT,
    FLAG,
    HEADER_NAME,
    TEXT,
    ValueRule,
    function_of,
    has_members,
    instance_of,
    or_none,
)
from svc_async.wire.base_urls import Endpoints, proxy_url
from svc_async.wire.dialect import Dialect
from svc_async.wire.outcome import RetryBudget
from svc_async.wire.reading import Reader
from svc_async.wire.route import Surface

if TYPE_CHECKING:
    from svc_async.recording.file import Recording
    from svc_async.state import SharedState

__all__ = [
    "PROFILE_KEYWORDS",
    "RETRIES",
    "SANDBOX_KEYWORDS",
    "SESSION_KEYWORDS",
    "CommonOptions",
    "SessionOptions",
    "SessionResources",
    "SessionSettings",
    "open_resources",
    "prepare_sandbox",
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
    dialect: Dialect | None
    connector: Connector | None
    on_event: Callable[[Any], object] | None
    on_token: Callable[[OAuth2UserCredentials], object] | None
    request_id_header: str | None
    state: "SharedState | None"
    state_required: bool
    drift: DriftReport | None
    record: "Recording | None"


class SessionOptions(CommonOptions, total=False):
    """The keywords of `Session` besides credentials and hosts; those of `from_env` and `from_profile`."""

    proxy: str | None
    clock: Clock | None


PROFILE_KEYWORDS: Collection[str] = SessionOptions.__optional_keys__
"""Those of `from_env` and `from_profile`."""
SANDBOX_KEYWORDS: Collection[str] = CommonOptions.__optional_keys__ | {"running"}
SESSION_KEYWORDS: Collection[str] = SessionOptions.__optional_keys__ | {"credentials", "app", "endpoints"}


def _to_subscribers(on_event: Subscribers | Callable[[Any], object] | None) -> Subscribers:
    return on_event if isinstance(on_event, Subscribers) else Subscribers(on_event)


RETRIES = or_none(instance_of(Retries, "Retries(...)"))
_TIMEOUTS = or_none(instance_of(Timeouts, "Timeouts(...), in seconds"))
_CONNECTOR = or_none(instance_of(Connector, "a connector of aiohttp or an ssl.SSLContext"))
_APP = or_none(instance_of(AppCredentials, "AppCredentials(...)"))
_ENDPOINTS = instance_of(Endpoints, "Endpoints(...)")
_GOVERNOR = or_none(has_members("a Governor", "slot"))  # or a test's own
_DIALECT = or_none(instance_of(Dialect, "a Dialect, such as Dialect.load(path)"))
_DRIFT = or_none(instance_of(DriftReport, "a DriftReport()"))
_STATE = or_none(has_members("a SharedState, such as SharedState.open(url)", "is_open", "windows", "owns"))
_RECORDING = or_none(has_members("Recording(path)", "begin", "write_answer"))
_SANDBOX = has_members("a Sandbox that was started", "base_url", "ads_url", "credentials", "is_running")
_RUNNING = ValueRule(lambda sandbox: sandbox.is_running, _SANDBOX.words)


@attrs.frozen(kw_only=True)
class SessionSettings:
    """The settings of a session.

    Attributes:
        on_event: what receives its events.
        state: what it shares with other processes; one that is not open is opened and closed with the session.
        state_required: whether a state that cannot be reached is an error; otherwise it is tried again meanwhile.
        record: where what is sent and answered is written.
        origin: where another process finds the same settings; None if they were given to the session.
        start_sandbox: returns the sandbox whose hosts, credentials and clock take the place of these; one that it
            starts is closed with the stack.
    """

    credentials: Credentials
    app: AppCredentials | None = attrs.field(validator=_APP)
    endpoints: Endpoints = attrs.field(validator=_ENDPOINTS)
    validate: bool = attrs.field(default=True, validator=FLAG)
    keep_unknown: bool = attrs.field(default=False, validator=FLAG)
    strict_reading: bool = attrs.field(default=False, validator=FLAG)
    governor: Governor | None = attrs.field(default=None, validator=_GOVERNOR)
    retries: Retries | None = attrs.field(default=None, validator=RETRIES)
    timeouts: Timeouts | None = attrs.field(default=None, validator=_TIMEOUTS)
    max_answer_bytes: int = attrs.field(default=MAX_ANSWER_BYTES, validator=COUNT)
    memory: int = attrs.field(default=MEMORY, validator=COUNT)
    dialect: Dialect | None = attrs.field(default=None, validator=_DIALECT)
    connector: Connector | None = attrs.field(default=None, validator=_CONNECTOR)
    proxies: Mapping[Surface, str] = attrs.field(factory=dict, repr=False)  # may contain the password of a proxy
    clock: Clock = attrs.field(factory=SystemClock, validator=CLOCK)
    on_event: Subscribers = attrs.field(default=None, converter=_to_subscribers)
    on_token: Callable[[OAuth2UserCredentials], object] | None = attrs.field(
        default=None, validator=or_none(function_of("credentials"))
    )
    request_id_header: str | None = attrs.field(default=None, validator=or_none(HEADER_NAME))
    state: "SharedState | None" = attrs.field(default=None, validator=_STATE)
    state_required: bool = attrs.field(default=True, validator=FLAG)
    drift: DriftReport | None = attrs.field(default=None, validator=_DRIFT)
    record: "Recording | None" = attrs.field(default=None, validator=_RECORDING)
    origin: SessionOrigin | None = None
    start_sandbox: Callable[[AsyncExitStack], Awaitable[Any]] | None = None

    @classmethod
    def create(
        cls,
        credentials: Credentials | None,
        *,
        app: AppCredentials | None,
        endpoints: Endpoints | None,
        proxy: str | None,
        clock: Clock | None,
        **options: Unpack[CommonOptions],
    ) -> Self:
        """Return the settings of a session with these arguments.

        Raises:
            InvalidArgument: names the one that is missing or breaks its rule.
        """
        try:
            or_none(TEXT).check("proxy", proxy)
            proxies = dict.fromkeys(Surface, proxy_url(proxy)) if proxy else {}
            caller = _find_caller(credentials, app)
        finally:
            del proxy, credentials  # secrets must not be among the locals of a traceback
        if endpoints is None:
            raise InvalidArgument("endpoints", "must be given", hint=Hint.GIVE_CREDENTIALS)
        return cls(
            credentials=caller,
            app=_app_of(caller) if app is None else app,
            endpoints=endpoints,
            proxies=proxies,
            clock=SystemClock() if clock is None else clock,
            **options,
        )

    @property
    def description(self) -> str:
        """Whose session it is, and with which service."""
        if self.start_sandbox is not None:
            return "with the sandbox"
        return f"of {type(self.credentials).__name__} at {self.endpoints.ads_url}"

    async def resolve(self, stack: AsyncExitStack) -> Self:
        """Return the settings, with those of a sandbox that is used; what had to be started is closed with the stack.

        Raises:
            StateUnavailable: the database of the state cannot be reached.
        """
        settings = self
        if self.start_sandbox is not None:
            sandbox = await self.start_sandbox(stack)
            _log.info("this session uses the embedded sandbox at %s", sandbox.base_url)
            dialect = self.dialect or sandbox.dialect
            hosts = {name: getattr(sandbox, name) for name in ("base_url", "ads_url", "ads_sandbox_url")}
            settings = attrs.evolve(
                self,
                credentials=UserCredentials(**sandbox.credentials),
                app=AppCredentials(**sandbox.app),
                endpoints=Endpoints(**hosts),
                clock=sandbox.clock,
                dialect=dialect and dialect.on_one_host(),
            )
        if self.state is not None and not self.state.is_open:
            if self.state_required:
                await stack.enter_async_context(self.state)
            else:  # its limits open it, now or as soon as it can be reached
                stack.push_async_exit(self.state)
        return settings


def prepare_sandbox(
    running: object, create_sandbox: Callable[[], AbstractAsyncContextManager[Any]]
) -> Callable[[AsyncExitStack], Awaitable[Any]]:
    """Return a function that joins a running sandbox or, without one, starts one that is closed with a stack.

    Raises:
        InvalidArgument: it is not a sandbox.
    """
    or_none(_SANDBOX).check("running", running)

    async def start(stack: AsyncExitStack) -> Any:
        if running is None:
            return await stack.enter_async_context(create_sandbox())
        _RUNNING.check("running", running)
        return running

    return start


def _find_caller(credentials: Credentials | None, app: AppCredentials | None) -> Credentials:
    _APP.check("app", app)
    caller: object = app if credentials is None else credentials
    if isinstance(caller, Credentials):
        return caller
    is_given = caller is not None
    del credentials, caller  # secrets must not be among the locals of a traceback
    if is_given:
        raise InvalidArgument("credentials", f"must be {CREDENTIALS}")
    raise InvalidArgument("credentials", "must be given", hint=Hint.GIVE_CREDENTIALS)


def _app_of(credentials: Credentials) -> AppCredentials | None:
    """Return the app that credentials imply, if any."""
    if isinstance(credentials, UserCredentials):
        return credentials.app
    return credentials if isinstance(credentials, AppCredentials) else None


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

    def as_user(
        self, credentials: Credentials, on_token: Callable[[OAuth2UserCredentials], object] | None
    ) -> "SessionResources":
        """Return what a session of another user uses, over the same connections and governor."""
        own, app = self.settings.app, _app_of(credentials)
        if own is not None and (app is None or app.consumer_key == own.consumer_key):
            app = own  # which may know its OAuth 2.0 client as well
        settings = attrs.evolve(self.settings, credentials=credentials, app=app, on_token=on_token, origin=None)
        pipeline = self.pipeline.but(
            authorization=authorization(credentials, self.pipeline.signing_clock),
            user=identity(credentials),
            tokens=None,
            origin=None,
        )
        shares_token = app is own and not isinstance(credentials, BearerToken)
        return _build_resources(settings, pipeline, self.shared_tokens, self.app_tokens if shares_token else None)


async def open_resources(settings: SessionSettings, stack: AsyncExitStack) -> SessionResources:
    """Open a governor, unless one is shared, and the connections; the stack closes them.

    Raises:
        UnusableFile: the file of the recording holds something already, or cannot be written.
        InvalidArgument: the governor counts elsewhere than in the state.
        StateUnavailable: the database of the state cannot be reached.
    """
    async with AsyncExitStack() as opened:
        settings = await settings.resolve(opened)
        if settings.record is not None:
            settings.record.open()
            opened.callback(settings.record.close)
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
    credentials, app, clock = settings.credentials, settings.app, settings.clock
    token = Token(credentials.token) if isinstance(credentials, BearerToken) else None
    if app_tokens is None and (app or token):
        app_tokens = AppTokens(partial(_fetch_token, pipeline, app) if app else None, clock, token)
    user_tokens = None
    if isinstance(credentials, OAuth2UserCredentials):
        from svc_async.platform.oauth2 import refresh_user_token  # noqa: PLC0415 - few programs need it

        refresh = partial(refresh_user_token, pipeline, app)
        user_tokens = UserTokens(credentials, refresh, clock, settings.on_token, shared_tokens.refreshes)
    shared_tokens.open.update(tokens for tokens in (app_tokens, user_tokens) if tokens is not None)
    is_app = isinstance(credentials, AppCredentials | BearerToken)
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
    signing_clock = SigningClock(settings.clock)
    return Pipeline(
        transport=Transport.open(
            user_agent=f"svc-async/{__version__}",
            clock=settings.clock,
            timeouts=settings.timeouts or Timeouts(),
            max_answer_bytes=settings.max_answer_bytes,
            connector=settings.connector,
        ),
        endpoints=settings.endpoints,
        authorization=authorization(settings.credentials, signing_clock),
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
        signing_clock=signing_clock,
        proxies=settings.proxies,
        max_wait=governor.max_wait,
        validate=settings.validate,
        dialect=settings.dialect,
        memory=MemoryBudget(settings.memory),
        subscribers=settings.on_event,
        origin=settings.origin,
        drift=settings.drift,
        recording=settings.record,
    )


async def _fetch_token(pipeline: Pipeline, app: AppCredentials) -> str:
    from svc_async.platform.oauth2 import fetch_app_token  # noqa: PLC0415 - few programs need it

    return (await fetch_app_token(pipeline, app)).access_token
