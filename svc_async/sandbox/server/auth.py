"""Authenticates callers; verifies OAuth 1.0a after RFC 5849 with code of its own, shared with no client.

Only the `Authorization` header is read for protocol parameters. The signature (HMAC-SHA1) covers the method, the
URL without query, and the parameters of header, query and form body, but not a JSON body.

An operation names the schemes that it accepts. The first word of the header is the kind of a request; a kind that the
operation does not accept is a wrong scheme (ASM-73), everything else that fails is a wrong credential.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal
from urllib.parse import quote, unquote, unquote_plus

import attrs

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.state.grants import Access, App, Grants, RequestToken, Token

__all__ = [
    "AuthRequest",
    "Caller",
    "Scheme",
    "Verifier",
    "invalid_token",
    "parse_header",
    "signature",
    "signature_base",
    "unauthorized",
]

Scheme = Literal[
    "oauth1_user", "oauth1_consumer", "oauth1_request_token", "basic_app", "bearer_app", "oauth2_user", "client", "none"
]
"""The contract's names; `client` is a client of OAuth 2.0 at its token call, `none` a page for a browser."""

_HEADER_PART = re.compile(r'\s*([A-Za-z0-9_%.~-]+)="([^"]*)"\s*')
_REQUIRED = (
    "oauth_consumer_key",
    "oauth_nonce",
    "oauth_signature",
    "oauth_signature_method",
    "oauth_timestamp",
    "oauth_token",
    "oauth_version",
)
_SKEW = 300  # Unspecified: seconds that `oauth_timestamp` may differ from the clock (ASM-10)
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@attrs.frozen(kw_only=True)
class AuthRequest:
    """What a request is authenticated by.

    Attributes:
        url: the whole URL without query.
        query: the decoded parameters of the query.
        form: those of the body, if it is a form.
    """

    method: str
    url: str
    query: Sequence[tuple[str, str]] = ()
    form: Sequence[tuple[str, str]] = attrs.field(default=(), repr=False)
    authorization: str | None = attrs.field(default=None, repr=False)

    @property
    def is_https(self) -> bool:
        """Whether it came over https."""
        return self.url.startswith("https://")

    @property
    def kind(self) -> str:
        """The first word of the header, in lower case."""
        return (self.authorization or "").partition(" ")[0].lower()

    @property
    def credential(self) -> str:
        """The rest of the header."""
        return (self.authorization or "").partition(" ")[2].strip()


@attrs.frozen(kw_only=True)
class Caller:
    """An authenticated caller.

    Attributes:
        user: the user's id; empty where an app calls, or a browser.
        access: what the user allows with OAuth 1.0a; it takes precedence over scopes (AUTH-26b).
        scopes: what the user allows with OAuth 2.0.
        token: the token that was presented; a user's requests are counted by it.
        protocol: the parameters of an `OAuth` header.
    """

    scheme: Scheme
    _app: App | None = attrs.field(default=None, alias="app")
    user: str = ""
    access: Access | None = None
    scopes: Collection[str] = ()
    token: str = attrs.field(default="", repr=False)
    protocol: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)

    @property
    def app(self) -> App:
        """The calling app; a browser has none."""
        if self._app is None:
            raise LookupError("a browser is no app")
        return self._app

    @property
    def counted_as(self) -> str:
        """The key that its requests are counted by: the user's token, or the app."""
        return self.token if self.user or self._app is None else self._app.consumer_key


def escape(text: str) -> str:
    """Percent-encode as RFC 5849 3.6 does."""
    return quote(text, safe="~", errors="surrogateescape")


def parse_header(header: str) -> list[tuple[str, str]]:
    """Parse the parameters of an `OAuth ...` header, decoded, without the realm.

    Raises:
        ValueError: it is not such a header.
    """
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "oauth" or not rest.isascii():
        raise ValueError("not an OAuth header")
    pairs = [_parse_part(part) for part in rest.split(",")]
    return [(name, value) for name, value in pairs if name != "realm"]


def _parse_part(part: str) -> tuple[str, str]:
    if (found := _HEADER_PART.fullmatch(part)) is None:
        raise ValueError("malformed OAuth header")
    return unquote(found[1]), unquote(found[2])


def signature_base(method: str, url: str, parameters: Iterable[tuple[str, str]]) -> str:
    """Return the signature base string (RFC 5849 3.4.1) of a request to `url` with all its decoded `parameters`.

    The query of `url` is ignored: its parameters are among `parameters`.
    """
    # Not urlsplit(), which fails on what a Host header may hold.
    scheme, _, rest = url.partition("?")[0].partition("://")
    host, _, path = rest.partition("/")
    address = f"{scheme.lower()}://{host.lower().removesuffix(_DEFAULT_PORTS.get(scheme.lower(), ''))}/{path}"
    encoded = sorted((escape(name), escape(value)) for name, value in parameters if name != "oauth_signature")
    joined = "&".join(f"{name}={value}" for name, value in encoded)
    return f"{method.upper()}&{escape(address)}&{escape(joined)}"


