"""The front door: credentials, governor and services of one user, over one connection pool."""

import copy
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack, cast

import attrs

from svc_async import state as shared_state
from svc_async.auth.credentials import AppCredentials, Credentials, OAuth2UserCredentials, UserCredentials
from svc_async.clock import Clock, SystemClock
from svc_async.engine.memory import MEMORY
from svc_async.engine.origin import SessionOrigin
from svc_async.engine.pipeline import CallEvent, Pipeline
from svc_async.engine.retry import Retries
from svc_async.engine.transport import MAX_ANSWER_BYTES, Connector, Timeouts
from svc_async.errors import InvalidArgument, WrongState
from svc_async.governor.governor import Governor
from svc_async.handles import AccountHandle, ProductCatalogHandle, services
from svc_async.raw import RawCalls
from svc_async.wire.base_urls import Endpoints, proxy_url
from svc_async.wire.route import Surface
from svc_async.wiring import SessionOptions, SessionResources, SessionSettings, SettingsSource, app_of, open_resources

if TYPE_CHECKING:
    from svc_async import profiles
    from svc_async.sandbox import Sandbox

__all__ = ["Session"]

_log = logging.getLogger("svc_async")

_ADVICE = "; or read the environment with Session.from_env(), or try without credentials with Session.sandbox()"


@attrs.frozen
class _SandboxSource:
    """The settings of a session with the sandbox, known once the sandbox runs."""

    _running: "Sandbox | None"
    _complete: Callable[..., SessionSettings]

    @property
    def app(self) -> AppCredentials | None:
        return None

    async def resolve(self, stack: AsyncExitStack) -> SessionSettings:
        from svc_async.sandbox import Sandbox  # noqa: PLC0415 - most programs need no server

        sandbox = self._running
        if sandbox is None:
            sandbox = await stack.enter_async_context(Sandbox())
        _log.info("this session uses the embedded sandbox at %s", sandbox.base_url)
        settings = self._complete(
            credentials=UserCredentials(**sandbox.credentials),
            app=AppCredentials(**sandbox.app),
            endpoints=Endpoints(
                base_url=sandbox.base_url, ads_url=sandbox.ads_url, ads_sandbox_url=sandbox.ads_sandbox_url
            ),
            clock=sandbox.clock,
        )
        return await settings.resolve(stack)


