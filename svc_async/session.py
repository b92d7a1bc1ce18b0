"""The front door: credentials, governor and services of one user, over one pool of connections."""

import logging
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import attrs

from svc_async import profiles
from svc_async._version import __version__
from svc_async.ads.accounts import Accounts
from svc_async.ads.advertiser_business_categories import AdvertiserBusinessCategories
from svc_async.ads.keyword_insights import KeywordInsightsSearch
from svc_async.ads.placements import Placements
from svc_async.ads.product_catalogs import ProductCatalogs
from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import (
    AppCredentials,
    BearerToken,
    Credentials,
    OAuth2UserCredentials,
    UserCredentials,
)
from svc_async.auth.tokens import AppTokens, UserTokens
from svc_async.clock import Clock, SystemClock
from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import CallEvent, Pipeline
from svc_async.engine.retry import Retries, RetryBudget
from svc_async.engine.transport import Connector, Timeouts, Transport
from svc_async.errors import AccessDenied, InvalidArgument, WrongState
from svc_async.governor.governor import Governor
from svc_async.handles import AccountHandle, ProductCatalogHandle
from svc_async.platform.activity import Activity
from svc_async.platform.filtered_stream import FilteredStream
from svc_async.platform.oauth1_flow import OAuth1Flow
from svc_async.platform.oauth2 import OAuth2, fetch_app_token, refresh_user_token
from svc_async.platform.webhooks import Webhooks
from svc_async.wire.base_urls import Endpoints, proxy_url
from svc_async.wire.params import Param, segment, to_pairs
from svc_async.wire.reading import Reader
from svc_async.wire.route import Reply, Request, Surface
from svc_async.wire.writing import to_json

if TYPE_CHECKING:
    from svc_async.sandbox import Sandbox

__all__ = ["Session"]

T = TypeVar("T")

_log = logging.getLogger("svc_async")

_ADVICE = "; or read the environment with Session.from_env(), or try without credentials with Session.sandbox()"


@attrs.frozen(kw_only=True)
class _Settings:
    """What a session was made with."""

    credentials: Credentials
    app: AppCredentials | None
    endpoints: Endpoints
    validate: bool
    keep_unknown: bool
    governor: Governor | None
    retries: Retries
    timeouts: Timeouts
    connector: Connector | None
    proxies: Mapping[Surface, str] = attrs.field(repr=False)  # may hold the proxy's password
    clock: Clock
    on_event: Callable[[CallEvent], object] | None
    on_token: Callable[[OAuth2UserCredentials], object] | None
    request_id_header: str | None

    def open(self) -> "_Opened":
        """Open the connections, and put together what proves the calls."""
        pipeline = self._pipeline()
        app, user = self._app_tokens(pipeline), self._user_tokens(pipeline)
        is_app = isinstance(self.credentials, AppCredentials | BearerToken)
        return _Opened(pipeline.but(tokens=app if is_app else user), app, user)

    def _app_tokens(self, pipeline: Pipeline) -> AppTokens | None:
        given = self.credentials.token if isinstance(self.credentials, BearerToken) else None
        if self.app is None:
            return AppTokens(None, self.clock, given) if given else None
        return AppTokens(partial(_fetched, pipeline, self.app), self.clock, given)

    def _user_tokens(self, pipeline: Pipeline) -> UserTokens | None:
        if not isinstance(self.credentials, OAuth2UserCredentials):
            return None
        return UserTokens(self.credentials, partial(refresh_user_token, pipeline, self.app), self.clock, self.on_token)

    def _pipeline(self) -> Pipeline:
        governor = self.governor or Governor(clock=self.clock)
        return Pipeline(
            transport=Transport.open(
                user_agent=f"svc-async/{__version__}",
                clock=self.clock,
                timeouts=self.timeouts,
                connector=self.connector,
            ),
            endpoints=self.endpoints,
            authorization=authorization(self.credentials, self.clock),
            user=identity(self.credentials),
            governor=governor,
            retries=self.retries,
            budget=RetryBudget(),
            reader=Reader(keep_unknown=self.keep_unknown, request_id_header=self.request_id_header),
            clock=self.clock,
            proxies=self.proxies,
            max_wait=governor.max_wait,
            validate=self.validate,
            on_event=self.on_event,
        )


async def _fetched(pipeline: Pipeline, app: AppCredentials) -> str:
    return (await fetch_app_token(pipeline, app)).access_token


