"""Scopes with PKCE: from the page to the token."""

from base64 import urlsafe_b64encode
from datetime import timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from svc_async import AppCredentials, BadRequest, InvalidArgument, OAuth2UserCredentials, UnexpectedAnswer
from svc_async.platform.oauth2 import PendingAuthorization
from tests.support.errors import has
from tests.support.scripted_server import APP, USER, Answer, ScriptedServer

PUBLIC = AppCredentials(**APP, client_id="client")
CONFIDENTIAL = AppCredentials(**APP, client_id="client", client_secret="hush-4")
BACK = "https://example.test/back"
SCOPES = ["follow.read", "offline.access"]
GRANTED = {"token_type": "bearer", "access_token": "hush-5", "expires_in": 7200, "scope": "follow.read"}


async def begin_authorization(service: ScriptedServer, app: AppCredentials = PUBLIC) -> PendingAuthorization:
    async with service.session(app) as session:
        return session.oauth2.authorization_url(scopes=SCOPES, redirect_uri=BACK)


def build_redirect(found: PendingAuthorization, **changes: str) -> str:
    return f"{BACK}?{urlencode({'state': found.state, 'code': 'c/1', **changes})}"


@pytest.mark.rule("AUTH-26")
async def test_the_page_receives_the_scopes_and_a_challenge(service: ScriptedServer) -> None:
    found = await begin_authorization(service)
    url = urlsplit(found.url)
    assert f"{url.scheme}://{url.netloc}{url.path}" == f"{service.base_url}/2/oauth2/authorize"
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    assert query == {
        "response_type": "code",
        "client_id": "client",
        "redirect_uri": BACK,
        "scope": "follow.read offline.access",
        "state": found.state,
        "code_challenge": compute_challenge(found.code_verifier),
        "code_challenge_method": "S256",
    }
    assert 43 <= len(found.code_verifier) <= 128
    assert found.code_verifier not in found.url + repr(found)
    assert service.requests == []


def compute_challenge(verifier: str) -> str:
    """RFC 7636, 4.2."""
    return urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")


def test_the_challenge_is_that_of_the_published_vector() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B
    assert compute_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


async def test_each_authorization_has_its_own_state_and_verifier(service: ScriptedServer) -> None:
    one, other = await begin_authorization(service), await begin_authorization(service)
    assert one.state != other.state
    assert one.code_verifier != other.code_verifier


@pytest.mark.parametrize("app", [PUBLIC, CONFIDENTIAL])
async def test_a_code_is_exchanged_with_its_verifier(service: ScriptedServer, app: AppCredentials) -> None:
    service.on("POST", "/2/oauth2/token", Answer({**GRANTED, "refresh_token": "hush-6"}))
    found = await begin_authorization(service)

    async with service.session(app) as session:
        granted = await session.oauth2.exchange(found, redirect=build_redirect(found))

    assert granted == OAuth2UserCredentials(
        access_token="hush-5",
        refresh_token="hush-6",
        client_id="client",
        expires_at=service.clock.now() + timedelta(seconds=7200),
        scopes=["follow.read"],
    )
    (seen,) = service.requests
    assert seen.content_type == "application/x-www-form-urlencoded"
    named = {"client_id": ["client"]} if app is PUBLIC else {}
    assert seen.form == {
        "grant_type": ["authorization_code"],
        "code": ["c/1"],
        "redirect_uri": [BACK],
        "code_verifier": [found.code_verifier],
        **named,
    }
    assert seen.headers.get("Authorization") == (None if app is PUBLIC else "Basic Y2xpZW50Omh1c2gtNA==")


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "of another"},
        {"code": ""},
        {"error": "access_denied", "code": ""},
        {"error": "temporarily_unavailable", "code": ""},
    ],
)
async def test_a_redirect_of_another_authorization_or_without_a_code_is_refused(
    service: ScriptedServer, changes: dict[str, str]
) -> None:
    found = await begin_authorization(service)

    async with service.session(PUBLIC) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="redirect")):
            await session.oauth2.exchange(found, redirect=build_redirect(found, **changes))

    assert service.requests == []


async def test_a_refused_grant_says_why(service: ScriptedServer) -> None:
    service.on("POST", "/2/oauth2/token", Answer({"error": "invalid_grant", "error_description": "Too old."}, 400))
    found = await begin_authorization(service)

    async with service.session(PUBLIC) as session:
        with pytest.raises(BadRequest) as caught:
            await session.oauth2.exchange(found, redirect=build_redirect(found))
    (why,) = caught.value.errors
    assert (why.code, why.message) == ("invalid_grant", "Too old.")


async def test_a_token_without_an_end_has_none(service: ScriptedServer) -> None:
    service.on("POST", "/2/oauth2/token", Answer({"token_type": "Bearer", "access_token": "hush-5"}))
    found = await begin_authorization(service)

    async with service.session(PUBLIC) as session:
        granted = await session.oauth2.exchange(found, redirect=build_redirect(found))

    assert (granted.expires_at, granted.refresh_token, granted.scopes) == (None, None, ())


async def test_the_client_may_be_named_in_the_call(service: ScriptedServer) -> None:
    async with service.session(USER) as session:
        found = session.oauth2.authorization_url(scopes=SCOPES, redirect_uri=BACK, client_id="mine")
        assert "client_id=mine" in found.url
        with pytest.raises(InvalidArgument, check=has(parameter="client_id")):
            session.oauth2.authorization_url(scopes=SCOPES, redirect_uri=BACK)


@pytest.mark.parametrize("scopes", [[], "follow.read", [5], [True], b"follow.read", None, 5])
async def test_scopes_are_several(service: ScriptedServer, scopes: Any) -> None:
    async with service.session(PUBLIC) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="scopes")):
            session.oauth2.authorization_url(scopes=scopes, redirect_uri=BACK)


@pytest.mark.parametrize("uri", ["", "foo", "/back", "https://", "a b:c"])
async def test_a_redirect_uri_is_an_absolute_url(service: ScriptedServer, uri: str) -> None:
    async with service.session(PUBLIC) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="redirect_uri")):
            session.oauth2.authorization_url(scopes=SCOPES, redirect_uri=uri)
        pending = session.oauth2.authorization_url(scopes=SCOPES, redirect_uri="app.shop:/back")
    assert parse_qs(urlsplit(pending.url).query)["redirect_uri"] == ["app.shop:/back"]


@pytest.mark.parametrize("token", ["a\r\nX-Injected: 1", "", " ", "caf\u00e9", "\ud800", "\0"])
async def test_a_token_that_no_header_can_carry_is_an_unexpected_answer(service: ScriptedServer, token: str) -> None:
    service.on("POST", "/oauth2/token", Answer({"token_type": "bearer", "access_token": token}))
    async with service.session(PUBLIC) as session:
        with pytest.raises(UnexpectedAnswer) as caught:
            await session.webhooks.list().first()
    assert caught.value.body == b""