class Session(RawCalls):
    """The connection of one user to the service; an async context manager.

    It reads no environment variables and no files; `from_env` and `from_profile` do.

    Args:
        credentials: the credentials of the user; the advertising API requires `UserCredentials`.
        app: the app, if the credentials do not imply it.
        endpoints: the base URLs; there are no defaults.
        validate: reject calls that break a known rule before a request is sent.
        keep_unknown: keep fields that this SDK does not know in `record.extra`, at some cost in speed.
        strict_reading: raise `UnexpectedAnswer` for an answer with values that do not fit; by default they are left out
            of their record, or their record out of its page, and reported.
        governor: shares rate limits with other sessions of the same event loop. With `state`, it is one that was made
            with `windows=state.windows()`.
        retries: how often and how long calls are repeated.
        timeouts: how long one exchange may take.
        max_answer_bytes: how large an answer may be, decompressed; more of it is not read.
        memory: bytes of row data that all batch jobs of the session may hold together; jobs that run at once have
            equal shares. The interpreter and what a request takes while it is sent come on top.
        connector: an aiohttp connector, which the caller closes, or an `ssl.SSLContext`.
        proxy: the URL of an HTTP proxy for all hosts.
        clock: the source of time.
        on_event: called with every attempt of every call; a plain function. An exception in it is logged, by its type,
            and does not affect the call.
        on_token: called with each refreshed token of `OAuth2UserCredentials` before any call uses it; store it, because
            the previous one cannot be refreshed again. Plain, or a coroutine function. An exception in it is raised in
            the calls that waited for the token; the session keeps the token.
        request_id_header: the header with the server-assigned request id, for errors.
        state: what the session shares with other processes. One that is not open is opened and closed with the session.
        state_required: whether a state that cannot be reached when the session opens is an error; otherwise it is tried
            again, and until then the session keeps the rate limits by itself.

    Raises:
        InvalidArgument: credentials or endpoints are missing, or the proxy is not an HTTP proxy.
    """

    def __init__(
        self,
        credentials: Credentials | None = None,
        *,
        app: AppCredentials | None = None,
        endpoints: Endpoints | None = None,
        validate: bool = True,
        keep_unknown: bool = False,
        strict_reading: bool = False,
        governor: Governor | None = None,
        retries: Retries | None = None,
        timeouts: Timeouts | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        memory: int = MEMORY,
        connector: Connector | None = None,
        proxy: str | None = None,
        clock: Clock | None = None,
        on_event: Callable[[CallEvent], object] | None = None,
        on_token: Callable[[OAuth2UserCredentials], object] | None = None,
        request_id_header: str | None = None,
        state: "shared_state.SharedState | None" = None,
        state_required: bool = True,
    ) -> None:
        caller = credentials or app
        if not isinstance(caller, Credentials):
            raise InvalidArgument("credentials", f"must be given{_ADVICE}")
        if endpoints is None:
            raise InvalidArgument("endpoints", f"must be given{_ADVICE}")
        try:
            proxies = dict.fromkeys(Surface, proxy_url(proxy)) if proxy else {}
        finally:
            del proxy  # its password must not be among the locals of a traceback
        settings = SessionSettings(
            credentials=caller,
            app=app or app_of(caller),
            endpoints=endpoints,
            validate=validate,
            keep_unknown=keep_unknown,
            strict_reading=strict_reading,
            governor=governor,
            retries=retries or Retries(),
            timeouts=timeouts or Timeouts(),
            max_answer_bytes=_check_size("max_answer_bytes", max_answer_bytes),
            memory=_check_size("memory", memory),
            connector=connector,
            proxies=proxies,
            clock=clock or SystemClock(),
            on_event=on_event,
            on_token=on_token,
            request_id_header=request_id_header,
            state=state,
            state_required=state_required,
        )
        self._bind(settings)

    def _bind(self, source: SettingsSource, resources: SessionResources | None = None) -> None:
        self._source = source
        self._resources = resources
        self._closing = AsyncExitStack()

    @classmethod
    def from_env(cls, **options: Unpack[SessionOptions]) -> "Session":
        """Return a session with credentials and hosts from `SVC_*` variables, and proxies from the usual variables.

        With `SVC_STATE_URL` it opens a shared state, which it closes in the end, unless `state` is given. Other
        options: see `Session`.

        Raises:
            InvalidArgument: names the variables that are missing.
        """
        from svc_async import profiles  # noqa: PLC0415 - only programs that read settings need it

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

        return cls._from(profiles.from_profile(name), options)

    @classmethod
    def _from(cls, source: "profiles.ConnectionSettings", options: SessionOptions) -> "Session":
        from svc_async import profiles  # noqa: PLC0415 - likewise

        session = cls(source.credentials, app=source.app, endpoints=source.endpoints, **options)
        settings = cast(SessionSettings, session._source)
        if not settings.proxies:
            settings = attrs.evolve(settings, proxies=profiles.find_proxies(source.endpoints))
        if source.state_url and settings.state is None:
            settings = attrs.evolve(settings, state=shared_state.SharedState.open(source.state_url))
        session._bind(attrs.evolve(settings, origin=SessionOrigin(source.profile)))
        return session

    @classmethod
    def sandbox(
        cls,
        running: "Sandbox | None" = None,
        *,
        validate: bool = True,
        keep_unknown: bool = False,
        strict_reading: bool = False,
        governor: Governor | None = None,
        retries: Retries | None = None,
        timeouts: Timeouts | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        memory: int = MEMORY,
        connector: Connector | None = None,
        on_event: Callable[[CallEvent], object] | None = None,
        state: "shared_state.SharedState | None" = None,
        state_required: bool = True,
    ) -> "Session":
        """Return a session with the embedded sandbox, on its clock; it starts a sandbox or joins a running one.

        `running` is a sandbox that was started, which the caller closes. Other settings: see `Session`.
        """
        complete = partial(
            SessionSettings,
            validate=validate,
            keep_unknown=keep_unknown,
            strict_reading=strict_reading,
            governor=governor,
            retries=retries or Retries(),
            timeouts=timeouts or Timeouts(),
            max_answer_bytes=_check_size("max_answer_bytes", max_answer_bytes),
            memory=_check_size("memory", memory),
            connector=connector,
            on_event=on_event,
            state=state,
            state_required=state_required,
        )
        session = cls.__new__(cls)
        session._bind(_SandboxSource(running, complete))  # noqa: SLF001 - the same class
        return session

    async def __aenter__(self) -> Self:
        if self._resources is not None:
            raise WrongState("the session is open already; one made by but() shares the connections of an open session")
        async with AsyncExitStack() as stack:
            self._resources = await open_resources(await self._source.resolve(stack), stack)
            self._closing = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._require_open()
        self._resources = None
        await self._closing.aclose()

    @property
    def is_sandbox(self) -> bool:
        """Whether this session uses the embedded sandbox."""
        return isinstance(self._source, _SandboxSource)

    @property
    def app(self) -> AppCredentials | None:
        """The app, if it is known."""
        return self._source.app if self._resources is None else self._resources.settings.app

    @property
    def state(self) -> "shared_state.SharedState | None":
        """What the open session shares with other processes."""
        return self._require_open().settings.state

    @property
    def governor(self) -> Governor:
        """Enforces the rate limits; `snapshot()` returns their state."""
        return self._pipeline.governor

    def but(self, *, timeout: float | None = None, retries: Retries | None = None) -> "Session":
        """Return a session that shares connections and governor but overrides settings.

        Closing the parent closes it.

        Args:
            timeout: seconds for one exchange.
            retries: how often and how long calls are repeated.
        """
        resources = self._require_open()
        pipeline = resources.pipeline.but(
            timeout=resources.pipeline.timeout if timeout is None else Timeouts(total=timeout).total,
            retries=retries or resources.pipeline.retries,
        )
        view = copy.copy(self)
        view._bind(self._source, attrs.evolve(resources, pipeline=pipeline))  # noqa: SLF001 - the same class
        return view

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
        return services.Activity(self._pipeline if self._require_open().user_tokens else self._app_pipeline)

    @property
    def filtered_stream(self) -> "services.FilteredStream":
        """The stream of posts that match rules.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
        """
        return services.FilteredStream(self._app_pipeline)

    @property
    def accounts(self) -> "services.Accounts":
        """The ad accounts of the user."""
        return services.Accounts(self._pipeline)

    def account(self, account_id: str) -> AccountHandle:
        """Bind an ad account; nothing is sent.

        Raises:
            InvalidArgument: the id is empty or contains a slash.
        """
        return AccountHandle(self._pipeline, account_id)

    @property
    def advertiser_business_categories(self) -> "services.AdvertiserBusinessCategories":
        """The business categories of pre-roll advertisers."""
        return services.AdvertiserBusinessCategories(self._pipeline)

    @property
    def keyword_insights(self) -> "services.KeywordInsightsSearch":
        """How often keywords are used."""
        return services.KeywordInsightsSearch(self._pipeline)

    @property
    def placements(self) -> "services.Placements":
        """The placements of line items."""
        return services.Placements(self._pipeline)

    @property
    def product_catalogs(self) -> "services.ProductCatalogs":
        """The product catalogs that the user may use."""
        return services.ProductCatalogs(self._pipeline)

    def product_catalog(self, product_catalog_id: str) -> ProductCatalogHandle:
        """Bind a product catalog; nothing is sent.

        Raises:
            InvalidArgument: the id is empty or contains a slash.
        """
        return ProductCatalogHandle(self._pipeline, product_catalog_id)

    def _require_open(self) -> SessionResources:
        if self._resources is None:
            raise WrongState("the session is not open; use it inside `async with`")
        return self._resources

    @property
    def _pipeline(self) -> Pipeline:
        return self._require_open().pipeline

    @property
    def _app_pipeline(self) -> Pipeline:
        return self._require_open().app_pipeline


def _check_size(name: str, size: int) -> int:
    if size < 1:
        raise InvalidArgument(name, "must be at least 1")
    return size
