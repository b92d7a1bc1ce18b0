"""The front door: credentials, governor and services of one user, over one connection pool."""

import copy
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack, cast

import attrs

from svc_async import services
from svc_async import state as shared_state
from svc_async.auth.credentials import CREDENTIALS, AppCredentials, Credentials, OAuth2UserCredentials
from svc_async.clock import Clock
from svc_async.engine.call import await_with_answer
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.errors import InvalidArgument, WrongState
from svc_async.governor.governor import Governor
from svc_async.handles import AccountHandle, ProductCatalogHandle
from svc_async.monitoring import logs
from svc_async.raw import RawCalls
from svc_async.value_rules import POSITIVE_SECONDS, or_none, refuse_unknown
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.envelope import CallAnswer
from svc_async.wiring import (
    PROFILE_KEYWORDS,
    RETRIES,
    SANDBOX_KEYWORDS,
    SESSION_KEYWORDS,
    CommonOptions,
    LifeCycle,
    SandboxSource,
    SessionOptions,
    SessionResources,
    SessionSettings,
    SettingsSource,
)

if TYPE_CHECKING:
    from svc_async import profiles
    from svc_async.sandbox import Sandbox

__all__ = ["Session"]

T = TypeVar("T")


class Session(RawCalls):
    """The connection of one user to the service; an async context manager.

    It reads no environment variables and no files; `from_env` and `from_profile` do. Where no block fits, `open` and
    `close` do the same. A session that was closed can be opened again: with new connections, and with new counts of
    the rate limits unless a governor or a state keeps them.

    Args:
        credentials: the credentials of the user; with those of an app, services of the advertising API raise
            `AccessDenied`.
        app: the app, if the credentials do not imply it.
        endpoints: the base URLs; there are no defaults.
        validate: reject calls that break a known rule before a request is sent; True by default.
        keep_unknown: keep fields that this SDK does not know in `record.extra`, at some cost in speed.
        strict_reading: raise `UnexpectedAnswer` for an answer with values that do not fit; by default they are left out
            of their record, or their record out of its page, and reported.
        governor: says how long calls wait, and shares rate limits with other sessions of the same event loop. With
            `state`, it counts there; sessions that share a governor share the state as well.
        retries: how often and how long calls are repeated.
        timeouts: how long one exchange may take.
        max_answer_bytes: how large an answer may be, decompressed, by default 64 MiB; more of it is not read.
        memory: bytes of row data that all batch jobs of the session may hold together, by default 48 MiB; jobs that run
            at once have equal shares. The interpreter and what a request takes while it is sent come on top.
        connector: an aiohttp connector, which the caller closes, or an `ssl.SSLContext`.
        proxy: the URL of an HTTP proxy for all hosts.
        clock: the source of time.
        on_event: called with every event of `svc_async.monitoring` that the session reports, such as each attempt of a
            call; a plain function. An exception in it is logged, by its type, and has no other effect. `subscribe`
            adds more of them.
        on_token: called with each refreshed token of `OAuth2UserCredentials` before any call uses it; store it, because
            the previous one cannot be refreshed again. Plain, or a coroutine function. An exception in it is raised in
            the calls that waited for the token; the session keeps the token, and calls it again before the next call.
        request_id_header: the header with the server-assigned request id, for errors.
        state: what the session shares with other processes. One that is not open is opened and closed with the session.
        state_required: whether a state that cannot be reached when the session opens is an error, as it is by default;
            otherwise it is tried again, and until then the session keeps the rate limits by itself.

    Raises:
        InvalidArgument: credentials or endpoints are missing, or the proxy is not an HTTP proxy.
    """

    def __init__(
        self,
        credentials: Credentials | None = None,
        *,
        app: AppCredentials | None = None,
        endpoints: Endpoints | None = None,
        proxy: str | None = None,
        clock: Clock | None = None,
        **options: Unpack[CommonOptions],
    ) -> None:
        try:
            refuse_unknown("Session", [*options], SESSION_KEYWORDS)
            settings = SessionSettings.create(
                credentials, app=app, endpoints=endpoints, proxy=proxy, clock=clock, **options
            )
        finally:
            del credentials, proxy, options  # secrets must not be among the locals of a traceback
        self._bind(settings)

    def _bind(self, source: SettingsSource, life_cycle: LifeCycle | None = None) -> None:
        self._source = source
        self._life_cycle = LifeCycle(source) if life_cycle is None else life_cycle

    def __repr__(self) -> str:
        if not hasattr(self, "_source"):  # in a traceback of its constructor
            return "<Session, not created>"
        return f"<Session {self._source.description}, {'closed' if self._life_cycle.find_open() is None else 'open'}>"

    @classmethod
    def from_env(cls, **options: Unpack[SessionOptions]) -> "Session":
        """Return a session with credentials and hosts from `SVC_*` variables, and proxies from the usual variables.

        With `SVC_STATE_URL` it opens a shared state, which it closes in the end, unless `state` is given. With
        `SVC_LOG=info` or `debug` calls are logged. Other options: see `Session`.

        Raises:
            InvalidArgument: names the variables that are missing.
        """
        from svc_async import profiles  # noqa: PLC0415 - only programs that read settings need it

        refuse_unknown("Session.from_env", [*options], PROFILE_KEYWORDS)
        return cls._from(profiles.from_environment(), options)

    @classmethod
    def from_profile(cls, name: str = "default", **options: Unpack[SessionOptions]) -> "Session":
        """Return a session with credentials and hosts from a profile in the user's configuration folder.

        With the setting `state_url` it opens a shared state, as `from_env` does. Other options: see `Session`.

        Raises:
            InvalidArgument: there is no such profile, or settings are missing in it; the message names them.
            UnusableFile: the file of profiles cannot be read.
        """
        from svc_async import profiles  # noqa: PLC0415 - likewise

        refuse_unknown("Session.from_profile", [*options], PROFILE_KEYWORDS)
        return cls._from(profiles.from_profile(name), options)

    @classmethod
    def _from(cls, source: "profiles.ConnectionSettings", options: SessionOptions) -> "Session":
        from svc_async import profiles  # noqa: PLC0415 - likewise

        logs.show_as_set()
        session = cls(source.credentials, app=source.app, endpoints=source.endpoints, **options)
        settings = cast(SessionSettings, session._source)
        proxies, state = settings.proxies or profiles.find_proxies(source.endpoints), settings.state
        if source.state_url and state is None:
            profiles.check_state_url(source.profile, source.state_url)
            state = shared_state.SharedState.open(source.state_url)
        session._bind(attrs.evolve(settings, proxies=proxies, state=state, origin=SessionOrigin(source.profile)))
        return session

    @classmethod
    def sandbox(cls, running: "Sandbox | None" = None, **options: Unpack[CommonOptions]) -> "Session":
        """Return a session with the embedded sandbox, on its clock; it starts a sandbox or joins a running one.

        `running` is a sandbox that was started, which the caller closes. Other options: see `Session`; the sandbox has
        credentials, hosts and a clock of its own, and is reached without a proxy.
        """
        from svc_async.sandbox import Sandbox  # noqa: PLC0415 - most programs need no server

        refuse_unknown("Session.sandbox", [*options], SANDBOX_KEYWORDS)
        session = cls.__new__(cls)
        session._bind(SandboxSource.create(running, Sandbox, options))  # noqa: SLF001 - the same class
        return session

    async def open(self) -> Self:
        """Open the session, unless it is open; for programs that do not use it as a context manager.

        Raises:
            StateUnavailable: the database of the state cannot be reached.
            WrongState: it is open in another event loop, which is not closed; or no event loop of asyncio runs.
        """
        await self._life_cycle.open()
        return self

    async def close(self) -> None:
        """Close the session, if it is open.

        Calls in flight fail with `TransportError`, which says that they may have had an effect. Those that wait fail
        with `WrongState`, or with the error of an earlier attempt that may have had an effect; later ones with
        `WrongState`. One made by `but` or `as_user` leaves the connections open.

        Raises:
            WrongState: it is open in another event loop, which is not closed; nothing is closed.
        """
        await self._life_cycle.close()

    async def __aenter__(self) -> Self:
        if self._life_cycle.is_in_use and self._life_cycle.made_from is None:
            raise WrongState("the session is open already")
        return await self.open()

    if not TYPE_CHECKING:  # checkers see that it is opened with `async with` only

        def __enter__(self) -> NoReturn:
            """Say how to open it, to a `with` without `async`."""
            raise TypeError("a session is opened with `async with`, or with `await session.open()`")

        def __exit__(self, *details: object) -> None:
            """Exist, since Python looks for both before it enters a block."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def is_sandbox(self) -> bool:
        """Whether this session uses the embedded sandbox."""
        return isinstance(self._source, SandboxSource)

    @property
    def app(self) -> AppCredentials | None:
        """The app, if it is known."""
        resources = self._life_cycle.resources
        return self._source.app if resources is None else resources.settings.app

    @property
    def state(self) -> "shared_state.SharedState | None":
        """What the open session shares with other processes."""
        return self._require_open().settings.state

    @property
    def governor(self) -> Governor:
        """Enforces the rate limits; `snapshot()` returns their state."""
        return self._pipeline.governor

    def subscribe(self, function: Callable[[Any], object]) -> Callable[[], None]:
        """Call a function with every event of this session from now on, like `on_event`.

        The session may be closed still. Those made from it by `but` and `as_user` have the same subscribers.

        Returns:
            A function that ends the subscription.
        """
        return self._source.subscribers.add(function)

    async def with_answer(self, awaitable: Awaitable[T]) -> tuple[T, CallAnswer]:
        """Await a call and return the answer behind its value, too: status, headers, request id and body.

            account, answer = await session.with_answer(session.accounts.get(account_id))

        Works with whatever makes calls of this session: a method, `pager.first()`, a coroutine of your own.
        Of several calls, the answer is the one that arrived last. An error is raised as usual.

        Raises:
            InvalidArgument: the awaitable is a task, which may have begun.
            WrongState: no call of this session was answered, as when a job had nothing to send; `sent` is `maybe`.
        """
        return await await_with_answer(awaitable, self._pipeline.transport)

    def but(self, *, timeout: float | None = None, retries: Retries | None = None) -> "Session":
        """Return a session that shares connections and governor, with other seconds for one exchange or other retries.

        It is open as long as this one; closing it has no effect on this one.

        Raises:
            InvalidArgument: the timeout is no number of seconds greater than 0, or retries are no `Retries`.
        """
        or_none(POSITIVE_SECONDS).check("timeout", timeout)
        RETRIES.check("retries", retries)
        return self._derive(self._life_cycle.derive(self._require_open().but(timeout, retries)))

    def as_user(
        self, credentials: Credentials, *, on_token: Callable[[OAuth2UserCredentials], object] | None = None
    ) -> "Session":
        """Return a session of another user, over the connections and the governor of this one.

        The limits of each user are counted apart, those of an ad account or of the app together. It is open as long as
        this one; closing it has no effect on this one. It costs no connection, so that each request of a service can
        have its own.

        Args:
            credentials: the credentials of the user. Those without an app use that of this session.
            on_token: as for `Session`, also if another session refreshed the token; that of this session is not called.

        Raises:
            InvalidArgument: these are no credentials.
        """
        if not isinstance(credentials, Credentials):
            raise InvalidArgument("credentials", f"must be {CREDENTIALS}")
        resources = self._require_open().as_user(credentials, on_token)
        return self._derive(self._life_cycle.derive(resources, resources.close_tokens))

    def _derive(self, life_cycle: LifeCycle) -> "Session":
        session = copy.copy(self)
        session._bind(self._source, life_cycle)  # noqa: SLF001 - the same class
        return session

    @property
    def oauth1(self) -> "services.OAuth1Flow":
        """The steps by which a user grants access to the app (OAuth 1.0a)."""
        resources = self._require_open()
        return services.OAuth1Flow(resources.pipeline, self.app, resources.settings.credentials)

    @property
    def oauth2(self) -> "services.OAuth2":
        """The app-only bearer token, and tokens of users with scopes (OAuth 2.0)."""
        resources = self._require_open()
        return services.OAuth2(resources.pipeline, self.app, resources.app_tokens, resources.user_tokens)

    @property
    def webhooks(self) -> "services.Webhooks":
        """The webhooks of the app.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
        """
        return services.Webhooks(self._require_open().app_pipeline)

    @property
    def activity(self) -> "services.Activity":
        """The activity of users: subscriptions and streams.

        Raises:
            AccessDenied: the session has neither an app nor a token with scopes.
        """
        # Unspecified: the scheme of these calls (contract UNS-activity-auth). A token with scopes is used (AUTH-26),
        # otherwise the app-only token.
        resources = self._require_open()
        return services.Activity(resources.pipeline if resources.user_tokens else resources.app_pipeline)

    @property
    def filtered_stream(self) -> "services.FilteredStream":
        """The stream of posts that match rules.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
        """
        return services.FilteredStream(self._require_open().app_pipeline)

    @property
    def accounts(self) -> "services.Accounts":
        """The ad accounts of the user; like all services of the advertising API, for a session of a user only.

        Raises:
            AccessDenied: the session has no user.
        """
        return services.Accounts(self._require_open().ads_pipeline)

    def account(self, account_id: str) -> AccountHandle:
        """Bind an ad account; nothing is sent.

        Raises:
            AccessDenied: the session has no user.
            InvalidArgument: the id is empty or contains a slash.
        """
        return AccountHandle(self._require_open().ads_pipeline, account_id)

    @property
    def advertiser_business_categories(self) -> "services.AdvertiserBusinessCategories":
        """The business categories of pre-roll advertisers."""
        return services.AdvertiserBusinessCategories(self._require_open().ads_pipeline)

    @property
    def keyword_insights(self) -> "services.KeywordInsightsSearch":
        """How often keywords are used."""
        return services.KeywordInsightsSearch(self._require_open().ads_pipeline)

    @property
    def placements(self) -> "services.Placements":
        """The placements of line items."""
        return services.Placements(self._require_open().ads_pipeline)

    @property
    def product_catalogs(self) -> "services.ProductCatalogs":
        """The product catalogs that the user may use."""
        return services.ProductCatalogs(self._require_open().ads_pipeline)

    def product_catalog(self, product_catalog_id: str) -> ProductCatalogHandle:
        """Bind a product catalog; nothing is sent.

        Raises:
            AccessDenied: the session has no user.
            InvalidArgument: the id is empty or contains a slash.
        """
        return ProductCatalogHandle(self._require_open().ads_pipeline, product_catalog_id)

    def _require_open(self) -> SessionResources:
        return self._life_cycle.require_open()

    @property
    def _pipeline(self) -> Pipeline:
        return self._require_open().pipeline
