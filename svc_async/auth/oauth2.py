"""The grants of OAuth 2.0: PKCE, the way to the authorization page and back, requests and answers of tokens.

authlib writes and reads them. It is imported when it is first needed, and nothing of it leaves this module.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, cast

import attrs

from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.errors import InvalidArgument, UnexpectedAnswer

__all__ = ["PendingAuthorization", "begin", "code_grant", "code_of", "granted", "refresh_grant"]

_MISFIT = "the answer has no bearer token"
_LONGEST = 100 * 365 * 86_400
"""Seconds after which no token ends; the calendar does."""
_VERIFIER = 64
"""Characters of a code verifier: 43 to 128 (RFC 7636, 4.1)."""


@attrs.frozen(kw_only=True)
class PendingAuthorization:
    """An authorization that waits for its user; keep it until the user is back.

    Attributes:
        url: the page that the user opens.
        redirect_uri: where the user comes back to.
        state: comes back with the user.
        code_verifier: proves that who exchanges the code is who asked for it; keep it where the user cannot see it.
    """

    url: str = attrs.field(repr=False)
    redirect_uri: str
    state: str = attrs.field(repr=False)
    code_verifier: str = attrs.field(repr=False)


def begin(page: str, *, client_id: str, redirect_uri: str, scopes: Sequence[str]) -> PendingAuthorization:
    """Write the URL of an authorization page, with PKCE (S256)."""
    from authlib.common.security import generate_token  # noqa: PLC0415 - few need it
    from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # noqa: PLC0415
    from authlib.oauth2.rfc7636 import create_s256_code_challenge  # noqa: PLC0415

    state, verifier = generate_token(), generate_token(_VERIFIER)
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


def code_of(redirect: str, pending: PendingAuthorization) -> str:
    """Read the code from the URL that the user came back to.

    Raises:
        InvalidArgument: the user denied, or the URL is of another authorization or has no code.
    """
    from authlib.oauth2.rfc6749.errors import (  # noqa: PLC0415
        MismatchingStateException,
        MissingCodeException,
        OAuth2Error,
    )
    from authlib.oauth2.rfc6749.parameters import parse_authorization_code_response  # noqa: PLC0415

    try:
        code: str = parse_authorization_code_response(redirect, pending.state)["code"]
    except MismatchingStateException:
        raise InvalidArgument("redirect", "must carry the state of this authorization") from None
    except MissingCodeException:
        raise InvalidArgument("redirect", "must carry a code; without one, the user denied access") from None
    except OAuth2Error:
        raise InvalidArgument("redirect", "must be the URL that the user came back to") from None
    return code


def code_grant(code: str, pending: PendingAuthorization, *, client_id: str | None) -> bytes:
    """Write the request that exchanges a code; a client without a secret names itself in it."""
    return _request(
        "authorization_code",
        code=code,
        redirect_uri=pending.redirect_uri,
        code_verifier=pending.code_verifier,
        client_id=client_id,
    )


def refresh_grant(refresh_token: str, *, client_id: str | None) -> bytes:
    """Write the request that buys the next token."""
    return _request("refresh_token", refresh_token=refresh_token, client_id=client_id)


def _request(grant_type: str, **fields: str | None) -> bytes:
    from authlib.oauth2.rfc6749.parameters import prepare_token_request  # noqa: PLC0415

    given = {name: value for name, value in fields.items() if value}
    return str(prepare_token_request(grant_type, **given)).encode("ascii")


def granted(
    answer: object, *, now: datetime, client_id: str, before: OAuth2UserCredentials | None = None
) -> OAuth2UserCredentials:
    """Read a token; what the answer does not repeat stays as it was before.

    Raises:
        UnexpectedAnswer: the answer holds no token that calls can carry.
    """
    from authlib.oauth2.rfc6749.wrappers import OAuth2Token  # noqa: PLC0415

    given = cast(Mapping[str, Any], answer) if isinstance(answer, Mapping) else {}
    ends = _end(given.get("expires_in"), now)
    # The end is by our clock, not by authlib's.
    token = cast(dict[str, Any], OAuth2Token({**given, "expires_in": None, "expires_at": ends and ends.timestamp()}))
    if str(token.get("token_type")).lower() != "bearer":
        raise UnexpectedAnswer(_MISFIT, status=200)
    try:
        return OAuth2UserCredentials(
            access_token=token["access_token"],
            refresh_token=token.get("refresh_token") or (before.refresh_token if before else None),
            client_id=client_id,
            expires_at=ends,
            scopes=token.get("scope") or (before.scopes if before else ()),
        )
    except (KeyError, InvalidArgument, TypeError):
        raise UnexpectedAnswer(_MISFIT, status=200) from None


def _end(seconds: object, now: datetime) -> datetime | None:
    if not isinstance(seconds, int | float):
        return None
    return now + timedelta(seconds=min(max(seconds, 0), _LONGEST))
