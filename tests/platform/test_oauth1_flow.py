"""The three-legged flow: what each step sends, and how it reads the answer."""

from typing import Any

import attrs
import pytest

from svc_async import (
    AccessDenied,
    AppCredentials,
    BearerToken,
    Endpoints,
    InvalidArgument,
    Unauthorized,
    UnexpectedAnswer,
    UserCredentials,
)
from svc_async.platform.oauth1_flow import AccessToken, OAuthAccessType, RequestToken
from tests.support.errors import has
from tests.support.scripted_server import APP, USER, Answer, ReceivedRequest, ScriptedServer

APP_ONLY = AppCredentials(**APP)
ASKED = Answer("oauth_token=re%2Bquest&oauth_token_secret=hush-9&oauth_callback_confirmed=true")
GRANTED = Answer("oauth_token=7-abc&oauth_token_secret=hush-8&user_id=7&screen_name=ada")
TOKEN = RequestToken(oauth_token="re+quest", oauth_token_secret="hush-9", oauth_callback_confirmed="true")
PIN_TOKEN = attrs.evolve(TOKEN, callback="oob")


async def request_token(
    service: ScriptedServer, callback: str = "oob", **more: Any
) -> tuple[RequestToken, ReceivedRequest]:
    service.on("POST", "/oauth/request_token", ASKED)
    async with service.session(APP_ONLY) as session:
        token = await session.oauth1.request_token(callback=callback, **more)
    (seen,) = service.requests
    return token, seen


@pytest.mark.rule("AUTH-01", "AUTH-01b", "AUTH-01c", "AUTH-01d", "AUTH-01e", "AUTH-02", "AUTH-03", "AUTH-06", "AUTH-08")
async def test_the_request_token_is_requested_by_the_app_alone(service: ScriptedServer) -> None:
    token, seen = await request_token(service)
    assert seen.oauth.keys() == {
        *("oauth_nonce", "oauth_callback", "oauth_signature_method", "oauth_timestamp", "oauth_consumer_key"),
        *("oauth_signature", "oauth_version"),
    }
    assert seen.oauth["oauth_callback"] == "oob"
    assert (seen.oauth["oauth_signature_method"], seen.oauth["oauth_version"]) == ("HMAC-SHA1", "1.0")
    assert seen.oauth["oauth_nonce"].isascii()
    assert (seen.query, seen.body) == ({}, b"")
    assert token == PIN_TOKEN
    assert "hush" not in repr(token)


@pytest.mark.rule("AUTH-05")
@pytest.mark.parametrize(
    "callback",
    ["https://example.test/back?a=b", "my-app://done", "com.example.app:/done", "http://127.0.0.1:8766/done"],
)
async def test_a_callback_is_any_absolute_url(service: ScriptedServer, callback: str) -> None:
    _, seen = await request_token(service, callback)
    assert seen.oauth["oauth_callback"] == callback


@pytest.mark.rule("AUTH-02")
@pytest.mark.parametrize("callback", ["", "example.test", "/back", "https://", "https:///back", "a b:c", ":x", "x:"])
async def test_what_is_no_callback_is_not_sent(service: ScriptedServer, callback: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="callback")):
        await request_token(service, callback)
    assert service.requests == []


@pytest.mark.rule("AUTH-07")
@pytest.mark.parametrize("access_type", ["read", OAuthAccessType.WRITE])
async def test_the_access_type_travels_in_the_query(service: ScriptedServer, access_type: str) -> None:
    _, seen = await request_token(service, access_type=access_type)
    assert seen.query == {"svc_auth_access_type": str(access_type)}
    with pytest.raises(InvalidArgument, check=has(parameter="access_type")):
        await request_token(service, access_type="all")


async def test_checks_can_be_left_to_the_service(service: ScriptedServer) -> None:
    service.on("POST", "/oauth/request_token", ASKED)

    async with service.session(APP_ONLY, validate=False) as session:
        await session.oauth1.request_token(callback="", access_type="all")
        assert session.oauth1.authenticate_url(PIN_TOKEN)

    assert len(service.requests) == 1


async def test_a_callback_that_is_not_confirmed_is_no_success(service: ScriptedServer) -> None:
    answer = Answer("oauth_token=a&oauth_token_secret=b&oauth_callback_confirmed=false")
    service.on("POST", "/oauth/request_token", answer)

    async with service.session(APP_ONLY) as session:
        with pytest.raises(UnexpectedAnswer) as caught:
            await session.oauth1.request_token(callback="oob")
    assert caught.value.body == str(answer.payload).encode()


@pytest.mark.parametrize("payload", ["<html>", "", "oauth_token=a", "oauth_token", "ü=a"])
async def test_an_answer_that_is_no_form_is_not_understood(service: ScriptedServer, payload: str) -> None:
    service.on("POST", "/oauth/request_token", Answer(payload))
    async with service.session(APP_ONLY) as session:
        with pytest.raises(UnexpectedAnswer):
            await session.oauth1.request_token(callback="oob")


async def test_json_is_read_as_well_for_the_reference_lists_it(service: ScriptedServer) -> None:
    fields = {"oauth_token": "a", "oauth_token_secret": "b", "oauth_callback_confirmed": "true"}
    service.on("POST", "/oauth/request_token", Answer(fields))

    async with service.session(APP_ONLY) as session:
        assert (await session.oauth1.request_token(callback="oob")).oauth_token == "a"


