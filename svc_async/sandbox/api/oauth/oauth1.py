"""OAuth 1.0a in three steps (AUTH-01 to AUTH-19): request token, the user's approval, access token."""

import hmac
from datetime import timedelta

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
from svc_async.sandbox.refusal import Basis, Problem, Refusal
from svc_async.sandbox.server.auth import unauthorized
from svc_async.sandbox.server.decoding import Param, form_field, header_field, text
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.rendering import PAGE_HEADERS, Format, render_page
from svc_async.sandbox.state.grants import Grants, RequestToken

__all__ = ["OPERATIONS", "approve"]

_OOB = "oob"
_AUTHORIZE = "/oauth/authorize"
_REQUEST_TOKEN_LASTS = timedelta(minutes=15)  # Unspecified: how long (ASM-09)
_PIN_DIGITS = 7  # Unspecified: the form of a PIN (ASM-77).
_PERMISSIONS = {
    "read": ("read what you post and who you are",),
    "write": ("read what you post and who you are", "change it in your name"),
}


def approve(grants: Grants, token: RequestToken, user_id: str) -> str:
    """Approve a request token for a user; return the verifier, or a PIN where there is no callback."""
    secret = grants.secret("verifier", 32)
    token.user_id = user_id
    token.verifier = str(int(secret, 36) % 10**_PIN_DIGITS).zfill(_PIN_DIGITS) if token.callback == _OOB else secret
    return token.verifier


def _issue_request_token(call: Call) -> Answer:
    app, callback = call.caller.app, call.params["oauth_callback"]
    if callback not in (_OOB, *app.callback_urls):
        # Unspecified: status and code.
        problem = Problem(
            "CALLBACK_NOT_APPROVED", f"the callback URL is not among those in the app's settings ({CALLBACK})"
        )
        raise Refusal(403, problem, rule="AUTH-04", basis=Basis.SPEC)
    if "svc_auth_access_type" in call.caller.protocol:
        # Unspecified: that it goes in the query (ASM-82).
        raise Refusal(400, Problem("INVALID_PARAMETER", "svc_auth_access_type goes in the query"), rule="ASM-82")
    read_only = "read" in (app.access, call.params["svc_auth_access_type"])
    token = RequestToken(
        token=call.sandbox.grants.secret("request_token", 27),
        secret=call.sandbox.grants.secret("request_token_secret", 32),
        consumer_key=app.consumer_key,
        callback=callback,
        access="read" if read_only else "write",
        expires=call.now + _REQUEST_TOKEN_LASTS,
    )
    call.sandbox.grants.request_tokens[token.token] = token
    return Answer({"oauth_token": token.token, "oauth_token_secret": token.secret, "oauth_callback_confirmed": "true"})


def _show_authenticate_page(call: Call) -> Answer:
    token = _find_pending(call)
    if token.callback == _OOB:
        problem = Problem("INVALID_PARAMETER", "This address is for apps with a callback. Use /oauth/authorize.")
        raise Refusal(403, problem, rule="AUTH-13f", basis=Basis.SPEC)
    browser = find_browser(call)
    app = call.sandbox.grants.apps[token.consumer_key]
    granted = call.sandbox.grants.find_granted(app, browser.user_id)
    if app.sign_in and granted is not None and token.access in ("read", granted.access) and not token.log_in:
        # The user need not be asked again (AUTH-13, AUTH-13b).
        return _approve_and_redirect(call.sandbox.grants, token, browser.user_id)
    return show_page(call, browser, _make_consent(call, token))


def _find_pending(call: Call) -> RequestToken:
    """Find the request token that a page asks for."""
    token = call.sandbox.grants.request_tokens.get(call.params["oauth_token"])
    if token is None or token.verifier is not None or call.now >= token.expires:
        problem = Problem("UNAUTHORIZED_ACCESS", "The request token is unknown, used or too old. Go back to the app.")
        raise Refusal(401, problem, rule="ASM-76")
    token.log_in = token.log_in or bool(call.params.get("force_login"))
    return token


def _make_consent(call: Call, token: RequestToken) -> Consent:
    return Consent(
        app=call.sandbox.grants.apps[token.consumer_key].name,
        permissions=_PERMISSIONS[token.access],
        action=_AUTHORIZE,
        subject={"oauth_token": token.token},
        log_in=token.log_in,
        screen_name=call.params.get("screen_name") or "",
    )


def _decide(call: Call) -> Answer:
    token = _find_pending(call)
    decision = read_decision(call, _make_consent(call, token))
    if isinstance(decision, Answer):
        return decision
    if decision:
        return _approve_and_redirect(call.sandbox.grants, token, decision)
    del call.sandbox.grants.request_tokens[token.token]
    if token.callback == _OOB:
        return Answer(render_page("Denied", "<p>The app was not let in.</p>"), headers=PAGE_HEADERS)
    # Unspecified: the parameter of the callback (ASM-77).
    return redirect(token.callback, denied=token.token)


