"""The grants of OAuth 2.0: PKCE, the redirect to the authorization page and back, token requests and answers.

authlib builds the requests. It is imported on first use; none of its types leave this module.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import attrs

from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.errors import InvalidArgument

__all__ = ["PendingAuthorization", "begin_authorization", "code_grant", "parse_code", "parse_token", "refresh_grant"]

_MAX_LIFETIME = 100 * 365 * 86_400
"""Seconds; a longer lifetime would leave the range of datetime."""
_NUMBER = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
_VERIFIER_LENGTH = 64
"""Characters of a code verifier: 43 to 128 are allowed (RFC 7636, 4.1)."""


@attrs.frozen(kw_only=True)
class PendingAuthorization:
    """An authorization that waits for its user; keep it until the user returns.

    Attributes:
        url: the page that the user opens.
        redirect_uri: where the user returns to.
        state: returns with the user.
        code_verifier: proves that the same client requested the code and exchanges it; keep it secret from the user.
    """

    url: str = attrs.field(repr=False)
    redirect_uri: str
    state: str = attrs.field(repr=False)
    code_verifier: str = attrs.field(repr=False)


def begin_authorization(page: str, *, client_id: str, redirect_uri: str, scopes: Sequence[str]) -> PendingAuthorization:
    """Return a new authorization with the URL of its page, with PKCE (S256)."""
    from authlib.common.security import generate_token  # noqa: PLC0415 - few programs need it
    from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # noqa: PLC0415 - likewise
    from authlib.oauth2.rfc7636 import create_s256_code_challenge  # noqa: PLC0415 - likewise

    state, verifier = generate_token(), generate_token(_VERIFIER_LENGTH)
    challenge = create_s256_code_challenge(verifier)  # type: ignore[no-untyped-call]  # its stubs have no types
    url = prepare_grant_uri(
        page,
        client_id,
        "code",
        redirect_uri=redirect_uri,
        scope=list(scopes),
        state=state,
        code_challenge=challenge,
        code_challenge_method="S256",
    )
    return PendingAuthorization(url=url, redirect_uri=redirect_uri, state=state, code_verifier=verifier)


def parse_code(redirect: str, pending: PendingAuthorization) -> str:
    """Return the code from the URL that the user returned to.

    Raises:
        InvalidArgument: the URL belongs to another authorization, or reports an error, or has no code.
    """
    fields = _parse_query(redirect)
    rule = _find_broken_rule(fields, pending.state)
    code = fields.get("code", "")
    del redirect, fields  # they may hold a code, which must not be among the locals of a traceback
    if rule is not None:
        del code
        raise InvalidArgument("redirect", rule)
    return code


def _parse_query(redirect: str) -> Mapping[str, str]:
    try:
        return dict(parse_qsl(urlsplit(redirect).query))
    except ValueError:  # the text between brackets is no address
        return {}


def _find_broken_rule(fields: Mapping[str, str], state: str) -> str | None:
    """Return the rule that a redirect breaks; the state comes first, since anyone can write the rest."""
    if not fields:
        return "must be the whole URL that the user returned to, with its query"
    if fields.get("state") != state:
        return "must contain the state of this authorization"
    if "code" in fields:
        return None
    if "error" not in fields:
        return "must contain a code"
    # Other errors are not quoted: they are as little checked as the description, and may contain anything.
    meaning = _REDIRECT_ERRORS.get(fields["error"])
    reported = "an error that OAuth 2.0 does not define" if meaning is None else f"{fields['error']}: {meaning}"
    return f"must contain a code; this one reports {reported}"


# Unspecified: the errors of a redirect (contract AUTH-26 names the scheme only).
_CHECK_CLIENT = "check the client_id and the settings of the app"
_ANOTHER_TRY = "the user may try again, with a new authorization_url"
_REDIRECT_ERRORS: Mapping[str, str] = MappingProxyType(
    {
        "invalid_request": f"the service does not accept the URL of the page; {_CHECK_CLIENT}",
        "unauthorized_client": f"the app may not request a code; {_CHECK_CLIENT}",
        "access_denied": "access was denied, by the user or by the service",
        "unsupported_response_type": "the service gives the app no codes",
        "invalid_scope": "the service does not know a scope or does not grant it to the app; check scopes",
        "server_error": f"the service failed; {_ANOTHER_TRY}",
        "temporarily_unavailable": f"the service is overloaded or under maintenance; {_ANOTHER_TRY}",
    }
)
"""The errors that a redirect reports (RFC 6749, 4.1.2.1), and what they mean."""


def code_grant(code: str, pending: PendingAuthorization, *, client_id: str | None) -> bytes:
    """Return the body of the request that exchanges a code; it names a client that has no secret."""
    return _encode_request(
        "authorization_code",
        code=code,
        redirect_uri=pending.redirect_uri,
        code_verifier=pending.code_verifier,
        client_id=client_id,
    )


def refresh_grant(refresh_token: str, *, client_id: str | None) -> bytes:
    """Return the body of the request for the next token."""
    return _encode_request("refresh_token", refresh_token=refresh_token, client_id=client_id)


def _encode_request(grant_type: str, **fields: str | None) -> bytes:
    from authlib.oauth2.rfc6749.parameters import prepare_token_request  # noqa: PLC0415 - few programs need it

    present = {name: value for name, value in fields.items() if value}
    return str(prepare_token_request(grant_type, **present)).encode("ascii")


def parse_token(
    answer: object, *, now: datetime, client_id: str, previous: OAuth2UserCredentials | None = None
) -> OAuth2UserCredentials | None:
    """Parse the answer to a token request; return None if it has no bearer token.

    The type, scopes and a refresh token that it omits are those of the previous credentials, whose refresh token works
    once. A lifetime or scopes that cannot be read do not cost the token.
    """
    token = cast(Mapping[str, Any], answer) if isinstance(answer, Mapping) else {}
    if str(token.get("token_type", "" if previous is None else "bearer")).lower() != "bearer":
        return None
    try:
        return OAuth2UserCredentials(
            access_token=token["access_token"],
            refresh_token=token.get("refresh_token") or (previous.refresh_token if previous else None),
            client_id=client_id,
            expires_at=_expiry(token.get("expires_in"), now),
            scopes=_find_scopes(token.get("scope")) or (previous.scopes if previous else ()),
        )
    except (KeyError, InvalidArgument, TypeError):
        return None


def _find_scopes(scope: object) -> str | Sequence[str]:
    """Return the scopes: one string (RFC 6749), or an array, as some services send; none if it is something else."""
    is_array = isinstance(scope, list) and all(isinstance(each, str) for each in scope)
    return cast(str | Sequence[str], scope) if isinstance(scope, str) or is_array else ()


def _expiry(seconds: object, now: datetime) -> datetime | None:
    if isinstance(seconds, str) and _NUMBER.fullmatch(seconds):
        seconds = float(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return now + timedelta(seconds=min(max(seconds, 0), _MAX_LIFETIME))
