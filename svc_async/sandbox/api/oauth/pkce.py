"""OAuth 2.0 with scopes for users: the authorization code with PKCE (RFC 7636), refreshing, revoking (RFC 7009).

The specification names the scheme (AUTH-26) and shows none of its calls.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import attrs

from svc_async.sandbox.api.oauth.pages import (
    CALLBACK,
    DECISION,
    Consent,
    find_browser,
    page_operation,
    read_decision,
    redirect,
    show_page,
)
from svc_async.sandbox.context import Context
from svc_async.sandbox.refusal import Basis, Problem, Refusal, missing, refuse
from svc_async.sandbox.server.decoding import form_field, parse_form, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.reading import Pairs, read_query
from svc_async.sandbox.server.rendering import Format
from svc_async.sandbox.state.grants import App, Code, Grant, ScopedToken

__all__ = ["OPERATIONS", "approve"]

_AUTHORIZE = "/2/oauth2/authorize"
_OFFLINE = "offline.access"
# Unspecified: all but `follow.read` (AUTH-26).
_SCOPES = frozenset(
    {
        "dm.read",
        "dm.write",
        "follow.read",
        "follow.write",
        _OFFLINE,
        "post.read",
        "post.write",
        "users.read",
    }
)
# Unspecified: the lifetimes of a code, and of a token in seconds (UNS-token-lifetime).
_CODE_LASTS = timedelta(seconds=30)
_TOKEN_LASTS = 7_200
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_NO_STORE = {"Cache-Control": "no-store"}
_RULE = "AUTH-26"  # Unspecified: all but the scheme, so that all that rests on it here is assumed.


class _AuthorizationError(Exception):
    """An error that the app receives by a redirect of the browser (RFC 6749 4.1.2.1)."""

    def __init__(self, uri: str, **answer: str) -> None:
        super().__init__(answer)
        self.back = redirect(uri, **answer)


@attrs.frozen(kw_only=True)
class _AuthorizationRequest:
    """What an app asks a user to allow.

    Attributes:
        state: returned to the app unchanged; empty if there is none.
    """

    app: App
    redirect_uri: str
    scopes: tuple[str, ...]
    state: Mapping[str, str]
    challenge: str


def _read_request(sandbox: Context, params: Mapping[str, Any]) -> _AuthorizationRequest:
    """Read the parameters of an authorize page.

    Raises:
        Refusal: the app or its redirect URI is unknown, so the browser is not redirected.
        _AuthorizationError: the app receives the error.
    """
    app = sandbox.grants.find_client(params["client_id"])
    uri = params["redirect_uri"]
    if app is None or uri not in app.callback_urls:
        problem = Problem(
            "INVALID_PARAMETER",
            f"The app is unknown, or redirect_uri is not exactly one of its addresses ({CALLBACK}).",
        )
        raise Refusal(400, problem, rule=_RULE, basis=Basis.ASSUMED)
    scopes = tuple(dict.fromkeys((params["scope"] or "").split()))
    state = {} if params["state"] is None else {"state": params["state"]}
    # Unspecified: that `state` and `scope` are required, and S256; RFC 6749 and RFC 7636 leave these open.
    checks = (
        (params["response_type"] == "code", "unsupported_response_type", "response_type must be code"),
        (params["state"], "invalid_request", "state is missing"),
        (params["code_challenge_method"] == "S256", "invalid_request", "code_challenge_method must be S256"),
        (
            _CHALLENGE.fullmatch(params["code_challenge"] or ""),
            "invalid_request",
            "code_challenge is missing or malformed",
        ),
        (scopes and {*scopes} <= _SCOPES, "invalid_scope", "scope is missing or names an unknown scope"),
    )
    for good, error, why in checks:
        if not good:
            raise _AuthorizationError(uri, error=error, error_description=why, **state)
    return _AuthorizationRequest(
        app=app, redirect_uri=uri, scopes=scopes, state=state, challenge=params["code_challenge"]
    )


def approve(sandbox: Context, url: str, user_id: str) -> str:
    """Approve the authorization that a URL asks for; return the URL that the browser is redirected to.

    Raises:
        Refusal: the page would not be shown.
    """
    query: Pairs = parse_form(urlsplit(url).query)
    if sandbox.config.dialect is not None:
        query = sandbox.config.dialect.serve_pairs(query)
    params, _ = read_query(_REQUEST_PARAMS, query, sandbox.config)
    try:
        back = _issue_code(sandbox, sandbox.clock.now(), _read_request(sandbox, params), user_id)
    except _AuthorizationError as unwilling:
        back = unwilling.back
    return back.headers["Location"]


def _issue_code(sandbox: Context, now: datetime, request: _AuthorizationRequest, user_id: str) -> Answer:
    code = sandbox.grants.secret("code", 60)
    sandbox.grants.codes[code] = Code(
        grant=Grant(request.app.client_id, user_id, request.scopes),
        redirect_uri=request.redirect_uri,
        challenge=request.challenge,
        expires=now + _CODE_LASTS,
    )
    return redirect(request.redirect_uri, **request.state, code=code)


def _show_authorize_page(call: Call) -> Answer:
    try:
        request = _read_request(call.sandbox, call.params)
    except _AuthorizationError as unwilling:
        return unwilling.back
    return show_page(call, find_browser(call), _make_consent(call, request))


def _make_consent(call: Call, request: _AuthorizationRequest) -> Consent:
    asked = {param.name: call.params[param.name] for param in _REQUEST_PARAMS}
    subject = {name: value for name, value in asked.items() if value is not None}
    return Consent(app=request.app.name, permissions=request.scopes, action=_AUTHORIZE, subject=subject)


def _decide(call: Call) -> Answer:
    try:
        request = _read_request(call.sandbox, call.params)
    except _AuthorizationError as unwilling:
        return unwilling.back
    decision = read_decision(call, _make_consent(call, request))
    if isinstance(decision, Answer):
        return decision
    if not decision:
        return redirect(request.redirect_uri, error="access_denied", **request.state)
    return _issue_code(call.sandbox, call.now, request, decision)


def _exchange_grant(call: Call) -> Answer:
    grant = _GRANT_TYPES.get(call.params["grant_type"])
    if grant is None:
        raise _make_refusal("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
    return grant(call)


def _exchange_code(call: Call) -> Answer:
    _require(call, "code", "redirect_uri", "code_verifier")
    code = call.sandbox.grants.codes.get(call.params["code"])
    if code is None or code.grant.client_id != call.caller.app.client_id:
        raise _make_refusal("invalid_grant", "the code is unknown")
    if code.used:
        raise _handle_reuse(code.grant, "the code")
    verifier = call.params["code_verifier"]
    if not _VERIFIER.fullmatch(verifier):
        raise _make_refusal("invalid_request", "code_verifier needs 43 to 128 unreserved characters")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
    checks = (
        (call.now < code.expires, "the code has expired"),
        (call.params["redirect_uri"] == code.redirect_uri, "redirect_uri is not the one of the authorize page"),
        (hmac.compare_digest(challenge, code.challenge.encode()), "code_verifier does not fit code_challenge"),
    )
    for good, why in checks:
        if not good:
            raise _make_refusal("invalid_grant", why)
    code.used = True
    return _issue_tokens(call, code.grant, code.grant.scopes)


def _refresh(call: Call) -> Answer:
    _require(call, "refresh_token")
    token = call.params["refresh_token"]
    grant = call.sandbox.grants.by_refresh_token.get(token)
    if grant is None or grant.client_id != call.caller.app.client_id or not grant.valid:
        raise _make_refusal("invalid_grant", "the refresh token is unknown or revoked")
    if grant.refresh_token != token:
        raise _handle_reuse(grant, "the refresh token")
    scopes = tuple((call.params["scope"] or " ".join(grant.scopes)).split())
    if not {*scopes} <= {*grant.scopes}:
        raise _make_refusal("invalid_scope", "scope goes beyond what was granted")
    return _issue_tokens(call, grant, scopes)


def _handle_reuse(grant: Grant, what: str) -> Refusal:
    # Unspecified: that a second use revokes the whole grant, as RFC 6749 4.1.2 and RFC 9700 4.14.2 advise.
    grant.valid = False
    return _make_refusal("invalid_grant", f"{what} was used before, so the whole grant is revoked")


def _issue_tokens(call: Call, grant: Grant, scopes: tuple[str, ...]) -> Answer:
    grants = call.sandbox.grants
    token = grants.secret("scoped", 64)
    grants.scoped[token] = ScopedToken(grant, scopes, call.now + timedelta(seconds=_TOKEN_LASTS))
    answer: dict[str, Any] = {
        "token_type": "bearer",
        "expires_in": _TOKEN_LASTS,
        "access_token": token,
        "scope": " ".join(scopes),
    }
    if _OFFLINE in grant.scopes:
        grant.refresh_token = answer["refresh_token"] = grants.secret("refresh", 64)
        grants.by_refresh_token[answer["refresh_token"]] = grant
    return Answer(answer, headers=_NO_STORE)


def _revoke(call: Call) -> Answer:
    """Revoke an access token, or with a refresh token the whole grant; tokens of other apps are ignored."""
    token, client_id = call.params["token"], call.caller.app.client_id
    grant, scoped = call.sandbox.grants.by_refresh_token.get(token), call.sandbox.grants.scoped.get(token)
    if grant is not None and grant.client_id == client_id:
        grant.valid = False
    if scoped is not None and scoped.grant.client_id == client_id:
        scoped.revoked = True
    return Answer({"revoked": True}, headers=_NO_STORE)


def _require(call: Call, *names: str) -> None:
    refuse(*(missing("ASM-95", name) for name in names if call.params[name] is None))


def _make_refusal(error: str, why: str) -> Refusal:
    return Refusal(400, Problem(error, why), rule=_RULE, basis=Basis.ASSUMED)


_GRANT_TYPES: Mapping[str, Callable[[Call], Answer]] = {"authorization_code": _exchange_code, "refresh_token": _refresh}

_NAMES = ("response_type", "scope", "state", "code_challenge", "code_challenge_method")
_REQUEST_PARAMS = (
    *(text(name, required=True, rule=_RULE) for name in ("client_id", "redirect_uri")),
    *(text(name, rule=_RULE) for name in _NAMES),
)
"""The parameters of the authorize page; the app receives an error if one that is optional here is missing."""

# Unspecified: all of these operations; they are the ones publicly known of services of this kind.
OPERATIONS = (
    page_operation(
        id="oauth2.authorize",
        method="GET",
        path=_AUTHORIZE,
        handler=_show_authorize_page,
        query=_REQUEST_PARAMS,
        rule=_RULE,
        basis=Basis.ASSUMED,
    ),
    page_operation(
        id="oauth2.decide",
        method="POST",
        path=_AUTHORIZE,
        handler=_decide,
        query=(*(form_field(param.name, required=param.required, rule=_RULE) for param in _REQUEST_PARAMS), *DECISION),
        rule=_RULE,
        basis=Basis.ASSUMED,
        body="form",
    ),
    Operation(
        id="oauth2.exchange",
        method="POST",
        path="/2/oauth2/token",
        handler=_exchange_grant,
        query=(
            form_field("grant_type", required=True, rule=_RULE),
            *(
                form_field(name, rule=_RULE)
                for name in ("client_id", "code", "redirect_uri", "code_verifier", "refresh_token", "scope")
            ),
        ),
        limit="scoped_tokens",
        rule=_RULE,
        basis=Basis.ASSUMED,
        surface="base",
        schemes=("client",),
        format=Format.OAUTH2,
        body="form",
    ),
    Operation(
        id="oauth2.revoke",
        method="POST",
        path="/2/oauth2/revoke",
        handler=_revoke,
        query=(
            form_field("token", required=True, rule=_RULE),
            form_field("token_type_hint", enum=("access_token", "refresh_token"), rule=_RULE),
            form_field("client_id", rule=_RULE),
        ),
        limit="scoped_tokens",
        rule=_RULE,
        basis=Basis.ASSUMED,
        surface="base",
        schemes=("client",),
        format=Format.OAUTH2,
        body="form",
    ),
)
