"""The front door: credentials, governor and services of one user, over one connection pool."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar, Unpack

import attrs

from svc_async import services
from svc_async import state as shared_state
from svc_async.auth.authorization import identity
from svc_async.auth.credentials import (
    CREDENTIALS,
    NEEDS_USER,
    WITH_USER,
    AppCredentials,
    Credentials,
    OAuth2UserCredentials,
)
from svc_async.clock import Clock, require_event_loop
from svc_async.engine.call import await_with_answer
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.retry import Retries
from svc_async.engine.transport import NOT_COPIED, OTHER_LOOP
from svc_async.errors import AccessDenied, Hint, InvalidArgument, WrongState
from svc_async.governor.governor import Governor
from svc_async.handles import AccountHandle, ProductCatalogHandle
from svc_async.monitoring import logs
from svc_async.raw import RawCalls
from svc_async.value_rules import POSITIVE_SECONDS, or_none, refuse_unknown
from svc_async.wire.base_urls import Endpoints
from svc_async.wire.dialect import Dialect
from svc_async.wire.envelope import CallAnswer
from svc_async.wiring import (
    PROFILE_KEYWORDS,
    RETRIES,
    SANDBOX_KEYWORDS,
    SESSION_KEYWORDS,
    CommonOptions,
    SessionOptions,
    SessionResources,
    SessionSettings,
    open_resources,
    prepare_sandbox,
)

if TYPE_CHECKING:
    from svc_async import profiles
    from svc_async.sandbox import Sandbox

__all__ = ["Session"]

T = TypeVar("T")

_CLOSE_THERE: Final = "the session was opened in another event loop; close it there"

_CHANGING = frozenset({"_resources", "_made_from", "_was_closed", "_closing", "_changing", "_changing_in"})
"""The attributes that `_begin` sets."""


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
        dialect: the words of the service, if they are not those of the contract; `Dialect.load` reads them from a file.
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
        drift: collects how answers differ from what this SDK knows; the reading of answers takes up to 10 % longer.
        record: a `Recording`, which writes what is sent and answered to a file, without secrets and personal values.

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
        self._settings = settings
        self._begin()

    def _begin(
        self,
        resources: SessionResources | None = None,
        made_from: "tuple[Session, SessionResources] | None" = None,
        closing: AsyncExitStack | None = None,
    ) -> None:
        """Set what changes from `open` to `close`.

        Args:
            resources: what the session uses, if it is open.
            made_from: the session whose connections it uses, and what that one uses; None if it opens its own.
            closing: closes what it has opened.
        """
        self._resources, self._made_from = resources, made_from
        self._was_closed = False
        self._closing = closing or AsyncExitStack()
        self._changing = asyncio.Lock()
        self._changing_in: asyncio.AbstractEventLoop | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy has: the settings, and attributes of a subclass.

        Raises:
            WrongState: the session is open, or was made of another one: connections belong to one session.
        """
        if self._made_from is not None or self._find_open() is not None:
            raise WrongState(NOT_COPIED, hint=Hint.MAKE_ANOTHER_SESSION)
        return {name: value for name, value in vars(self).items() if name not in _CHANGING}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        if not hasattr(self, "_settings"):  # in a traceback of its constructor
            return "<Session, not created>"
        return f"<Session {self._settings.description}, {'closed' if self._find_open() is None else 'open'}>"

    @classmethod
    def from_env(cls, **options: Unpack[SessionOptions]) -> "Session":
        """Return a session with credentials and hosts from `SVC_*` variables, and proxies from the usual variables.

        With `SVC_STATE_URL` it opens a shared state, which it closes in the end, unless `state` is given. With
        `SVC_LOG=info` or `debug` calls are logged. `SVC_DIALECT` names the file of a dialect, unless `dialect` is
        given. Other options: see `Session`.

        Raises:
            InvalidArgument: names the variables that are missing.
            UnusableFile: the file of the dialect cannot be read, or breaks a rule.
        """
        from svc_async import profiles  # noqa: PLC0415 - only programs that read settings need it

        refuse_unknown("Session.from_env", [*options], PROFILE_KEYWORDS)
        return cls._from(profiles.from_environment(), options)

    @classmethod
    def from_profile(cls, name: str = "default", **options: Unpack[SessionOptions]) -> "Session":
        """Return a session with credentials and hosts from a profile in the user's configuration folder.

        With the setting `state_url` it opens a shared state, and with `dialect` it reads one, as `from_env` does. Other
        options: see `Session`.

        Raises:
            InvalidArgument: there is no such profile, or settings are missing in it; the message names them.
            UnusableFile: the file of profiles, or that of the dialect, cannot be read.
        """
        from svc_async import profiles  # noqa: PLC0415 - likewise

        refuse_unknown("Session.from_profile", [*options], PROFILE_KEYWORDS)
        return cls._from(profiles.from_profile(name), options)

    @classmethod
    def _from(cls, source: "profiles.ConnectionSettings", options: SessionOptions) -> "Session":
        from svc_async import profiles  # noqa: PLC0415 - likewise

        logs.show_as_set()
        if source.dialect is not None:
            options = {"dialect": Dialect.load(source.dialect), **options}
        session = cls(source.credentials, app=source.app, endpoints=source.endpoints, **options)
        proxies = session._settings.proxies or profiles.find_proxies(source.endpoints)
        state = session._settings.state
        if source.state_url and state is None:
            profiles.check_state_url(source.profile, source.state_url)
            state = shared_state.SharedState.open(source.state_url)
        session._settings = attrs.evolve(
            session._settings, proxies=proxies, state=state, origin=SessionOrigin(source.profile)
        )
        return session

    @classmethod
    def sandbox(cls, running: "Sandbox | None" = None, **options: Unpack[CommonOptions]) -> "Session":
        """Return a session with the embedded sandbox, on its clock; it starts a sandbox or joins a running one.

        `running` is a sandbox that was started, which the caller closes. Other options: see `Session`; the sandbox has
        credentials, hosts and a clock of its own, and is reached without a proxy.
        """
        from svc_async.sandbox import Sandbox  # noqa: PLC0415 - most programs need no server

        refuse_unknown("Session.sandbox", [*options], SANDBOX_KEYWORDS)
        start = prepare_sandbox(running, Sandbox)
        nobody = AppCredentials(consumer_key="sandbox", consumer_secret="sandbox")  # noqa: S106 - stands for the sandbox's
        session = cls(nobody, endpoints=Endpoints(base_url="http://localhost", ads_url="http://localhost"), **options)
        session._settings = attrs.evolve(session._settings, app=None, start_sandbox=start)
        return session

    async def open(self) -> Self:
        """Open the session, unless it is open; for programs that do not use it as a context manager.

        Raises:
            StateUnavailable: the database of the state cannot be reached.
            UnusableFile: the file of `record` holds something already, or cannot be written.
            WrongState: it is open in another event loop, which is not closed; or no event loop of asyncio runs.
        """
        async with self._take_turn(OTHER_LOOP):
            if self._made_from is not None:
                self._require_open()
            elif not self._is_in_use:
                await self._end()  # if it was left open when its event loop was closed
                async with AsyncExitStack() as stack:
                    self._resources = await open_resources(self._settings, stack)
                    self._closing = stack.pop_all()
        return self

    async def close(self) -> None:
        """Close the session, if it is open.

        Calls in flight fail with `TransportError`, which says that they may have had an effect. Those that wait fail
        with `WrongState`, or with the error of an earlier attempt that may have had an effect; later ones with
        `WrongState`. One made by `but` or `as_user` leaves the connections open.

        Raises:
            WrongState: it is open in another event loop, which is not closed; nothing is closed.
        """
        async with self._take_turn(_CLOSE_THERE):
            await self._end()

    async def _end(self) -> None:
        if self._resources is not None:
            self._resources, self._was_closed = None, True
            await self._closing.aclose()

    @property
    def _is_in_use(self) -> bool:
        """True if the session is open, in an event loop that is not closed."""
        return self._resources is not None and not self._resources.loop.is_closed()

    def _take_turn(self, refusal: str) -> asyncio.Lock:
        """Return the lock to be held while it is opened or closed, unless another event loop has the session.

        A lock belongs to the event loop in which tasks have waited for it, so each has its own.
        """
        require_event_loop("a session")
        running = asyncio.get_running_loop()
        home = None if self._resources is None else self._resources.loop
        for loop in (home, self._changing_in if self._changing.locked() else None):
            if loop is not None and loop is not running and not loop.is_closed():
                raise WrongState(refusal)
        if self._changing_in is not running:
            self._changing, self._changing_in = asyncio.Lock(), running
        return self._changing

    def _find_open(self) -> SessionResources | None:
        """Return what it uses while it is open, and the session that it was made from has not been closed."""
        if self._made_from is not None:
            session, used = self._made_from
            if session._find_open() is not used:  # noqa: SLF001 - the same class
                return None
        return self._resources

    def _require_open(self) -> SessionResources:
        """Return what it uses.

        Raises:
            WrongState: it is not open.
        """
        if (resources := self._find_open()) is not None:
            return resources
        if self._made_from is not None:
            raise WrongState("the session was closed", hint=Hint.MAKE_ANOTHER_SESSION)
        what = "was closed" if self._was_closed else "is not open"
        raise WrongState(f"the session {what}", hint=Hint.OPEN_IT)

    async def __aenter__(self) -> Self:
        if self._is_in_use and self._made_from is None:
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
        return self._settings.start_sandbox is not None

    @property
    def app(self) -> AppCredentials | None:
        """The app, if it is known."""
        return (self._settings if self._resources is None else self._resources.settings).app

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
        return self._settings.on_event.add(function)

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
        changes = {name: value for name, value in (("timeout", timeout), ("retries", retries)) if value is not None}
        resources = self._require_open()
        return self._derive(attrs.evolve(resources, pipeline=resources.pipeline.but(**changes)))

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
        closing = AsyncExitStack()
        if resources.user_tokens is not None:
            closing.push_async_callback(resources.user_tokens.close)
        return self._derive(resources, closing)

    def _derive(self, resources: SessionResources, closing: AsyncExitStack | None = None) -> "Session":
        """Return a session with resources that use the connections of this one, as open as this one."""
        session = object.__new__(type(self))
        vars(session).update(vars(self))
        session._begin(resources, (self, self._require_open()), closing)
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
        return services.Webhooks(self._app_pipeline)

    @property
    def activity(self) -> "services.Activity":
        """The activity of users: subscriptions and streams.

        Raises:
            AccessDenied: the session has neither an app nor a token with scopes.
        """
        # Unspecified: the scheme of these calls (contract UNS-activity-auth). A token with scopes is used (AUTH-26),
        # otherwise the app-only token.
        resources = self._require_open()
        return services.Activity(resources.pipeline if resources.user_tokens else self._app_pipeline)

    @property
    def filtered_stream(self) -> "services.FilteredStream":
        """The stream of posts that match rules.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
        """
        return services.FilteredStream(self._app_pipeline)

    @property
    def accounts(self) -> "services.Accounts":
        """The ad accounts of the user; like all services of the advertising API, for a session of a user only.

        Raises:
            AccessDenied: the session has no user.
        """
        return services.Accounts(self._ads_pipeline)

    def account(self, account_id: str) -> AccountHandle:
        """Bind an ad account; nothing is sent.

        Raises:
            AccessDenied: the session has no user.
            InvalidArgument: the id is empty or contains a slash.
        """
        return AccountHandle(self._ads_pipeline, account_id)

    @property
    def advertiser_business_categories(self) -> "services.AdvertiserBusinessCategories":
        """The business categories of pre-roll advertisers."""
        return services.AdvertiserBusinessCategories(self._ads_pipeline)

    @property
    def keyword_insights(self) -> "services.KeywordInsightsSearch":
        """How often keywords are used."""
        return services.KeywordInsightsSearch(self._ads_pipeline)

    @property
    def placements(self) -> "services.Placements":
        """The placements of line items."""
        return services.Placements(self._ads_pipeline)

    @property
    def product_catalogs(self) -> "services.ProductCatalogs":
        """The product catalogs that the user may use."""
        return services.ProductCatalogs(self._ads_pipeline)

    def product_catalog(self, product_catalog_id: str) -> ProductCatalogHandle:
        """Bind a product catalog; nothing is sent.

        Raises:
            AccessDenied: the session has no user.
            InvalidArgument: the id is empty or contains a slash.
        """
        return ProductCatalogHandle(self._ads_pipeline, product_catalog_id)

    @property
    def _pipeline(self) -> Pipeline:
        return self._require_open().pipeline

    @property
    def _ads_pipeline(self) -> Pipeline:
        """Makes the calls of the advertising API, which require a user (contract AUTH-27)."""
        resources = self._require_open()
        # Unspecified: whether a token with scopes is accepted there (contract UNS-ads-auth); the service decides.
        if not isinstance(resources.settings.credentials, WITH_USER):
            origin = resources.settings.origin
            raise AccessDenied(f"{NEEDS_USER}{f', which is not in {origin}' if origin else ''}", hint=Hint.GIVE_A_USER)
        return resources.pipeline

    @property
    def _app_pipeline(self) -> Pipeline:
        """Makes the calls that require the app-only bearer token (contract AUTH-25)."""
        resources = self._require_open()
        if resources.app_tokens is None:
            raise AccessDenied("these calls need the app's bearer token", hint=Hint.GIVE_AN_APP)
        user = identity(resources.settings.app or resources.settings.credentials)
        return resources.pipeline.but(tokens=resources.app_tokens, user=user)