def signature(base: str, consumer_secret: str, token_secret: str = "") -> str:
    """Sign a base string with HMAC-SHA1 (RFC 5849 3.4.2)."""
    key = f"{escape(consumer_secret)}&{escape(token_secret)}".encode()
    return base64.b64encode(hmac.new(key, base.encode(), hashlib.sha1).digest()).decode()


@attrs.define
class Verifier:
    """Authenticates requests."""

    clock: Clock
    grants: Grants
    _nonces: dict[tuple[str, str], float] = attrs.field(factory=dict[tuple[str, str], float])

    def identify(self, request: AuthRequest, schemes: Collection[Scheme]) -> Caller:
        """Return the caller of an operation that accepts these schemes.

        Raises:
            Refusal: no credentials of such a scheme, or wrong ones.
        """
        if "none" in schemes:
            return Caller(scheme="none")
        if "client" in schemes:
            return self._verify_client(request)
        if request.kind not in {_KINDS[scheme] for scheme in schemes}:
            raise _reject_scheme(request)
        verify = {"oauth": self._verify_oauth1, "basic": self._verify_basic, "bearer": self._verify_bearer}
        return verify[request.kind](request, schemes)

    def _verify_oauth1(self, request: AuthRequest, schemes: Collection[Scheme]) -> Caller:
        scheme: Scheme = next(scheme for scheme in schemes if _KINDS[scheme] == "oauth")
        pairs = _parse_protocol(request)
        parameters = dict(pairs)
        if len(parameters) != len(pairs):
            raise unauthorized("a parameter of the Authorization header is given twice")
        _check_present(parameters, scheme)
        _check_constants(parameters)
        app = self.grants.apps.get(parameters["oauth_consumer_key"])
        if app is None:
            raise unauthorized("unknown consumer key")
        token = self._find_token(scheme, parameters.get("oauth_token", ""), app)
        base = signature_base(request.method, request.url, [*pairs, *request.query, *request.form])
        expected = signature(base, app.consumer_secret, "" if token is None else token.secret)
        if not _equal(expected, parameters["oauth_signature"]):
            raise unauthorized("the signature does not match the request")
        self._check_replay(parameters)
        return Caller(
            scheme=scheme,
            app=app,
            user=token.user_id if isinstance(token, Token) else "",
            access=token.access if isinstance(token, Token) else None,
            token="" if token is None else token.token,
            protocol=parameters,
        )

    def _find_token(self, scheme: Scheme, value: str, app: App) -> Token | RequestToken | None:
        """Find the token whose secret signs."""
        if scheme == "oauth1_consumer":
            return None
        token: Token | RequestToken | None
        if scheme == "oauth1_user":
            token = self.grants.tokens.get(value)
            good = token is not None and token.valid
        else:
            token = self.grants.request_tokens.get(value)
            good = token is not None and self.clock.now() < token.expires
        if token is None or not good or token.consumer_key != app.consumer_key:
            raise invalid_token()
        return token

    def _verify_bearer(self, request: AuthRequest, schemes: Collection[Scheme]) -> Caller:
        caller = self._find_bearer(request.credential)
        if caller.scheme not in schemes:
            raise _reject_scheme(request)
        return caller

    def _find_bearer(self, value: str) -> Caller:
        if (app := self.grants.find_bearer_app(value)) is not None:
            return Caller(scheme="bearer_app", app=app, token=value)
        scoped = self.grants.scoped.get(value)
        app = None if scoped is None else self.grants.find_client(scoped.grant.client_id)
        if scoped is None or app is None or not scoped.valid(self.clock.now()):
            raise invalid_token()
        user = scoped.grant.user_id
        # Unspecified: what "also present" means (AUTH-26b); here that the user granted this app with OAuth 1.0a too.
        granted = self.grants.find_granted(app, user)
        access = None if granted is None else granted.access
        return Caller(scheme="oauth2_user", app=app, user=user, access=access, scopes=scoped.scopes, token=value)

    def _verify_basic(self, request: AuthRequest, _schemes: Collection[Scheme]) -> Caller:
        key, secret = _parse_basic(request.credential)
        app = self.grants.apps.get(key)
        if app is None or not _equal(app.consumer_secret, secret):
            raise unauthorized("Unable to verify your credentials", rule="AUTH-20")
        return Caller(scheme="basic_app", app=app)

    def _verify_client(self, request: AuthRequest) -> Caller:
        """Identify a client of OAuth 2.0: one with a secret by Basic, a public one by its id in the form."""
        in_form = dict(request.form).get("client_id")
        client_id, secret = _parse_basic(request.credential) if request.kind == "basic" else (in_form or "", None)
        app = self.grants.find_client(client_id)
        known = app is not None and in_form in (None, client_id)
        if app is None or not known or not _equal(app.client_secret, secret):
            raise unauthorized("the client is unknown, or its secret is wrong or not by Basic", rule="AUTH-26")
        return Caller(scheme="client", app=app)

    def _check_replay(self, parameters: Mapping[str, str]) -> None:
        now = self.clock.now().timestamp()
        if abs(now - int(parameters["oauth_timestamp"])) > _SKEW:
            raise unauthorized("oauth_timestamp is too far from the time of the service", rule="ASM-10")
        while self._nonces and next(iter(self._nonces.values())) < now - 2 * _SKEW:
            del self._nonces[next(iter(self._nonces))]
        once = parameters.get("oauth_token") or parameters["oauth_consumer_key"], parameters["oauth_nonce"]
        if once in self._nonces:
            raise unauthorized("oauth_nonce was used before")
        self._nonces[once] = now


