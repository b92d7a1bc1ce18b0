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

from svc_async.sandbox.api.oauth.pages import DECISION, Consent, browser_of, decided, redirect, shown
from svc_async.sandbox.config import SandboxConfig
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.params import form_field, missing, read_query, refuse, text
from svc_async.sandbox.server.rendering import Basis, Dialect, Problem, Refusal
from svc_async.sandbox.state.grants import App, Code, Family, Registry, ScopedToken

__all__ = ["OPERATIONS", "approve"]

_AUTHORIZE = "/2/oauth2/authorize"
_OFFLINE = "offline.access"
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_NO_STORE = {"Cache-Control": "no-store"}
_RULE = "AUTH-26"  # Unspecified: all but the scheme, so that whatever rests on it here is assumed.


class _Unwilling(Exception):
    """A question that is answered by sending the browser back with an error (RFC 6749 4.1.2.1)."""

    def __init__(self, uri: str, **answer: str) -> None:
        super().__init__(answer)
        self.back = redirect(uri, **answer)


@attrs.frozen(kw_only=True)
class _Question:
    """What an app asks a user for.

    Attributes:
        state: goes back to the app as it came; empty if none came.
    """

    app: App
    redirect_uri: str
    scopes: tuple[str, ...]
    state: Mapping[str, str]
    challenge: str


def _asked(registry: Registry, config: SandboxConfig, params: Mapping[str, Any]) -> _Question:
    """Read the question of an authorize page.

    Raises:
        Refusal: whom to answer is not sure, so the browser stays here.
        _Unwilling: the app is told what is wrong.
    """
    app = registry.client(params["client_id"])
    uri = params["redirect_uri"]
    if app is None or uri not in app.callback_urls:
        problem = Problem(
            "INVALID_PARAMETER", "The app is unknown, or redirect_uri is not exactly one of its addresses."
        )
        raise Refusal(400, problem, rule=_RULE, basis=Basis.ASSUMED)
    scopes = tuple(dict.fromkeys((params["scope"] or "").split()))
    state = {} if params["state"] is None else {"state": params["state"]}
    for error, why in _faults(config, params, scopes):
        raise _Unwilling(uri, error=error, error_description=why, **state)
    return _Question(app=app, redirect_uri=uri, scopes=scopes, state=state, challenge=params["code_challenge"])


def _faults(config: SandboxConfig, params: Mapping[str, Any], scopes: tuple[str, ...]) -> list[tuple[str, str]]:
    # Unspecified: that `state` and `scope` are required, and S256; RFC 6749 and RFC 7636 leave these open.
    checks = (
        (params["response_type"] == "code", "unsupported_response_type", "response_type must be code"),
        (params["state"] or not config.oauth2_state_required, "invalid_request", "state is missing"),
        (params["code_challenge_method"] == "S256", "invalid_request", "code_challenge_method must be S256"),
        (
            _CHALLENGE.fullmatch(params["code_challenge"] or ""),
            "invalid_request",
            "code_challenge is missing or malformed",
        ),
        (scopes and {*scopes} <= {*config.scopes}, "invalid_scope", "scope is missing or names an unknown scope"),
    )
    return [(error, why) for good, error, why in checks if not good]


def approve(registry: Registry, config: SandboxConfig, now: datetime, url: str, user_id: str) -> str:
    """Say yes for a user to what the address of an authorize page asks; gives where the browser is sent to.

    Raises:
        Refusal: the page would not be shown.
    """
    params, _ = read_query(_QUESTION, urlsplit(url).query)
    try:
        back = _approved(registry, config, now, _asked(registry, config, params), user_id)
    except _Unwilling as unwilling:
        back = unwilling.back
    return back.headers["Location"]


def _approved(registry: Registry, config: SandboxConfig, now: datetime, question: _Question, user_id: str) -> Answer:
    code = registry.secret("code", 60)
    registry.codes[code] = Code(
        family=Family(question.app.client_id, user_id, question.scopes),
        redirect_uri=question.redirect_uri,
        challenge=question.challenge,
        expires=now + timedelta(seconds=config.authorization_code_seconds),
    )
    return redirect(question.redirect_uri, **question.state, code=code)


def _authorize(call: Call) -> Answer:
    try:
        question = _asked(call.registry, call.config, call.params)
    except _Unwilling as unwilling:
        return unwilling.back
    return shown(call, browser_of(call), _consent(call, question))


def _consent(call: Call, question: _Question) -> Consent:
    asked = {param.name: call.params[param.name] for param in _QUESTION}
    subject = {name: value for name, value in asked.items() if value is not None}
    return Consent(app=question.app.name, wishes=question.scopes, action=_AUTHORIZE, subject=subject)


def _decide(call: Call) -> Answer:
    try:
        question = _asked(call.registry, call.config, call.params)
    except _Unwilling as unwilling:
        return unwilling.back
    decision = decided(call, _consent(call, question))
    if isinstance(decision, Answer):
        return decision
    if not decision:
        return redirect(question.redirect_uri, error="access_denied", **question.state)
    return _approved(call.registry, call.config, call.now, question, decision)