@attrs.frozen
class _Opened:
    """What a session works with while it is open.

    Attributes:
        pipeline: proves calls with the session's credentials.
        app_tokens: the app-only bearer token, if it is known or can be asked for.
        user_tokens: the scoped token of the user, if that is who calls.
    """

    pipeline: Pipeline
    app_tokens: AppTokens | None
    user_tokens: UserTokens | None

    async def close(self) -> None:
        try:
            for tokens in (self.app_tokens, self.user_tokens):
                if tokens is not None:
                    await tokens.close()
        finally:
            await self.pipeline.transport.close()


class Session:
    """Calls the service as one user. Use it as an async context manager.

    It reads nothing from outside; `from_env` and `from_profile` do.

    Args:
        credentials: who calls; the advertising API takes `UserCredentials`.
        app: the app, where the credentials do not imply it.
        endpoints: the hosts; there are no defaults.
        validate: refuse what breaks a known rule before a request is spent.
        keep_unknown: keep fields that this SDK does not know in `record.extra`, at some cost in speed.
        governor: shares rate limits with other sessions of the same loop.
        retries: how often and how long calls are repeated.
        timeouts: how long one exchange may take.
        connector: an aiohttp connector, which stays yours to close, or an `ssl.SSLContext`.
        proxy: the URL of an HTTP proxy for all hosts.
        clock: where time comes from.
        on_event: told of every attempt of every call, a plain function. What it raises is logged, by its type, and
            changes nothing about the call.
        on_token: told of each refreshed token of `OAuth2UserCredentials`, before any call carries it: store it, for
            the last one cannot be refreshed again. Plain, or a coroutine function. What it raises goes to the calls
            that waited for the token; the session keeps the token.
        request_id_header: the header in which the service names a call, for errors.

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
        governor: Governor | None = None,
        retries: Retries | None = None,
        timeouts: Timeouts | None = None,
        connector: Connector | None = None,
        proxy: str | None = None,
        clock: Clock | None = None,
        on_event: Callable[[CallEvent], object] | None = None,
        on_token: Callable[[OAuth2UserCredentials], object] | None = None,
        request_id_header: str | None = None,
    ) -> None:
        who = credentials or app
        if not isinstance(who, Credentials):
            raise InvalidArgument("credentials", f"must be given{_ADVICE}")
        if endpoints is None:
            raise InvalidArgument("endpoints", f"must be given{_ADVICE}")
        self._settings = _Settings(
            credentials=who,
            app=app or _implied_app(who),
            endpoints=endpoints,
            validate=validate,
            keep_unknown=keep_unknown,
            governor=governor,
            retries=retries or Retries(),
            timeouts=timeouts or Timeouts(),
            connector=connector,
            proxies=dict.fromkeys(Surface, proxy_url(proxy)) if proxy else {},
            clock=clock or SystemClock(),
            on_event=on_event,
            on_token=on_token,
            request_id_header=request_id_header,
        )
        self._opened: _Opened | None = None

    @classmethod
    def from_env(cls) -> "Session":
        """Take credentials and hosts from `SVC_*` variables, and proxies from theirs.

        Raises:
            InvalidArgument: names the variables that are missing.
        """
        return cls._from(profiles.from_environment())

    @classmethod
    def from_profile(cls, name: str = "default") -> "Session":
        """Take credentials and hosts from a profile in the user's folder for configuration.

        Raises:
            InvalidArgument: there is no such profile, or names what is missing in it.
        """
        return cls._from(profiles.from_profile(name))

    @classmethod
    def _from(cls, source: profiles.Source) -> "Session":
        session = cls(source.credentials, app=source.app, endpoints=source.endpoints)
        session._settings = attrs.evolve(session._settings, proxies=profiles.proxies(source.endpoints))
        return session

    @classmethod
    def sandbox(
        cls,
        running: "Sandbox | None" = None,
        *,
        validate: bool = True,
        keep_unknown: bool = False,
        governor: Governor | None = None,
        retries: Retries | None = None,
        timeouts: Timeouts | None = None,
        connector: Connector | None = None,
        on_event: Callable[[CallEvent], object] | None = None,
    ) -> "Session":
        """Talk to the embedded sandbox, on its clock: start one with the session, or join one that runs.

        Args:
            running: a sandbox that was started; it stays yours to close.
            validate: as for a session.
            keep_unknown: as for a session.
            governor: as for a session.
            retries: as for a session.
            timeouts: as for a session.
            connector: as for a session.
            on_event: as for a session.
        """
        return _SandboxSession(
            running,
            validate=validate,
            keep_unknown=keep_unknown,
            governor=governor,
            retries=retries,
            timeouts=timeouts,
            connector=connector,
            on_event=on_event,
        )

    async def __aenter__(self) -> Self:
        if self._opened is not None:
            raise WrongState("the session is open already; one made by but() shares the connections of an open session")
        try:
            await self._prepare()
            self._opened = self._settings.open()
        except BaseException:
            await self._clean_up()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._open, None
        try:
            await opened.close()
        finally:
            await self._clean_up()

    async def _prepare(self) -> None:
        """Do what must be done before the settings are known."""

    async def _clean_up(self) -> None:
        """Undo it."""

    @property
    def is_sandbox(self) -> bool:
        """Whether this session talks to the embedded sandbox."""
        return False

    @property
    def app(self) -> AppCredentials | None:
        """The app, if it is known."""
        return self._settings.app

    @property
    def governor(self) -> Governor:
        """What keeps the rate limits; `snapshot()` tells where they stand."""
        return self._pipeline.governor

    def but(self, *, timeout: float | None = None, retries: Retries | None = None) -> "Session":
        """Give a session of other settings over the same connections and governor; it closes with this one.

        Args:
            timeout: seconds for one exchange.
            retries: how often and how long calls are repeated.
        """
        pipeline = self._pipeline
        changed = pipeline.but(
            timeout=pipeline.timeout if timeout is None else Timeouts(total=timeout).total,
            retries=retries or pipeline.retries,
        )
        view = Session.__new__(type(self))
        view.__dict__.update(self.__dict__, _opened=attrs.evolve(self._open, pipeline=changed))
        return view

    @property
    def oauth1(self) -> OAuth1Flow:
        """The steps by which a user grants access to the app (OAuth 1.0a)."""
        return OAuth1Flow(self._pipeline, self.app, self._settings.credentials)

    @property
    def oauth2(self) -> OAuth2:
        """The app-only bearer token, and tokens of users with scopes (OAuth 2.0)."""
        opened = self._open
        return OAuth2(opened.pipeline, self.app, opened.app_tokens, opened.user_tokens)

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks of the app.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
        """
        return Webhooks(self._app_pipeline)

    @property
    def activity(self) -> Activity:
        """What users do, and who is told.

        Raises:
            AccessDenied: the session has neither an app nor a token with scopes.
        """
        # Unspecified: the scheme of these calls (contract UNS-activity-auth): a user with scopes calls by them
        # (AUTH-26), everybody else as the app.
        return Activity(self._pipeline if self._open.user_tokens else self._app_pipeline)

    @property
    def filtered_stream(self) -> FilteredStream:
        """The posts that match rules.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
        """
        return FilteredStream(self._app_pipeline)

    @property
    def accounts(self) -> Accounts:
        """The ad accounts of the user."""
        return Accounts(self._pipeline)

    def account(self, account_id: str) -> AccountHandle:
        """Bind an ad account; nothing is sent.

        Raises:
            InvalidArgument: the id is empty or holds a slash.
        """
        return AccountHandle(self._pipeline, account_id)

    @property
    def advertiser_business_categories(self) -> AdvertiserBusinessCategories:
        """The business categories that pre-roll advertisers choose from."""
        return AdvertiserBusinessCategories(self._pipeline)

    @property
    def keyword_insights(self) -> KeywordInsightsSearch:
        """How often keywords are used."""
        return KeywordInsightsSearch(self._pipeline)

    @property
    def placements(self) -> Placements:
        """Where line items may show."""
        return Placements(self._pipeline)

    @property
    def product_catalogs(self) -> ProductCatalogs:
        """The product catalogs that the user may use."""
        return ProductCatalogs(self._pipeline)

    def product_catalog(self, product_catalog_id: str) -> ProductCatalogHandle:
        """Bind a product catalog; nothing is sent.

        Raises:
            InvalidArgument: the id is empty or holds a slash.
        """
        return ProductCatalogHandle(self._pipeline, product_catalog_id)

    @overload
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        json: object = None,
        into: type[T],
        surface: Surface | str | None = None,
    ) -> T: ...

    @overload
    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        json: object = None,
        into: None = None,
        surface: Surface | str | None = None,
    ) -> Any: ...

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        json: object = None,
        into: type[Any] | None = None,
        surface: Surface | str | None = None,
    ) -> Any:
        """Make a call that this SDK does not list: signed, governed and repeated all the same.

        Args:
            method: the HTTP method.
            path: the path with its ids, not quoted and without a query. One that starts with a version of the
                advertising API (`/12/`, `/5/`) goes to the ads host, any other to the base host.
            params: the query; None is left out, several values are joined by commas.
            json: the body; models are written without what is None.
            into: the model of the record in `data`; without it the whole body comes back as plain values.
            surface: `"ads_sandbox"` for the sandbox host of the advertising API.
        """
        request = _raw(method, path, params, surface)
        if json is not None:
            request = request.with_body(to_json(json))
        reply = Reply.BODY if into is None else Reply.RECORD
        return await self._pipeline.send(attrs.evolve(request, into=into, reply=reply))

    @overload
    def iterate(
        self,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        into: type[T],
        surface: Surface | str | None = None,
    ) -> Pager[T]: ...

    @overload
    def iterate(
        self,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        into: None = None,
        surface: Surface | str | None = None,
    ) -> Pager[Any]: ...

    def iterate(
        self,
        path: str,
        *,
        params: Mapping[str, Param] | None = None,
        into: type[Any] | None = None,
        surface: Surface | str | None = None,
    ) -> Pager[Any]:
        """Walk a listing that this SDK does not list.

        Args:
            path: as in `request`.
            params: the query, without `cursor` and `with_total_count`.
            into: the model of one record; without it records are plain values.
            surface: `"ads_sandbox"` for the sandbox host of the advertising API.
        """
        if params and not params.keys().isdisjoint({"cursor", "with_total_count"}):
            raise InvalidArgument(
                "params", "must contain neither `cursor`, which is for `pages()`, nor `with_total_count`"
            )
        request = _raw("GET", path, params, surface)
        return Pager(self._pipeline, attrs.evolve(request, into=into, reply=Reply.PAGE))

    @property
    def _open(self) -> _Opened:
        if self._opened is None:
            raise WrongState("the session is not open; use it inside `async with`")
        return self._opened

    @property
    def _pipeline(self) -> Pipeline:
        return self._open.pipeline

    @property
    def _app_pipeline(self) -> Pipeline:
        """What makes the calls that need the app-only bearer token (contract AUTH-25)."""
        opened = self._open
        if opened.app_tokens is None:
            raise AccessDenied("these calls need the app's bearer token; pass AppCredentials or a BearerToken")
        who = self.app or self._settings.credentials
        return opened.pipeline.but(tokens=opened.app_tokens, user=identity(who))


