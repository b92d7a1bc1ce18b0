"""The three-legged flow of OAuth 1.0a, by which a user grants access to an app.

request_token(callback=)  →  authorize_url(token), which the user opens  →  access_token(token, verifier=)
"""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

import attrs

from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import AppCredentials, Credentials, UserCredentials
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import AccessDenied, InvalidArgument
from svc_async.open_enum import OpenEnum
from svc_async.value_rules import TEXT, instance_of, is_absolute_url
from svc_async.wire.checks import not_empty, one_of, satisfies
from svc_async.wire.envelope import make_unexpected
from svc_async.wire.params import first_problem, query_string
from svc_async.wire.records import Record
from svc_async.wire.route import Reply, Route, Surface

__all__ = ["OUT_OF_BAND", "AccessToken", "InvalidatedAccessToken", "OAuth1Flow", "OAuthAccessType", "RequestToken"]

OUT_OF_BAND = "oob"
"""The callback that selects the PIN mode (contract AUTH-03)."""


class OAuthAccessType(OpenEnum):
    """The access that an app requests."""

    READ = "read"
    WRITE = "write"


@attrs.frozen(kw_only=True)
class RequestToken(Record):
    """The token that a user is asked to approve (contract record `RequestToken`, AUTH-08).

    Attributes:
        oauth_token: the token, which is part of the URLs.
        oauth_token_secret: signs the exchange; store it where the user cannot see it.
        oauth_callback_confirmed: `true`.
        callback: the callback with which the token was requested; not part of the answer.
    """

    oauth_token: str = attrs.field(repr=False)
    oauth_token_secret: str = attrs.field(repr=False)
    oauth_callback_confirmed: str
    callback: str = ""


@attrs.frozen(kw_only=True)
class AccessToken(Record):
    """The token of a user who granted access (contract record `AccessToken`, AUTH-14d)."""

    oauth_token: str = attrs.field(repr=False)
    oauth_token_secret: str = attrs.field(repr=False)
    user_id: str
    screen_name: str

    def credentials(self, app: AppCredentials) -> UserCredentials:
        """Return the credentials for a session of this user.

        Args:
            app: the app to which the user granted access.
        """
        return UserCredentials(
            consumer_key=app.consumer_key,
            consumer_secret=app.consumer_secret,
            token=self.oauth_token,
            token_secret=self.oauth_token_secret,
        )


@attrs.frozen(kw_only=True)
class InvalidatedAccessToken(Record):
    """A token that was invalidated (contract record `InvalidatedAccessToken`, AUTH-16b)."""

    access_token: str = attrs.field(repr=False)


# Unspecified: where `svc_auth_access_type` (contract UNS-svc-auth-access-type-location) and the verifier
# (UNS-access-token-location) travel.
_REQUEST_TOKEN = Route(
    "POST", "/oauth/request_token", RequestToken, surface=Surface.BASE, oauth=("oauth_callback",), reply=Reply.FORM
)
_REQUEST_CHECKS = (
    satisfies(
        "callback",
        lambda value: value == OUT_OF_BAND or is_absolute_url(value),
        f"must be an absolute URL or {OUT_OF_BAND!r}",
        rule_ids=("AUTH-02", "AUTH-03"),
    ),
    one_of("access_type", *(each.value for each in OAuthAccessType)),
)
_ACCESS_TOKEN = Route(
    "POST", "/oauth/access_token", AccessToken, surface=Surface.BASE, oauth=("oauth_verifier",), reply=Reply.FORM
)
_ACCESS_CHECKS = (not_empty("verifier"),)
_STEP_1 = instance_of(RequestToken, "the RequestToken of step 1")
_INVALIDATE = Route(
    "POST", "/1.1/oauth/invalidate_token", InvalidatedAccessToken, surface=Surface.BASE, reply=Reply.BODY
)
# Pages that a browser opens, without a signature.
_AUTHORIZE: Route[None] = Route("GET", "/oauth/authorize", None, surface=Surface.BASE)
_AUTHENTICATE: Route[None] = Route("GET", "/oauth/authenticate", None, surface=Surface.BASE)


