"""Decides who is calling, and verifies OAuth 1.0a as RFC 5849 has it: the sandbox's own reading, shared with no client.

Only the `Authorization` header is read for protocol parameters. The signature (HMAC-SHA1) covers the method, the
address without query, and the parameters of header, query and form body; a JSON body is no part of it.

An operation names the schemes that it takes. The first word of the header tells which kind a request speaks; a kind
that the operation does not take is a wrong scheme (ASM-73), everything else that fails is a wrong credential.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

import attrs

from svc_async.sandbox.clock import Clock
from svc_async.sandbox.server.rendering import Basis, Problem, Refusal
from svc_async.sandbox.state.grants import Access, App, Registry, RequestToken, Token

__all__ = [
    "Caller",
    "Scheme",
    "Sent",
    "Verifier",
    "expired",
    "form_pairs",
    "parse_header",
    "refused",
    "signature",
    "signature_base",
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
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


@attrs.frozen(kw_only=True)
class Sent:
    """What a request tells of its sender.

    Attributes:
        url: the whole address without query.
        form: the body, if it is a form.
    """

    method: str
    url: str
    query: str = ""
    form: str = attrs.field(default="", repr=False)
    authorization: str | None = attrs.field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """The first word of the header."""
        return (self.authorization or "").partition(" ")[0].lower()

    @property
    def credential(self) -> str:
        """What follows that word."""
        return (self.authorization or "").partition(" ")[2].strip()


@attrs.frozen(kw_only=True)
class Caller:
    """Who is calling.

    Attributes:
        user: the user's id; empty where an app calls, or a browser.
        access: what the user allows with OAuth 1.0a; it goes before scopes (AUTH-26b).
        scopes: what the user allows with OAuth 2.0.
        token: the token that was presented; it is what a user's requests are counted by.
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
        """The app that calls; a browser is none."""
        if self._app is None:
            raise LookupError("a browser is no app")
        return self._app

    @property
    def counted(self) -> str:
        """What its requests are counted by: the user's token, or the app."""
        return self.token if self.user or self._app is None else self._app.consumer_key


def escape(text: str) -> str:
    """Percent-encode as RFC 5849 3.6 does."""
    return quote(text, safe="~", errors="surrogateescape")


def parse_header(header: str) -> list[tuple[str, str]]:
    """Read the parameters of an `OAuth ...` header, decoded, without the realm.

    Raises:
        ValueError: it is not such a header.
    """
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "oauth" or not rest.isascii():
        raise ValueError("not an OAuth header")
    pairs = [_header_part(part) for part in rest.split(",")]
    return [(name, value) for name, value in pairs if name != "realm"]


def _header_part(part: str) -> tuple[str, str]:
    if (found := _HEADER_PART.fullmatch(part)) is None:
        raise ValueError("malformed OAuth header")
    return unquote(found[1]), unquote(found[2])