class _SandboxSession(Session):
    """A session whose hosts are known once the sandbox runs."""

    def __init__(self, running: "Sandbox | None", **settings: Any) -> None:
        self._running = running
        self._own: Sandbox | None = None
        self._more = settings
        self._opened = None

    async def _prepare(self) -> None:
        from svc_async.sandbox import Sandbox  # noqa: PLC0415 - a server is not loaded by those who need none

        if self._running is None:
            self._own = Sandbox()
            await self._own.start()
        sandbox = self._running or self._own
        assert sandbox is not None  # noqa: S101 - for the type checker
        super().__init__(
            UserCredentials(**sandbox.credentials),
            app=AppCredentials(**sandbox.app),
            endpoints=Endpoints(
                base_url=sandbox.base_url, ads_url=sandbox.ads_url, ads_sandbox_url=sandbox.ads_sandbox_url
            ),
            clock=sandbox.clock,
            **self._more,
        )
        _log.info("this session talks to the embedded sandbox at %s", sandbox.base_url)

    async def _clean_up(self) -> None:
        if self._own is not None:
            await self._own.aclose()

    @property
    def is_sandbox(self) -> bool:
        return True


_MAIN_API = re.compile(r"/(1\.1|2)/")
_ADS_API = re.compile(r"/\d+/")
_ACCOUNT = re.compile(r"(/accounts/)([^/]+)")


