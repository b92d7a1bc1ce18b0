"""What a session uses while it is open: its settings, its parts, and its life from `open` to `close`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypedDict, Unpack
from weakref import WeakSet

import attrs

from svc_async._version import __version__
from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import (
    CREDENTIALS,
    NEEDS_USER,
    AppCredentials,
    BearerToken,
    Credentials,
    OAuth2UserCredentials,
    UserCredentials,
    has_user,
)
from svc_async.auth.tokens import AppTokens, Refreshes, Token, UserTokens
from svc_async.clock import Clock, SystemClock, require_event_loop
from svc_async.engine.memory import MEMORY, MemoryBudget
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries, RetryBudget
from svc_async.engine.transport import MAX_ANSWER_BYTES, OTHER_LOOP, Connector, Timeouts, Transport
from svc_async.errors import AccessDenied, Hint, InvalidArgument, WrongState
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
from svc_async.wire.reading import Reader
from svc_async.wire.route import Surface

if TYPE_CHECKING:
    from svc_async.state import SharedState

__all__ = [
    "PROFILE_KEYWORDS",
    "RETRIES",
    "SANDBOX_KEYWORDS",
    "SESSION_KEYWORDS",
    "CommonOptions",
    "LifeCycle",
    "SandboxSource",
    "SessionOptions",
    "SessionResources",
    "SessionSettings",
    "SettingsSource",
    "app_of",
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


PROFILE_KEYWORDS: Collection[str] = SessionOptions.__optional_keys__
"""Those of `from_env` and `from_profile`."""
SANDBOX_KEYWORDS: Collection[str] = CommonOptions.__optional_keys__ | {"running"}
SESSION_KEYWORDS: Collection[str] = SessionOptions.__optional_keys__ | {"credentials", "app", "endpoints"}


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


RETRIES = or_none(instance_of(Retries, "Retries(...)"))
_TIMEOUTS = or_none(instance_of(Timeouts, "Timeouts(...), in seconds"))
_CONNECTOR = or_none(instance_of(Connector, "a connector of aiohttp or an ssl.SSLContext"))
_APP = or_none(instance_of(AppCredentials, "AppCredentials(...)"))
_ENDPOINTS = instance_of(Endpoints, "Endpoints(...)")
_GOVERNOR = or_none(has_members("a Governor", "slot"))  # or a test's own
_STATE = or_none(has_members("a SharedState, such as SharedState.open(url)", "is_open", "windows", "owns"))
_SANDBOX = has_members("a Sandbox that was started", "base_url", "ads_url", "credentials", "is_running")
_RUNNING = ValueRule(lambda sandbox: sandbox.is_running, _SANDBOX.words)


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
    origin: SessionOrigin | None = None

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
            app=app_of(caller) if app is None else app,
            endpoints=endpoints,
            proxies=proxies,
            clock=SystemClock() if clock is None else clock,
            **options,
        )

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
        """Return the settings of a session with these options.

        Raises:
            InvalidArgument: names the option that breaks its rule.
        """
        or_none(_SANDBOX).check("running", running)
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
        if sandbox is not None:
            _RUNNING.check("running", sandbox)
        else:
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


def app_of(credentials: Credentials) -> AppCredentials | None:
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

    @property
    def ads_pipeline(self) -> Pipeline:
        """Makes the calls of the advertising API, which require a user (contract AUTH-27).

        Raises:
            AccessDenied: the credentials are those of an app.
        """
        if not has_user(self.settings.credentials):
            place = f", which is not in {self.settings.origin}" if self.settings.origin else ""
            raise AccessDenied(f"{NEEDS_USER}{place}", hint=Hint.GIVE_A_USER)
        return self.pipeline

    @property
    def app_pipeline(self) -> Pipeline:
        """Makes the calls that require the app-only bearer token (contract AUTH-25).

        Raises:
            AccessDenied: there is no bearer token, and no app to fetch one with.
        """
        if self.app_tokens is None:
            raise AccessDenied("these calls need the app's bearer token", hint=Hint.GIVE_AN_APP)
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


_CLOSE_THERE: Final = "the session was opened in another event loop; close it there"


@attrs.define(eq=False)
class LifeCycle:
    """Opens and closes what a session uses.

    Attributes:
        source: provides the settings of the session.
        resources: what it uses, from `open` to `close`.
        made_from: the life cycle of the session whose connections it uses, and what that one used; None if it opens its
            own.
    """

    source: SettingsSource
    resources: SessionResources | None = None
    made_from: "tuple[LifeCycle, SessionResources] | None" = None
    _was_closed: bool = attrs.field(default=False, init=False)
    _closing: AsyncExitStack = attrs.field(factory=AsyncExitStack, init=False)
    _changing: asyncio.Lock = attrs.field(factory=asyncio.Lock, init=False)
    _changing_in: asyncio.AbstractEventLoop | None = attrs.field(default=None, init=False)

    def derive(
        self, resources: SessionResources, on_close: Callable[[], Awaitable[object]] | None = None
    ) -> "LifeCycle":
        """Return that of a session that uses the connections of this one, and is open as long as this one.

        Args:
            resources: what it uses.
            on_close: awaited when it is closed before.
        """
        derived = LifeCycle(self.source, resources, (self, self.require_open()))
        if on_close is not None:
            derived._closing.push_async_callback(on_close)
        return derived

    async def open(self) -> None:
        """Open what the session uses, unless it is open.

        Raises:
            StateUnavailable: the database of the state cannot be reached.
            WrongState: it is open in another event loop, which is not closed; or the session that it was made from was
                closed; or no event loop of asyncio runs.
        """
        async with self._take_turn(OTHER_LOOP):
            if self.made_from is not None:
                self.require_open()
            elif not self.is_in_use:
                await self._end()  # if it was left open when its event loop was closed
                async with AsyncExitStack() as stack:
                    self.resources = await open_resources(self.source, stack)
                    self._closing = stack.pop_all()

    async def close(self) -> None:
        """Close what the session uses, if it is open.

        Raises:
            WrongState: it is open in another event loop, which is not closed; it stays open.
        """
        async with self._take_turn(_CLOSE_THERE):
            await self._end()

    @property
    def is_in_use(self) -> bool:
        """Whether it is open, in an event loop that is not closed."""
        return self.resources is not None and not self.resources.loop.is_closed()

    def require_open(self) -> SessionResources:
        """Return what the session uses.

        Raises:
            WrongState: it is not open.
        """
        if (resources := self.find_open()) is not None:
            return resources
        if self.made_from is not None:
            raise WrongState("the session was closed", hint=Hint.MAKE_ANOTHER_SESSION)
        what = "was closed" if self._was_closed else "is not open"
        raise WrongState(f"the session {what}", hint=Hint.OPEN_IT)

    def find_open(self) -> SessionResources | None:
        """Return what it uses while it is open, and the session that it was made from has not been closed."""
        session, used = self.made_from or (None, None)
        is_over = session is not None and session.find_open() is not used
        return None if is_over else self.resources

    async def _end(self) -> None:
        if self.resources is not None:
            self.resources, self._was_closed = None, True
            await self._closing.aclose()

    def _take_turn(self, refusal: str) -> asyncio.Lock:
        """Return the lock to be held while it is opened or closed, unless another event loop has the session.

        A lock belongs to the event loop in which tasks have waited for it, so each has its own.
        """
        require_event_loop("a session")
        running = asyncio.get_running_loop()
        home = None if self.resources is None else self.resources.loop
        for loop in (home, self._changing_in if self._changing.locked() else None):
            if loop is not None and loop is not running and not loop.is_closed():
                raise WrongState(refusal)
        if self._changing_in is not running:
            self._changing, self._changing_in = asyncio.Lock(), running
        return self._changing