@pytest.mark.rule("AUTH-12", "AUTH-12b", "AUTH-12e", "AUTH-13e", "AUTH-13f")
async def test_the_pages_carry_the_request_token_and_no_callback(service: ScriptedServer) -> None:
    async with service.session(APP_ONLY) as session:
        token = attrs.evolve(TOKEN, callback="https://example.test/back")
        authorize = session.oauth1.authorize_url(token, force_login=True, screen_name="a b")
        authenticate = session.oauth1.authenticate_url("re+quest")

    assert authorize == f"{service.base_url}/oauth/authorize?oauth_token=re%2Bquest&force_login=true&screen_name=a%20b"
    assert authenticate == f"{service.base_url}/oauth/authenticate?oauth_token=re%2Bquest"
    assert service.requests == []


@pytest.mark.rule("AUTH-13c")
async def test_the_pin_mode_goes_with_authorize(service: ScriptedServer) -> None:
    async with service.session(APP_ONLY) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="token", rule_ids=("AUTH-13c",))):
            session.oauth1.authenticate_url(PIN_TOKEN)
        with pytest.raises(InvalidArgument, check=has(parameter="token")):
            session.oauth1.authorize_url("")


@pytest.mark.rule("AUTH-14", "AUTH-14b", "AUTH-14d")
async def test_the_exchange_is_signed_with_the_request_token(service: ScriptedServer) -> None:
    service.on("POST", "/oauth/access_token", GRANTED)

    async with service.session(APP_ONLY) as session:
        granted = await session.oauth1.access_token(TOKEN, verifier="1234567")

    (seen,) = service.requests

    assert (seen.oauth["oauth_token"], seen.oauth["oauth_verifier"]) == ("re+quest", "1234567")
    assert granted == AccessToken(oauth_token="7-abc", oauth_token_secret="hush-8", user_id="7", screen_name="ada")
    assert granted.credentials(APP_ONLY) == UserCredentials(**APP, token="7-abc", token_secret="hush-8")
    assert "hush" not in repr(granted)
    assert "7-abc" not in repr(granted)


@pytest.mark.rule("AUTH-14b")
async def test_an_exchange_without_a_verifier_is_not_sent(service: ScriptedServer) -> None:
    async with service.session(APP_ONLY) as session:
        with pytest.raises(InvalidArgument, check=has(parameter="verifier")):
            await session.oauth1.access_token(TOKEN, verifier="")
    assert service.requests == []


@pytest.mark.rule("AUTH-14", "AUTH-14c")
async def test_the_verifier_is_read_from_the_redirect_of_this_flow_only(service: ScriptedServer) -> None:
    async with service.session(APP_ONLY) as session:
        read = session.oauth1.verifier
        assert read(TOKEN, "https://example.test/back?oauth_token=re%2Bquest&oauth_verifier=v") == "v"
        for query in ("oauth_token=re%2Bquest&oauth_verifier=v", "note=a?b&oauth_token=re%2Bquest&oauth_verifier=v"):
            assert read(TOKEN, query) == read(TOKEN, f"?{query}") == read(TOKEN, f"/back?{query}") == "v"
        assert read(TOKEN, "oauth_token=re%2Bquest&oauth_verifier=a%252Bb%26oauth_verifier%3Dv") == (
            "a%2Bb&oauth_verifier=v"
        )
        for redirect, rules in {
            "https://example.test/back?denied=re%2Bquest": (),
            "https://example.test/back?denied=other": ("AUTH-14",),
            "https://example.test/back?oauth_token=other&oauth_verifier=v": ("AUTH-14",),
            "https://example.test/back?oauth_token=re%2Bquest": ("AUTH-14b",),
        }.items():
            with pytest.raises(InvalidArgument, check=has(parameter="redirect", rule_ids=rules)) as caught:
                read(TOKEN, redirect)
            assert "other" not in str(caught.value)


@pytest.mark.rule("AUTH-16", "AUTH-16b", "VER-02")
async def test_a_user_s_token_is_invalidated_by_itself(service: ScriptedServer) -> None:
    service.on("POST", "/1.1/oauth/invalidate_token", Answer({"access_token": "hush-2"}))

    async with service.session(USER) as session:
        gone = await session.oauth1.invalidate_token()

    (seen,) = service.requests

    assert (seen.oauth["oauth_token"], seen.query, seen.body) == ("hush-2", {}, b"")
    assert gone.access_token == "hush-2"
    assert "hush" not in repr(gone)


@pytest.mark.rule("AUTH-17", "ERR-01")
async def test_a_token_that_was_invalidated_is_refused_with_its_code(service: ScriptedServer) -> None:
    refusal = Answer({"errors": [{"code": 89, "message": "Invalid or expired token"}]}, 401)
    service.on("GET", "/ads/12/accounts", refusal)

    async with service.session(USER) as session:
        with pytest.raises(Unauthorized) as caught:
            await session.accounts.list().collect()

    assert caught.value.has_code(89)
    assert len(service.requests) == 1  # it is the user's, and nobody can renew it


async def test_a_step_needs_the_credentials_that_sign_it(service: ScriptedServer) -> None:
    async with service.session(BearerToken("mine")) as session:
        with pytest.raises(AccessDenied):
            await session.oauth1.request_token(callback="oob")
        with pytest.raises(AccessDenied):
            await session.oauth1.invalidate_token()


@pytest.mark.rule("AUTH-10")
def test_every_step_needs_https_but_on_loopback() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="base_url")) as caught:
        Endpoints(base_url="http://example.test", ads_url="https://example.test")
    assert caught.value.rule_ids == ("AUTH-10",)
    assert Endpoints(base_url="http://127.0.0.1:1", ads_url="https://example.test").ads_url == "https://example.test"