def _approve_and_redirect(grants: Grants, token: RequestToken, user_id: str) -> Answer:
    verifier = approve(grants, token, user_id)
    if token.callback == _OOB:
        content = f"<p>Enter this PIN in the app:</p><p><output>{verifier}</output></p>"
        return Answer(render_page("Approved", content), headers=PAGE_HEADERS)
    return redirect(token.callback, oauth_token=token.token, oauth_verifier=verifier)


def _issue_access_token(call: Call) -> Answer:
    token = call.sandbox.grants.request_tokens[call.caller.token]
    given = call.params["oauth_verifier"]
    if token.user_id is None or token.verifier is None:
        raise unauthorized("the request token is not approved", rule="ASM-76")
    if not hmac.compare_digest(token.verifier.encode(), (given or "").encode()):
        raise unauthorized("oauth_verifier is missing or wrong", rule="AUTH-14b")
    del call.sandbox.grants.request_tokens[token.token]
    granted = call.sandbox.grants.grant(call.caller.app, token.user_id, token.access)
    names = {row.id: row.fields["screen_name"] for row in call.sandbox.store["users"]}
    return Answer(
        {
            "oauth_token": granted.token,
            "oauth_token_secret": granted.secret,
            "user_id": granted.user_id,
            "screen_name": names[granted.user_id],
        }
    )


def _invalidate(call: Call) -> Answer:
    call.sandbox.grants.tokens[call.caller.token].valid = False
    return Answer({"access_token": call.caller.token})


_ACCESS_TYPES = ("read", "write")
_PAGE: tuple[Param, ...] = (
    text("oauth_token", required=True, rule="AUTH-12"),
    Param(name="force_login", type="boolean", rule="AUTH-12c"),
    text("screen_name", rule="AUTH-12d"),
)

OPERATIONS = (
    Operation(
        id="oauth1.request_token",
        method="POST",
        path="/oauth/request_token",
        handler=_issue_request_token,
        query=(
            header_field("oauth_callback", rule="AUTH-02"),
            header_field("oauth_nonce"),
            header_field("oauth_signature_method", enum=("HMAC-SHA1",)),
            header_field("oauth_timestamp"),
            header_field("oauth_consumer_key"),
            header_field("oauth_signature"),
            header_field("oauth_version", enum=("1.0",)),
            text("svc_auth_access_type", enum=_ACCESS_TYPES, rule="AUTH-07"),
            header_field("svc_auth_access_type", enum=_ACCESS_TYPES, required=False, rule="AUTH-07"),
        ),
        limit="request_tokens",
        rule="AUTH-08",
        surface="base",
        schemes=("oauth1_consumer",),
        format=Format.FORM,
    ),
    page_operation(
        id="oauth1.authorize",
        method="GET",
        path=_AUTHORIZE,
        handler=lambda call: show_page(call, find_browser(call), _make_consent(call, _find_pending(call))),
        query=_PAGE,
        rule="AUTH-12",
    ),
    page_operation(
        id="oauth1.authenticate",
        method="GET",
        path="/oauth/authenticate",
        handler=_show_authenticate_page,
        query=_PAGE,
        rule="AUTH-13",
    ),
    page_operation(
        id="oauth1.decide",
        method="POST",
        path=_AUTHORIZE,
        handler=_decide,
        query=(form_field("oauth_token", required=True, rule="AUTH-12"), *DECISION),
        rule="ASM-77",
        basis=Basis.PUBLIC,
        body="form",
    ),
    Operation(
        id="oauth1.access_token",
        method="POST",
        path="/oauth/access_token",
        handler=_issue_access_token,
        # Unspecified: the place of the verifier; any of the three is accepted (ASM-83).
        query=(
            header_field("oauth_token", rule="AUTH-14"),
            header_field("oauth_verifier", required=False, rule="AUTH-14b"),
            text("oauth_verifier", rule="AUTH-14b"),
            form_field("oauth_verifier", rule="AUTH-14b"),
        ),
        limit="access_tokens",
        rule="AUTH-14d",
        surface="base",
        schemes=("oauth1_request_token",),
        format=Format.FORM,
        body="form",
    ),
    Operation(
        id="oauth1.invalidate_token",
        method="POST",
        path="/1.1/oauth/invalidate_token",
        handler=_invalidate,
        limit="invalidations",
        rule="AUTH-16b",
        surface="base",
        reads=True,
        format=Format.V1,
    ),
)
