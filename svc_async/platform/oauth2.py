"""OAuth 2.0: the app-only bearer token, and tokens of users with scopes (PKCE)."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from svc_async.auth import oauth2 as grants
from svc_async.auth.authorization import Authorization, anonymous, basic, identity
from svc_async.auth.credentials import AppCredentials, OAuth2UserCredentials
from svc_async.auth.oauth2 import PendingAuthorization
from svc_async.auth.tokens import AppTokens, UserTokens
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import AccessDenied, InvalidArgument, Unauthorized, UnexpectedAnswer
from svc_async.open_enum import OpenEnum
from svc_async.value_rules import ABSOLUTE_URL, TEXT, TEXTS, instance_of, or_none
from svc_async.wire.checks import one_of
from svc_async.wire.envelope import make_unexpected
from svc_async.wire.records import Record
from svc_async.wire.route import Reply, Request, Route, Surface

__all__ = [
    "AppToken",
    "InvalidatedToken",
    "OAuth2",
    "PendingAuthorization",
    "TokenType",
    "fetch_app_token",
    "refresh_user_token",
]


class TokenType(OpenEnum):
    """The kind of a token."""

    BEARER = "bearer"


@attrs.frozen(kw_only=True)
class AppToken(Record):
    """The app-only bearer token (contract record `BearerToken`, AUTH-20d): already percent-encoded."""

    token_type: TokenType
    access_token: str = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class InvalidatedToken(Record):
    """A bearer token that was invalidated, as far as the service describes it (contract AUTH-24b)."""

    access_token: str | None = attrs.field(default=None, repr=False)


_TOKEN = Route(
    "POST",
    "/oauth2/token",
    AppToken,
    surface=Surface.BASE,
    form=True,
    reply=Reply.BODY,
    checks=(one_of("grant_type", "client_credentials"),),
)
# Unspecified: parameters and body of this call (contract UNS-oauth2-invalidate).
_INVALIDATE = Route(
    "POST", "/oauth2/invalidate_token", InvalidatedToken, surface=Surface.BASE, form=True, reply=Reply.BODY
)
# Unspecified: the paths of OAuth 2.0 with scopes, and its lifetimes (contract AUTH-26 names the scheme only).
_GRANT: Route[Mapping[str, Any]] = Route(
    "POST", "/2/oauth2/token", None, surface=Surface.BASE, form=True, reply=Reply.BODY
)
_PAGE = "/2/oauth2/authorize"
_PENDING = instance_of(PendingAuthorization, "the result of authorization_url")


async def fetch_app_token(pipeline: Pipeline, app: AppCredentials) -> AppToken:
    """Request the app-only bearer token (contract AUTH-20, `oauth2.token`).

    Raises:
        UnexpectedAnswer: the answer has no token that a header can carry.
        ApiError: the service refused.
    """
    authorized = _authorize(pipeline, app, basic(app.consumer_key, app.consumer_secret))
    token = await authorized.send(_TOKEN(grant_type="client_credentials"))
    if not (token.access_token.isascii() and token.access_token.isprintable() and token.access_token.strip()):
        raise UnexpectedAnswer("the answer does not fit: access_token is no text that a header can carry", status=200)
    return token


async def refresh_user_token(
    pipeline: Pipeline, app: AppCredentials | None, credentials: OAuth2UserCredentials
) -> OAuth2UserCredentials:
    """Request the next token with the refresh token of the last one."""
    client = _find_client(app, credentials.client_id)
    request = _GRANT().with_body(grants.refresh_grant(credentials.refresh_token or "", client_id=_public_id(client)))
    return await _send_grant(pipeline, client, request, previous=credentials)


@attrs.frozen(eq=False)
class OAuth2:
    """Tokens of OAuth 2.0."""

    _pipeline: Pipeline = attrs.field(repr=False)
    _app: AppCredentials | None = attrs.field(repr=False)
    _app_tokens: AppTokens | None = attrs.field(repr=False)
    _user_tokens: UserTokens | None = attrs.field(repr=False)

    async def token(self) -> AppToken:
        """Return the app-only bearer token; calls that need it request it by themselves.

        It is requested once and cached. Too many token requests fail with 403, code 99; the session then backs off for
        15 minutes: until `retry_at` nothing is sent.

        Raises:
            AccessDenied: the session has neither an app nor a bearer token.
            Forbidden: the app's key or secret is wrong, or it was requested too often.

        Contract: AUTH-20, AUTH-22b, `oauth2.token`.
        """
        return AppToken(token_type=TokenType.BEARER, access_token=(await self._require_tokens().current()).text)

    async def invalidate_token(self) -> InvalidatedToken:
        """Invalidate the app's bearer token, in all processes that use it. The next call requests another one.

        Raises:
            AccessDenied: the session has no app, which revokes the token.
            Unauthorized: the token was already invalid (code 89).

        Contract: AUTH-24, `oauth2.invalidate_token`.
        """
        tokens, app = self._require_tokens(), self._require_app()
        token = await tokens.current()
        authorized = _authorize(self._pipeline, app, basic(app.consumer_key, app.consumer_secret))
        # The token is percent-encoded already, and is sent in the form as received.
        try:
            answer = await authorized.send(_INVALIDATE().with_body(f"access_token={token.text}".encode("ascii")))
        except Unauthorized:
            tokens.forget(token)  # it was already invalid
            raise
        tokens.forget(token)
        return answer

    def authorization_url(
        self, *, scopes: Sequence[str], redirect_uri: str, client_id: str | None = None
    ) -> PendingAuthorization:
        """Start an authorization with scopes; return the URL that the user opens, and what to store until then.

        Args:
            scopes: the requested scopes, such as `follow.read`; `offline.access` adds a refresh token.
            redirect_uri: the URL to which the user returns, configured in the app's settings; custom schemes are
                accepted.
            client_id: the OAuth 2.0 client, if the app does not name it.

        Contract: AUTH-26.
        """
        if not (scopes and TEXTS.accepts(scopes)):
            raise InvalidArgument("scopes", "must be a sequence of at least one string, such as ['follow.read']")
        TEXT.check("redirect_uri", redirect_uri)
        if self._pipeline.validate:
            ABSOLUTE_URL.check("redirect_uri", redirect_uri)
        page = f"{self._pipeline.endpoints.base_url}{_PAGE}"
        client = _find_client(self._app, client_id)
        pending = grants.begin_authorization(page, client_id=client.client_id, redirect_uri=redirect_uri, scopes=scopes)
        return attrs.evolve(pending, url=self._pipeline.write_page(pending.url))

    async def exchange(
        self, pending: PendingAuthorization, *, redirect: str, client_id: str | None = None
    ) -> OAuth2UserCredentials:
        """Exchange the code from the redirect for a token.

        Args:
            pending: the result of `authorization_url`.
            redirect: the whole URL to which the user returned; its state is compared.
            client_id: the OAuth 2.0 client, if the app does not name it.

        Raises:
            InvalidArgument: the URL belongs to another authorization, has no code, or reports an error of RFC 6749,
                section 4.1.2.1, which the message names: `access_denied` says that access was denied, `server_error`
                and `temporarily_unavailable` that the user may try again, with a new `authorization_url`.
            BadRequest: the code has expired or was used (code `invalid_grant`).
        """
        client = _find_client(self._app, client_id)
        try:
            _PENDING.check("pending", pending)
            TEXT.check("redirect", redirect)
            code = grants.parse_code(redirect, pending)
        finally:
            del redirect  # it holds the code, which must not be among the locals of a traceback
        request = _GRANT().with_body(grants.code_grant(code, pending, client_id=_public_id(client)))
        del code
        return await _send_grant(self._pipeline, client, request)

    async def refresh(self) -> OAuth2UserCredentials:
        """Refresh the token of this session's user now; calls do so by themselves.

        If another session over the same connections has done so, its token is taken. The refresh token changes as well:
        store what `Session(on_token=)` receives.

        Raises:
            AccessDenied: the session's credentials are not `OAuth2UserCredentials` with a refresh token.
            BadRequest: the refresh token was used or revoked (code `invalid_grant`); the user must approve again.
        """
        if self._user_tokens is None:
            raise AccessDenied("only a session with OAuth2UserCredentials has a token to refresh")
        return await self._user_tokens.refresh()

    def _require_tokens(self) -> AppTokens:
        if self._app_tokens is None:
            raise AccessDenied("the bearer token is requested with AppCredentials")
        return self._app_tokens

    def _require_app(self) -> AppCredentials:
        if self._app is None:
            raise AccessDenied("the bearer token is revoked with AppCredentials")
        return self._app


@attrs.frozen
class _Client:
    """An OAuth 2.0 client; one without a secret is public."""

    client_id: str
    secret: str | None = attrs.field(repr=False)


def _find_client(app: AppCredentials | None, client_id: str | None) -> _Client:
    or_none(TEXT).check("client_id", client_id)
    known = app.client_id if app else None
    chosen = client_id or known
    if chosen is None:
        raise InvalidArgument("client_id", "must be given, here or in AppCredentials")
    return _Client(chosen, app.client_secret if app and chosen == known else None)


def _public_id(client: _Client) -> str | None:
    """Return the id of a client without a secret, which sends its id in the form (RFC 6749, 3.2.1)."""
    return None if client.secret else client.client_id


async def _send_grant(
    pipeline: Pipeline,
    client: _Client,
    request: Request[Any],
    *,
    previous: OAuth2UserCredentials | None = None,
) -> OAuth2UserCredentials:
    header = basic(client.client_id, client.secret) if client.secret else anonymous()
    authorized = pipeline.but(authorization=header, tokens=None)
    value, answer = await authorized.send_with_answer(request)
    granted = grants.parse_token(value, now=pipeline.clock.now(), client_id=client.client_id, previous=previous)
    del value  # it may hold tokens, which must not be among the locals of a traceback
    if granted is None:
        raise make_unexpected("the answer has no bearer token", answer)
    return granted


def _authorize(pipeline: Pipeline, app: AppCredentials, header: Authorization) -> Pipeline:
    return pipeline.but(authorization=header, tokens=None, user=identity(app))
