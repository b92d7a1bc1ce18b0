"""The settings of a session: what it is given, with the rules of each, or what it takes from a running sandbox."""

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict, Unpack

import attrs

from svc_async.auth.credentials import CREDENTIALS, AppCredentials, Credentials, OAuth2UserCredentials, UserCredentials
from svc_async.clock import Clock, SystemClock
from svc_async.engine.memory import MEMORY
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.retry import Retries
from svc_async.engine.transport import MAX_ANSWER_BYTES, Connector, Timeouts
from svc_async.errors import InvalidArgument
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
from svc_async.wire.route import Surface

if TYPE_CHECKING:
    from svc_async.state import SharedState

__all__ = [
    "PROFILE_KEYWORDS",
    "RETRIES",
    "SANDBOX_KEYWORDS",
    "SESSION_KEYWORDS",
    "CommonOptions",
    "SandboxSource",
    "SessionOptions",
    "SessionSettings",
    "SettingsSource",
    "app_of",
]

_log = logging.getLogger("svc_async")
_ADVICE = "; Session.from_env() reads them from the environment, Session.sandbox() needs none"


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
            raise InvalidArgument("endpoints", f"must be given{_ADVICE}")
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
    rule = f"must be given{_ADVICE}" if caller is None else f"must be {CREDENTIALS}"
    del credentials, caller  # secrets must not be among the locals of a traceback
    raise InvalidArgument("credentials", rule)


def app_of(credentials: Credentials) -> AppCredentials | None:
    """Return the app that credentials imply, if any."""
    if isinstance(credentials, UserCredentials):
        return credentials.app
    return credentials if isinstance(credentials, AppCredentials) else None