def _token(call: Call) -> Answer:
    grant = _GRANTS.get(call.params["grant_type"])
    if grant is None:
        raise _invalid("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
    return grant(call)


def _exchange(call: Call) -> Answer:
    _check_given(call, "code", "redirect_uri", "code_verifier")
    code = call.registry.codes.get(call.params["code"])
    if code is None or code.family.client_id != call.caller.app.client_id:
        raise _invalid("invalid_grant", "the code is unknown")
    if code.used:
        raise _used_again(call, code.family, "the code")
    _check_code(call, code)
    code.used = True
    return _issue(call, code.family, code.family.scopes)


def _check_code(call: Call, code: Code) -> None:
    verifier = call.params["code_verifier"]
    if not _VERIFIER.fullmatch(verifier):
        raise _invalid("invalid_request", "code_verifier needs 43 to 128 unreserved characters")
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
    checks = (
        (call.now < code.expires, "the code has expired"),
        (call.params["redirect_uri"] == code.redirect_uri, "redirect_uri is not the one of the authorize page"),
        (hmac.compare_digest(challenge, code.challenge.encode()), "code_verifier does not fit code_challenge"),
    )
    for good, why in checks:
        if not good:
            raise _invalid("invalid_grant", why)


def _refresh(call: Call) -> Answer:
    _check_given(call, "refresh_token")
    token = call.params["refresh_token"]
    family = call.registry.refreshers.get(token)
    if family is None or family.client_id != call.caller.app.client_id or not family.valid:
        raise _invalid("invalid_grant", "the refresh token is unknown or revoked")
    if family.refresh_token != token:
        raise _used_again(call, family, "the refresh token")
    scopes = tuple((call.params["scope"] or " ".join(family.scopes)).split())
    if not {*scopes} <= {*family.scopes}:
        raise _invalid("invalid_scope", "scope goes beyond what was granted")
    return _issue(call, family, scopes)


def _used_again(call: Call, family: Family, what: str) -> Refusal:
    # Unspecified: that a second use revokes the whole grant, as RFC 6749 4.1.2 and RFC 9700 4.14.2 advise.
    if not call.config.oauth2_reuse_revokes:
        return _invalid("invalid_grant", f"{what} was used before")
    family.valid = False
    return _invalid("invalid_grant", f"{what} was used before, so the whole grant is revoked")


def _issue(call: Call, family: Family, scopes: tuple[str, ...]) -> Answer:
    registry, lasts = call.registry, call.config.scoped_token_seconds
    token = registry.secret("scoped", 64)
    registry.scoped[token] = ScopedToken(family, scopes, call.now + timedelta(seconds=lasts))
    answer: dict[str, Any] = {
        "token_type": "bearer",
        "expires_in": lasts,
        "access_token": token,
        "scope": " ".join(scopes),
    }
    if _OFFLINE in family.scopes:
        family.refresh_token = answer["refresh_token"] = registry.secret("refresh", 64)
        registry.refreshers[answer["refresh_token"]] = family
    return Answer(answer, headers=_NO_STORE)


def _revoke(call: Call) -> Answer:
    """Revoke an access token, or with a refresh token the whole grant; of another's token nothing is told."""
    token, client_id = call.params["token"], call.caller.app.client_id
    family, scoped = call.registry.refreshers.get(token), call.registry.scoped.get(token)
    if family is not None and family.client_id == client_id:
        family.valid = False
    if scoped is not None and scoped.family.client_id == client_id:
        scoped.revoked = True
    return Answer({"revoked": True}, headers=_NO_STORE)


def _check_given(call: Call, *names: str) -> None:
    refuse(*(missing("ASM-95", name) for name in names if call.params[name] is None))


def _invalid(error: str, why: str) -> Refusal:
    return Refusal(400, Problem(error, why), rule=_RULE, basis=Basis.ASSUMED)


_GRANTS: Mapping[str, Callable[[Call], Answer]] = {"authorization_code": _exchange, "refresh_token": _refresh}

_NAMES = ("response_type", "scope", "state", "code_challenge", "code_challenge_method")
_QUESTION = (
    *(text(name, required=True, rule=_RULE) for name in ("client_id", "redirect_uri")),
    *(text(name, rule=_RULE) for name in _NAMES),
)
"""The parameters of the authorize page. Of those that may be missing here, the app is told when they are."""

# Unspecified: all of these calls; they are those that are publicly known of services of this kind.
OPERATIONS = (
    Operation(
        id="oauth2.authorize",
        method="GET",
        path=_AUTHORIZE,
        handler=_authorize,
        query=_QUESTION,
        limit=None,
        rule=_RULE,
        basis=Basis.ASSUMED,
        surface="base",
        schemes=("none",),
        dialect=Dialect.HTML,
    ),
    Operation(
        id="oauth2.decide",
        method="POST",
        path=_AUTHORIZE,
        handler=_decide,
        query=(*(form_field(param.name, required=param.required, rule=_RULE) for param in _QUESTION), *DECISION),
        limit=None,
        rule=_RULE,
        basis=Basis.ASSUMED,
        surface="base",
        schemes=("none",),
        dialect=Dialect.HTML,
        body="form",
    ),
    Operation(
        id="oauth2.exchange",
        method="POST",
        path="/2/oauth2/token",
        handler=_token,
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
        dialect=Dialect.OAUTH2,
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
        dialect=Dialect.OAUTH2,
        body="form",
    ),
)