def _raw(method: str, path: str, params: Mapping[str, Param] | None, surface: Surface | str | None) -> Request[Any]:
    if not (method.isascii() and method.isalpha()):
        raise InvalidArgument("method", "must be an HTTP method")
    if not path.startswith("/") or "?" in path or "#" in path:
        raise InvalidArgument("path", "must start with a slash and hold no query; give `params`")
    account = _ACCOUNT.search(path)
    return Request(
        method=method.upper(),
        surface=_surface(path, surface),
        template=_ACCOUNT.sub(r"\1{account_id}", path),
        path="".join(f"/{segment('path', part)}" for part in path[1:].split("/")),
        query=to_pairs(params or {}),
        scope={"account_id": account.group(2)} if account else {},
    )


def _surface(path: str, named: Surface | str | None) -> Surface:
    if named is not None:
        try:
            return Surface(named)
        except ValueError:
            raise InvalidArgument("surface", f"must be one of {', '.join(each.value for each in Surface)}") from None
    return Surface.ADS if _ADS_API.match(path) and not _MAIN_API.match(path) else Surface.BASE


def _implied_app(credentials: Credentials) -> AppCredentials | None:
    if isinstance(credentials, UserCredentials):
        return credentials.app
    return credentials if isinstance(credentials, AppCredentials) else None