_KINDS: Mapping[Scheme, str] = {
    "oauth1_user": "oauth",
    "oauth1_consumer": "oauth",
    "oauth1_request_token": "oauth",
    "basic_app": "basic",
    "bearer_app": "bearer",
    "oauth2_user": "bearer",
}


def unauthorized(message: str, *, rule: str = "ASM-75") -> Refusal:
    """Return the refusal of a caller that cannot be authenticated."""
    # Unspecified: code and message for a signature that does not verify (ASM-75, ASM-91).
    basis = Basis.SPEC if rule.startswith("AUTH") else Basis.ASSUMED
    return Refusal(401, Problem("UNAUTHORIZED_ACCESS", message), rule=rule, basis=basis)


def invalid_token() -> Refusal:
    """Return the refusal of a token that was invalidated, has invalid_token, or never existed (ERR-01)."""
    return Refusal(401, Problem(89, "Invalid or expired token"), rule="ERR-01", basis=Basis.SPEC)


def _reject_scheme(request: AuthRequest) -> Refusal:
    if request.kind in ("oauth", "bearer"):
        # Unspecified: the answer to another scheme (ASM-73).
        return Refusal(403, Problem(220, "Your credentials do not allow access to this resource"), rule="ASM-73")
    what = "is missing" if request.authorization is None else "is of no kind that this call takes"
    return unauthorized(f"the Authorization header {what}", rule="AUTH-01f")


def _parse_protocol(request: AuthRequest) -> list[tuple[str, str]]:
    try:
        return parse_header(request.authorization or "")
    except ValueError as error:
        raise unauthorized(str(error), rule="AUTH-01f") from None


def _check_present(parameters: Mapping[str, str], scheme: Scheme) -> None:
    required = [name for name in _REQUIRED if name != "oauth_token" or scheme != "oauth1_consumer"]
    if missing := [name for name in required if not parameters.get(name)]:
        raise unauthorized(f"the Authorization header lacks {', '.join(missing)}", rule="AUTH-01f")
    if scheme == "oauth1_consumer" and parameters.get("oauth_token"):
        raise unauthorized("this call is signed with the consumer key only", rule="AUTH-01e")


def _check_constants(parameters: Mapping[str, str]) -> None:
    if parameters["oauth_signature_method"] != "HMAC-SHA1":
        raise unauthorized("oauth_signature_method must be HMAC-SHA1", rule="AUTH-01c")
    if parameters["oauth_version"] != "1.0":
        raise unauthorized("oauth_version must be 1.0", rule="AUTH-01c")
    if not parameters["oauth_nonce"].isascii():
        raise unauthorized("oauth_nonce must be ASCII", rule="AUTH-06")
    if not re.fullmatch(r"[1-9][0-9]{0,11}", parameters["oauth_timestamp"]):
        raise unauthorized("oauth_timestamp must be Unix seconds", rule="AUTH-01b")


def _parse_basic(credential: str) -> tuple[str, str]:
    """Parse `key:secret`, each percent-encoded, of a Basic header (ASM-81); return empty parts if it is malformed."""
    try:
        decoded = base64.b64decode(credential, validate=True).decode()
    except ValueError:  # neither base64 nor UTF-8
        return "", ""
    key, _, secret = decoded.partition(":")
    return unquote_plus(key), unquote_plus(secret)


def _equal(expected: str | None, actual: str | None) -> bool:
    if expected is None or actual is None:
        return expected is actual
    return hmac.compare_digest(expected.encode(), actual.encode())