def signature_base(method: str, url: str, parameters: Iterable[tuple[str, str]]) -> str:
    """Write the signature base string (RFC 5849 3.4.1) of a request to `url` with all its decoded `parameters`.

    The query of `url` is left out here: it is among the parameters.
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


def form_pairs(text: str) -> list[tuple[str, str]]:
    """Decode a query string or a form body."""
    return parse_qsl(text, keep_blank_values=True)


@attrs.define
class Verifier:
    """Knows who is calling.

    Attributes:
        skew: seconds that `oauth_timestamp` may differ from the clock.
    """

    clock: Clock
    skew: float
    registry: Registry
    _nonces: dict[tuple[str, str], float] = attrs.field(factory=dict[tuple[str, str], float])

    def caller(self, sent: Sent, schemes: Collection[Scheme]) -> Caller:
        """Tell who sent a request to an operation that takes these schemes.

        Raises:
            Refusal: nobody that it takes.
        """
        if "none" in schemes:
            return Caller(scheme="none")
        if "client" in schemes:
            return self._client(sent)
        if sent.kind not in {_KINDS[scheme] for scheme in schemes}:
            raise _not_taken(sent)
        readers = {"oauth": self._signed, "basic": self._basic, "bearer": self._bearer}
        return readers[sent.kind](sent, schemes)

    def _signed(self, sent: Sent, schemes: Collection[Scheme]) -> Caller:
        scheme: Scheme = next(scheme for scheme in schemes if _KINDS[scheme] == "oauth")
        given = _parameters(sent)
        parameters = dict(given)
        if len(parameters) != len(given):
            raise refused("a parameter of the Authorization header is given twice")
        _check_present(parameters, scheme)
        _check_constants(parameters)
        app = self.registry.apps.get(parameters["oauth_consumer_key"])
        if app is None:
            raise refused("unknown consumer key")
        token = self._holder(scheme, parameters.get("oauth_token", ""), app)
        base = signature_base(sent.method, sent.url, [*given, *form_pairs(sent.query), *form_pairs(sent.form)])
        expected = signature(base, app.consumer_secret, "" if token is None else token.secret)
        if not _same(expected, parameters["oauth_signature"]):
            raise refused("the signature does not match the request")
        self._check_once(parameters)
        return Caller(
            scheme=scheme,
            app=app,
            user=token.user_id if isinstance(token, Token) else "",
            access=token.access if isinstance(token, Token) else None,
            token="" if token is None else token.token,
            protocol=parameters,
        )

    def _holder(self, scheme: Scheme, value: str, app: App) -> Token | RequestToken | None:
        """Find the token whose secret signs."""
        if scheme == "oauth1_consumer":
            return None
        token: Token | RequestToken | None
        if scheme == "oauth1_user":
            token = self.registry.tokens.get(value)
            good = token is not None and token.valid
        else:
            token = self.registry.request_tokens.get(value)
            good = token is not None and self.clock.now() < token.expires
        if token is None or not good or token.consumer_key != app.consumer_key:
            raise expired()
        return token

    def _bearer(self, sent: Sent, schemes: Collection[Scheme]) -> Caller:
        caller = self._bearing(sent.credential)
        if caller.scheme not in schemes:
            raise _not_taken(sent)
        return caller

    def _bearing(self, value: str) -> Caller:
        if (app := self.registry.bearer_app(value)) is not None:
            return Caller(scheme="bearer_app", app=app, token=value)
        scoped = self.registry.scoped.get(value)
        app = None if scoped is None else self.registry.client(scoped.family.client_id)
        if scoped is None or app is None or not scoped.valid(self.clock.now()):
            raise expired()
        user = scoped.family.user_id
        # Unspecified: what "also present" means (AUTH-26b); here that the user granted this app with OAuth 1.0a too.
        granted = self.registry.granted(app, user)
        access = None if granted is None else granted.access
        return Caller(scheme="oauth2_user", app=app, user=user, access=access, scopes=scoped.scopes, token=value)

    def _basic(self, sent: Sent, _schemes: Collection[Scheme]) -> Caller:
        key, secret = _basic_parts(sent.credential)
        app = self.registry.apps.get(key)
        if app is None or not _same(app.consumer_secret, secret):
            raise refused("Unable to verify your credentials", rule="AUTH-20")
        return Caller(scheme="basic_app", app=app)

    def _client(self, sent: Sent) -> Caller:
        """Tell which client of OAuth 2.0 it is: one with a secret by Basic, a public one by its id in the form."""
        in_form = dict(form_pairs(sent.form)).get("client_id")
        client_id, secret = _basic_parts(sent.credential) if sent.kind == "basic" else (in_form or "", None)
        app = self.registry.client(client_id)
        known = app is not None and in_form in (None, client_id)
        if app is None or not known or not _same(app.client_secret, secret):
            raise refused("the client is unknown, or its secret is wrong or not by Basic", rule="AUTH-26")
        return Caller(scheme="client", app=app)

    def _check_once(self, parameters: Mapping[str, str]) -> None:
        now = self.clock.now().timestamp()
        if abs(now - int(parameters["oauth_timestamp"])) > self.skew:
            raise refused("oauth_timestamp is too far from the time of the service", rule="ASM-10")
        while self._nonces and next(iter(self._nonces.values())) < now - 2 * self.skew:
            del self._nonces[next(iter(self._nonces))]
        once = parameters.get("oauth_token") or parameters["oauth_consumer_key"], parameters["oauth_nonce"]
        if once in self._nonces:
            raise refused("oauth_nonce was used before")
        self._nonces[once] = now


_KINDS: Mapping[Scheme, str] = {
    "oauth1_user": "oauth",
    "oauth1_consumer": "oauth",
    "oauth1_request_token": "oauth",
    "basic_app": "basic",
    "bearer_app": "bearer",
    "oauth2_user": "bearer",
}


def refused(message: str, *, rule: str = "ASM-75") -> Refusal:
    """Refuse whom one cannot make out."""
    # Unspecified: code and words of a signature that does not verify (ASM-75, ASM-91).
    basis = Basis.SPEC if rule.startswith("AUTH") else Basis.ASSUMED
    return Refusal(401, Problem("UNAUTHORIZED_ACCESS", message), rule=rule, basis=basis)


def expired() -> Refusal:
    """Refuse a token that was invalidated, has expired, or never was (ERR-01)."""
    return Refusal(401, Problem(89, "Invalid or expired token"), rule="ERR-01", basis=Basis.SPEC)


def _not_taken(sent: Sent) -> Refusal:
    if sent.kind in ("oauth", "bearer"):
        # Unspecified: what another scheme is answered with (ASM-73).
        return Refusal(403, Problem(220, "Your credentials do not allow access to this resource"), rule="ASM-73")
    what = "is missing" if sent.authorization is None else "is of no kind that this call takes"
    return refused(f"the Authorization header {what}", rule="AUTH-01f")


def _parameters(sent: Sent) -> list[tuple[str, str]]:
    try:
        return parse_header(sent.authorization or "")
    except ValueError as error:
        raise refused(str(error), rule="AUTH-01f") from None


def _check_present(parameters: Mapping[str, str], scheme: Scheme) -> None:
    wanted = [name for name in _REQUIRED if name != "oauth_token" or scheme != "oauth1_consumer"]
    if missing := [name for name in wanted if not parameters.get(name)]:
        raise refused(f"the Authorization header lacks {', '.join(missing)}", rule="AUTH-01f")
    if scheme == "oauth1_consumer" and parameters.get("oauth_token"):
        raise refused("this call is signed with the consumer key only", rule="AUTH-01e")


def _check_constants(parameters: Mapping[str, str]) -> None:
    if parameters["oauth_signature_method"] != "HMAC-SHA1":
        raise refused("oauth_signature_method must be HMAC-SHA1", rule="AUTH-01c")
    if parameters["oauth_version"] != "1.0":
        raise refused("oauth_version must be 1.0", rule="AUTH-01c")
    if not parameters["oauth_nonce"].isascii():
        raise refused("oauth_nonce must be ASCII", rule="AUTH-06")
    if not re.fullmatch(r"[1-9][0-9]{0,11}", parameters["oauth_timestamp"]):
        raise refused("oauth_timestamp must be Unix seconds", rule="AUTH-01b")


def _basic_parts(credential: str) -> tuple[str, str]:
    """Read `key:secret`, each percent-encoded, of a Basic header (ASM-81); nonsense gives empty parts."""
    try:
        decoded = base64.b64decode(credential, validate=True).decode()
    except ValueError:  # no base64, or no UTF-8 in it
        return "", ""
    key, _, secret = decoded.partition(":")
    return unquote_plus(key), unquote_plus(secret)


def _same(expected: str | None, given: str | None) -> bool:
    if expected is None or given is None:
        return expected is given
    return hmac.compare_digest(expected.encode(), given.encode())