@attrs.frozen(eq=False)
class OAuth1Flow:
    """The steps by which a user grants an app access, and the token's invalidation."""

    _pipeline: Pipeline = attrs.field(repr=False)
    _app: AppCredentials | None
    _credentials: Credentials

    async def request_token(self, *, callback: str, access_type: OAuthAccessType | str | None = None) -> RequestToken:
        """Request a request token: step 1.

        Args:
            callback: the URL to which the user returns, configured in the app's settings; custom schemes are accepted.
                `oob` selects the PIN mode. It is sent with every call (contract AUTH-02).
            access_type: `read` for less access than the app has.

        Raises:
            Unauthorized: the app is unknown or its secret is wrong.
            Forbidden: the callback is not configured.

        Contract: AUTH-01, `oauth1.request_token`.
        """
        TEXT.check("callback", callback)
        request = _REQUEST_TOKEN(oauth_callback=callback, svc_auth_access_type=access_type)
        problem = first_problem(_REQUEST_CHECKS, {"callback": callback, "access_type": access_type})
        token, answer = await self._authorize(self._require_app()).send_with_answer(request.with_problem(problem))
        if token.oauth_callback_confirmed != "true":
            raise make_unexpected("the service did not confirm the callback (RFC 5849, 2.1)", answer)
        return attrs.evolve(token, callback=callback)

    def authorize_url(
        self, token: RequestToken | str, *, force_login: bool | None = None, screen_name: str | None = None
    ) -> str:
        """Return the URL of the page on which the user approves: step 2.

        Args:
            token: the request token.
            force_login: whether the user must log in, even if already logged in.
            screen_name: the user name to fill in.

        Contract: AUTH-12, `oauth1.authorize`.
        """
        return self._build_url(_AUTHORIZE, token, force_login=force_login, screen_name=screen_name)

    def authenticate_url(
        self, token: RequestToken | str, *, force_login: bool | None = None, screen_name: str | None = None
    ) -> str:
        """Return the URL of the page that redirects users who approved before: step 2 of "sign in with".

        It is for flows with a callback, and requires the sign-in setting of the app.

        Args:
            token: the request token.
            force_login: whether the user must log in, even if already logged in.
            screen_name: the user name to fill in.

        Raises:
            InvalidArgument: the token is for the PIN mode, which uses `authorize_url`.

        Contract: AUTH-13, AUTH-13c, `oauth1.authenticate`.
        """
        if self._pipeline.validate and isinstance(token, RequestToken) and token.callback == OUT_OF_BAND:
            raise InvalidArgument(
                "token", "must have a callback; the PIN mode goes with authorize_url", rule_ids=("AUTH-13c",)
            )
        return self._build_url(_AUTHENTICATE, token, force_login=force_login, screen_name=screen_name)

    def verifier(self, request_token: RequestToken, redirect: str) -> str:
        """Return the verifier from the URL to which the user returned.

        Args:
            request_token: the token of this flow.
            redirect: the whole URL, or its query, as it came: it is decoded here.

        Raises:
            InvalidArgument: the URL belongs to another flow, the user denied access, or it has no verifier.

        Contract: AUTH-14, AUTH-14c.
        """
        try:
            _STEP_1.check("request_token", request_token)
            TEXT.check("redirect", redirect)
            is_url = redirect.startswith("/") or urlsplit(redirect).scheme
            fields = dict(parse_qsl(urlsplit(redirect).query if is_url else redirect.removeprefix("?")))
        finally:
            del redirect  # it holds the verifier, which must not be among the locals of a traceback
        problem = _find_problem(fields, request_token)
        verifier = fields.get("oauth_verifier", "")
        del fields  # likewise
        if problem is not None:
            del verifier
            raise problem
        return verifier

    async def access_token(self, request_token: RequestToken, *, verifier: str) -> AccessToken:
        """Exchange an approved request token for an access token: step 3.

        Args:
            request_token: the token of step 1; it works once.
            verifier: from the callback URL, or the PIN.

        Raises:
            Unauthorized: the verifier is wrong, or the token was not approved, was used, or is too old.

        Contract: AUTH-14, `oauth1.access_token`.
        """
        app = self._require_app()
        _STEP_1.check("request_token", request_token)
        granted = UserCredentials(
            consumer_key=app.consumer_key,
            consumer_secret=app.consumer_secret,
            token=request_token.oauth_token,
            token_secret=request_token.oauth_token_secret,
        )
        try:
            TEXT.check("verifier", verifier)
            problem = first_problem(_ACCESS_CHECKS, {"verifier": verifier})
            request = _ACCESS_TOKEN(oauth_verifier=verifier).with_problem(problem)
        finally:
            del verifier  # it must not be among the locals of a traceback
        return await self._authorize(granted).send(request)

    async def invalidate_token(self) -> InvalidatedAccessToken:
        """Invalidate the access token of this session, immediately and permanently.

        Raises:
            AccessDenied: the session's credentials are not `UserCredentials`.
            Unauthorized: it was already invalid (code 89).

        Contract: AUTH-16, `oauth1.invalidate_token`.
        """
        if not isinstance(self._credentials, UserCredentials):
            raise AccessDenied("only a session with UserCredentials has an access token to invalidate")
        return await self._pipeline.send(_INVALIDATE())

    def _require_app(self) -> AppCredentials:
        if self._app is None:
            raise AccessDenied("this call is signed with AppCredentials")
        return self._app

    def _authorize(self, credentials: AppCredentials | UserCredentials) -> Pipeline:
        return self._pipeline.but(
            authorization=authorization(credentials, self._pipeline.signing_clock),
            tokens=None,
            user=identity(credentials),
        )

    def _build_url(
        self,
        page: Route[None],
        token: RequestToken | str,
        *,
        force_login: bool | None,
        screen_name: str | None,
    ) -> str:
        value = token.oauth_token if isinstance(token, RequestToken) else token
        if not value:
            raise InvalidArgument("token", "must not be empty", rule_ids=("AUTH-12", "AUTH-13e"))
        TEXT.check("token", value)
        request = page(oauth_token=value, force_login=force_login, screen_name=screen_name)
        self._pipeline.check(request)
        url = f"{self._pipeline.endpoints.base_url}{request.path}?{query_string(request.query)}"
        return self._pipeline.write_page(url)


def _find_problem(fields: Mapping[str, str], request_token: RequestToken) -> InvalidArgument | None:
    if fields.get("denied") == request_token.oauth_token:
        return InvalidArgument("redirect", "says that the user denied access")
    if fields.get("oauth_token") != request_token.oauth_token:
        return InvalidArgument("redirect", "must carry the request token of this flow", rule_ids=("AUTH-14",))
    if not fields.get("oauth_verifier"):
        return InvalidArgument("redirect", "must carry oauth_verifier", rule_ids=("AUTH-14b",))
    return None
