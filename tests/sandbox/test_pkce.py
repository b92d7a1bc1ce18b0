"""OAuth 2.0 with scopes: the authorization code with PKCE, refreshing, revoking, and what scopes allow."""

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from requests_oauthlib import OAuth2Session

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock, WrongArgument
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.rendering import Format
from tests.support.browser import Browser
from tests.support.errors import has
from tests.support.raw_client import RawAnswer, RawClient, encode_basic

AUTHORIZE = "/2/oauth2/authorize"
TOKEN = "/2/oauth2/token"
REVOKE = "/2/oauth2/revoke"
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"  # RFC 7636, appendix B, with its challenge
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
DARIO = "1401775033290919936"
SCOPES = "follow.read offline.access"

ObtainCode = Callable[..., str]
ObtainTokens = Callable[..., Awaitable[dict[str, Any]]]
SendForm = Callable[..., Awaitable[RawAnswer]]


def _follows(method: Any, *, scopes: tuple[str, ...]) -> Operation:
    return Operation(
        id=f"probe.{method}",
        method=method,
        path="/2/follows",
        handler=_user,
        limit=None,
        rule="AUTH-26",
        surface="base",
        schemes=("oauth2_user", "oauth1_user"),
        scopes=scopes,
        format=Format.V2,
    )


def _user(call: Call) -> Answer:
    return Answer({"user": call.user, "scheme": call.caller.scheme})


class Probed(Sandbox):
    """A sandbox with calls that need scopes."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        mine = _follows("GET", scopes=("follow.read",)), _follows("POST", scopes=("follow.write",))
        return (*super().operations, *mine)


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Probed(clock=clock, config=config) as running:
        yield running


@pytest.fixture
def question(sandbox: Sandbox) -> dict[str, str]:
    return {
        "response_type": "code",
        "client_id": sandbox.app["client_id"],
        "redirect_uri": sandbox.callback_url,
        "scope": SCOPES,
        "state": "st&te",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }


@pytest.fixture
def client(sandbox: Sandbox) -> str:
    return encode_basic(sandbox.app["client_id"], sandbox.app["client_secret"])


@pytest.fixture
def obtain_code(sandbox: Sandbox, question: dict[str, str]) -> ObtainCode:
    """Let dario, who granted the app nothing with OAuth 1.0a, say yes."""

    def say_yes(user_id: str = DARIO, **changes: str) -> str:
        url = f"{sandbox.base_url}{AUTHORIZE}?{urlencode(question | changes)}"
        return dict(parse_qsl(urlsplit(sandbox.approve_oauth2(url, user_id=user_id)).query))["code"]

    return say_yes


@pytest.fixture
def exchange_code(raw: RawClient, client: str, sandbox: Sandbox) -> SendForm:
    """Exchange a code for tokens; None leaves a field out."""

    async def ask(code: str, *, authorization: str = client, **changes: str | None) -> Any:
        usual = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": sandbox.callback_url,
            "code_verifier": VERIFIER,
        }
        fields = {name: value for name, value in (usual | changes).items() if value is not None}
        return await raw.post_form(TOKEN, fields, authorization=authorization)

    return ask


@pytest.fixture
def obtain_tokens(exchange_code: SendForm, obtain_code: ObtainCode) -> ObtainTokens:
    """Go the whole way and give the answer."""

    async def grant(user_id: str = DARIO, **changes: str) -> dict[str, Any]:
        got: dict[str, Any] = (await exchange_code(obtain_code(user_id, **changes))).json
        return got

    return grant


@pytest.fixture
def refresh(raw: RawClient, client: str) -> SendForm:
    async def ask(token: str, *, authorization: str = client, **more: str) -> Any:
        fields = {"grant_type": "refresh_token", "refresh_token": token, **more}
        return await raw.post_form(TOKEN, fields, authorization=authorization)

    return ask


def parse_error(got: RawAnswer) -> tuple[int, str]:
    return got.status, got.json["error"]


@pytest.mark.rule("AUTH-26")
async def test_the_whole_flow_in_a_browser(
    browser: Browser, raw: RawClient, exchange_code: SendForm, question: Mapping[str, str], sandbox: Sandbox
) -> None:
    shown = await browser.open(AUTHORIZE, question)
    assert shown.status == 200
    assert "<li>follow.read</li>" in shown.text
    assert "Harbour Desk" in shown.text
    back = await browser.click("approve", screen_name="dario")
    assert (back.status, back.location) == (303, sandbox.callback_url)
    assert back.added == {"state": "st&te", "code": back.added["code"]}
    got = await exchange_code(back.added["code"])
    assert (got.status, got.headers["Cache-Control"]) == (200, "no-store")
    assert got.json == {
        "token_type": "bearer",
        "expires_in": 7200,
        "access_token": got.json["access_token"],
        "scope": SCOPES,
        "refresh_token": got.json["refresh_token"],
    }
    follows = await raw.call_with_token("GET", "/2/follows", got.json["access_token"])
    assert follows.json == {"user": DARIO, "scheme": "oauth2_user"}


async def test_a_user_who_denies_is_redirected_with_an_error(browser: Browser, question: Mapping[str, str]) -> None:
    await browser.open(AUTHORIZE, question)
    back = await browser.click("deny", screen_name="")
    assert (back.status, back.added) == (303, {"error": "access_denied", "state": "st&te"})


async def test_a_form_that_was_tampered_with_is_refused(browser: Browser, question: Mapping[str, str]) -> None:
    await browser.open(AUTHORIZE, question)
    assert (await browser.click("approve", screen_name="dario", scope="dm.write")).status == 403
    assert (await browser.click("approve", screen_name="dario", scope="unknown")).added["error"] == "invalid_scope"
    assert "no such user" in (await browser.click("approve", screen_name="nobody")).text


async def test_nobody_is_sent_to_an_address_that_is_not_the_app_s(
    browser: Browser, question: dict[str, str], sandbox: Sandbox, subtests: pytest.Subtests
) -> None:
    for changes in [
        {"client_id": "nobody"},
        {"redirect_uri": "https://elsewhere.example/"},
        {"redirect_uri": "http://127.0.0.1:8399/callback/"},
        {"redirect_uri": "https://pocket.example/back?from=svc"},
        {"client_id": ""},
        {"redirect_uri": ""},
    ]:
        with subtests.test(changes=changes):
            got = await browser.open(AUTHORIZE, question | changes)
            assert (got.status, "Location" in got.headers) == (400, False)
            with pytest.raises(ValueError, match="redirect_uri|client_id"):
                sandbox.approve_oauth2(f"{sandbox.base_url}{AUTHORIZE}?{urlencode(question | changes)}")


async def test_the_refusal_of_an_address_says_where_the_right_one_is(
    browser: Browser, question: dict[str, str]
) -> None:
    got = await browser.open(AUTHORIZE, question | {"redirect_uri": "http://127.0.0.1:9000/callback"})
    assert "Sandbox.callback_url, which `svc-async sandbox` prints as CALLBACK_URL" in got.text


async def test_the_app_receives_the_error_of_an_invalid_authorization_request(
    browser: Browser, question: dict[str, str], sandbox: Sandbox, subtests: pytest.Subtests
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "too-short"}, "invalid_request"),
        ({"code_challenge": CHALLENGE[:-1] + "="}, "invalid_request"),
        ({"state": None}, "invalid_request"),
        ({"scope": "follow.read everything"}, "invalid_scope"),
        ({"scope": None}, "invalid_scope"),
    ]
    for changes, expected in wrong:
        with subtests.test(changes=changes, expected=expected):
            asked = {name: value for name, value in (question | changes).items() if value is not None}
            got = await browser.open(AUTHORIZE, asked)
            assert (got.status, got.location, got.added["error"]) == (303, sandbox.callback_url, expected)
            assert got.added.get("state") == asked.get("state")
            headless = sandbox.approve_oauth2(f"{sandbox.base_url}{AUTHORIZE}?{urlencode(asked)}")
            assert headless == got.headers["Location"]


async def test_an_exchange_that_is_wrong_is_refused(
    exchange_code: SendForm, obtain_code: ObtainCode, subtests: pytest.Subtests
) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"code_verifier": VERIFIER[:-1] + "j"}, "invalid_grant"),
        ({"code_verifier": CHALLENGE}, "invalid_grant"),
        ({"code_verifier": "short"}, "invalid_request"),
        ({"code_verifier": "a" * 129}, "invalid_request"),
        ({"code_verifier": "ö" * 50}, "invalid_request"),
        ({"code_verifier": None}, "invalid_request"),
        ({"redirect_uri": "https://desk.example/oauth/callback"}, "invalid_grant"),
        ({"redirect_uri": None}, "invalid_request"),
        ({"code": "unknown"}, "invalid_grant"),
        ({"code": None}, "invalid_request"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": None}, "invalid_request"),
        ({"more": "x"}, "invalid_request"),
    ]
    for changes, expected in wrong:
        with subtests.test(changes=changes, expected=expected):
            got = await exchange_code(**{"code": obtain_code(), **changes})
            assert parse_error(got) == (400, expected)
            assert got.json.keys() == {"error", "error_description"}


@pytest.mark.parametrize("path", [TOKEN, REVOKE])
async def test_a_client_says_who_it_is(raw: RawClient, sandbox: Sandbox, path: str) -> None:
    client_id, secret = sandbox.app["client_id"], sandbox.app["client_secret"]
    fields = {"grant_type": "refresh_token", "refresh_token": "x"} if path == TOKEN else {"token": "x"}
    tries = [
        (encode_basic(client_id, "wrong"), {}),
        (encode_basic("nobody", secret), {}),
        (encode_basic(sandbox.app["consumer_key"], sandbox.app["consumer_secret"]), {}),
        (encode_basic(client_id, secret), {"client_id": "another"}),
        ("", {"client_id": client_id}),  # it has a secret and must show it
        ("", {}),
        (encode_basic(sandbox.public_app["client_id"], ""), {}),  # it has none and must not
    ]
    for authorization, more in tries:
        got = await raw.post_form(path, fields | more, authorization=authorization)
        assert parse_error(got) == (401, "invalid_client")
        assert got.headers["WWW-Authenticate"] == "Basic"
    in_form = await raw.post_form(path, fields | {"client_id": client_id, "client_secret": secret}, authorization="")
    assert parse_error(in_form) == (401, "invalid_client")


async def test_the_calls_of_a_client_take_forms_only(raw: RawClient, client: str) -> None:
    got = await raw.post_form(TOKEN, {}, authorization=client, **{"Content-Type": "application/json"})
    assert parse_error(got) == (400, "invalid_request")
    got = await raw.post_form(TOKEN, {"grant_type": "x"}, authorization=client, **{"Content-Type": "application/json"})
    assert parse_error(got) == (400, "invalid_request")


async def test_a_public_client_has_no_secret(
    raw: RawClient, sandbox: Sandbox, obtain_code: ObtainCode, exchange_code: SendForm
) -> None:
    assert sandbox.public_app.keys() == {"consumer_key", "consumer_secret", "client_id"}
    client_id, uri = sandbox.public_app["client_id"], "harbourpocket://signed-in"
    code = obtain_code(client_id=client_id, redirect_uri=uri)
    assert parse_error(await exchange_code(code, redirect_uri=uri)) == (400, "invalid_grant")  # another client's
    got = await exchange_code(code, authorization="", redirect_uri=uri, client_id=client_id)
    assert got.status == 200
    fields = {"grant_type": "refresh_token", "refresh_token": got.json["refresh_token"], "client_id": client_id}
    assert (await raw.post_form(TOKEN, fields, authorization="")).status == 200


async def test_a_code_is_valid_once_and_its_second_use_revokes_the_grant(
    raw: RawClient, exchange_code: SendForm, refresh: SendForm, obtain_code: ObtainCode
) -> None:
    code = obtain_code()
    first = (await exchange_code(code)).json
    assert parse_error(await exchange_code(code)) == (400, "invalid_grant")
    assert (await raw.call_with_token("GET", "/2/follows", first["access_token"])).status == 401
    assert parse_error(await refresh(first["refresh_token"])) == (400, "invalid_grant")


async def test_a_code_and_a_token_expire(
    sandbox: Any, raw: RawClient, exchange_code: SendForm, obtain_code: ObtainCode
) -> None:
    code, late = obtain_code(), obtain_code()
    await sandbox.clock.advance(seconds=29)
    token = (await exchange_code(code)).json["access_token"]
    await sandbox.clock.advance(seconds=1)
    assert parse_error(await exchange_code(late)) == (400, "invalid_grant")
    await sandbox.clock.advance(seconds=7198)
    assert (await raw.call_with_token("GET", "/2/follows", token)).status == 200
    await sandbox.clock.advance(seconds=1)
    got = await raw.call_with_token("GET", "/2/follows", token)
    assert (got.status, got.json["errors"][0]["code"], got.rule) == (401, 89, "ERR-01")


async def test_refreshing_rotates(raw: RawClient, refresh: SendForm, obtain_tokens: ObtainTokens) -> None:
    first = await obtain_tokens()
    second = (await refresh(first["refresh_token"])).json
    assert second.keys() == first.keys()
    assert second["scope"] == SCOPES
    assert second["access_token"] != first["access_token"]
    assert second["refresh_token"] != first["refresh_token"]
    assert (await raw.call_with_token("GET", "/2/follows", second["access_token"])).status == 200


async def test_an_old_refresh_token_revokes_the_family(
    raw: RawClient, refresh: SendForm, obtain_tokens: ObtainTokens
) -> None:
    first, untouched = await obtain_tokens(), await obtain_tokens()
    second = (await refresh(first["refresh_token"])).json
    assert parse_error(await refresh(first["refresh_token"])) == (400, "invalid_grant")
    assert parse_error(await refresh(second["refresh_token"])) == (400, "invalid_grant")
    for token in (first["access_token"], second["access_token"]):
        assert (await raw.call_with_token("GET", "/2/follows", token)).status == 401
    assert (await raw.call_with_token("GET", "/2/follows", untouched["access_token"])).status == 200


async def test_a_refresh_may_ask_for_less_and_not_for_more(
    raw: RawClient, refresh: SendForm, obtain_tokens: ObtainTokens
) -> None:
    got = await obtain_tokens(scope=f"{SCOPES} follow.write")
    less = (await refresh(got["refresh_token"], scope="follow.write")).json
    assert less["scope"] == "follow.write"
    assert (await raw.call_with_token("GET", "/2/follows", less["access_token"])).status == 403
    more = await refresh(less["refresh_token"], scope="follow.read dm.read")
    assert parse_error(more) == (400, "invalid_scope")
    assert (await refresh(less["refresh_token"])).json["scope"] == f"{SCOPES} follow.write"


async def test_without_offline_access_there_is_nothing_to_refresh(obtain_tokens: ObtainTokens) -> None:
    assert "refresh_token" not in await obtain_tokens(scope="follow.read")


async def test_revoking(raw: RawClient, refresh: SendForm, obtain_tokens: ObtainTokens, client: str) -> None:
    first, second = await obtain_tokens(), await obtain_tokens()
    got = await raw.post_form(REVOKE, {"token": first["access_token"]}, authorization=client)
    assert (got.status, got.json) == (200, {"revoked": True})
    assert (await raw.call_with_token("GET", "/2/follows", first["access_token"])).status == 401
    assert (await refresh(first["refresh_token"])).status == 200
    fields = {"token": second["refresh_token"], "token_type_hint": "refresh_token"}
    assert (await raw.post_form(REVOKE, fields, authorization=client)).status == 200
    assert (await raw.call_with_token("GET", "/2/follows", second["access_token"])).status == 401
    assert parse_error(await refresh(second["refresh_token"])) == (400, "invalid_grant")
    assert (await raw.post_form(REVOKE, {"token": "unknown"}, authorization=client)).status == 200
    assert parse_error(await raw.post_form(REVOKE, {}, authorization=client)) == (400, "invalid_request")


async def test_another_client_revokes_and_refreshes_nothing(
    raw: RawClient, sandbox: Sandbox, obtain_tokens: ObtainTokens
) -> None:
    token = await obtain_tokens()
    public = {"client_id": sandbox.public_app["client_id"]}
    for name in ("access_token", "refresh_token"):
        got = await raw.post_form(REVOKE, {"token": token[name], **public}, authorization="")
        assert got.status == 200
    stolen = {"grant_type": "refresh_token", "refresh_token": token["refresh_token"], **public}
    assert parse_error(await raw.post_form(TOKEN, stolen, authorization="")) == (400, "invalid_grant")
    assert (await raw.call_with_token("GET", "/2/follows", token["access_token"])).status == 200


@pytest.mark.rule("AUTH-26")
async def test_a_scope_allows_what_it_names_and_no_more(raw: RawClient, obtain_tokens: ObtainTokens) -> None:
    token = (await obtain_tokens())["access_token"]
    assert (await raw.call_with_token("GET", "/2/follows", token)).status == 200
    got = await raw.call_with_token("POST", "/2/follows", token)
    assert (got.status, got.rule) == (403, "AUTH-26")
    assert got.failure[0] == "INSUFFICIENT_SCOPE"


@pytest.mark.parametrize(
    ("config", "status"),
    [(SandboxConfig(), 403), (SandboxConfig(scoped_activity=True), 200)],
    ids=["default", "scoped"],
)
async def test_whether_the_activity_calls_take_scoped_tokens_is_a_setting(
    raw: RawClient, obtain_tokens: ObtainTokens, status: int
) -> None:
    token = (await obtain_tokens())["access_token"]
    assert (await raw.call_with_token("GET", "/2/activity/subscriptions", token)).status == status
    assert (await raw.call_with_token("GET", "/2/webhooks", token)).status == 403  # AUTH-25


async def test_a_test_may_invalidate_an_access_token_which_is_then_refreshed(
    raw: RawClient, sandbox: Sandbox, refresh: SendForm, obtain_tokens: ObtainTokens
) -> None:
    tokens = await obtain_tokens()
    sandbox.invalidate(tokens["access_token"])
    assert (await raw.call_with_token("GET", "/2/follows", tokens["access_token"])).status == 401
    renewed = await refresh(tokens["refresh_token"])
    assert (await raw.call_with_token("GET", "/2/follows", renewed.json["access_token"])).status == 200
    with pytest.raises(WrongArgument, check=has(parameter="token")):
        sandbox.invalidate("hush-1")


@pytest.mark.rule("AUTH-26b")
async def test_permissions_of_oauth_1_override_scopes(
    raw: RawClient, sandbox: Sandbox, obtain_tokens: ObtainTokens
) -> None:
    write = (await obtain_tokens(sandbox.user_id, scope="users.read"))["access_token"]
    assert (await raw.call_with_token("POST", "/2/follows", write)).status == 200  # anna granted all with OAuth 1.0a
    sandbox.invalidate(sandbox.credentials["token"])
    assert (await raw.call_with_token("POST", "/2/follows", write)).status == 403
    assert (await raw.call_with_token("GET", "/2/follows", write)).status == 403
    query = {"svc_auth_access_type": "read"}
    app = {name: sandbox.app[name] for name in ("consumer_key", "consumer_secret")}
    asked = await raw.call_signed("POST", "/oauth/request_token", query, credentials=app, oauth_callback="oob")
    token = {**app, "token": asked.form["oauth_token"], "token_secret": asked.form["oauth_token_secret"]}
    pin = sandbox.approve(token["token"])
    await raw.call_signed("POST", "/oauth/access_token", credentials=token, oauth_verifier=pin)
    scopes = "follow.read follow.write"
    read = (await obtain_tokens(sandbox.user_id, scope=scopes))["access_token"]
    assert (await raw.call_with_token("GET", "/2/follows", read)).status == 200
    refused = await raw.call_with_token("POST", "/2/follows", read)
    assert (refused.status, refused.json["errors"][0]["code"]) == (403, 220)


@pytest.mark.rule("AUTH-26")
async def test_another_client_walks_the_whole_flow(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")
    assert await asyncio.to_thread(_walk, sandbox) == [200, 200, 401]


def _walk(sandbox: Sandbox) -> list[int]:
    app = sandbox.app
    with OAuth2Session(app["client_id"], redirect_uri=sandbox.callback_url, scope=SCOPES.split(), pkce="S256") as user:
        page, _ = user.authorization_url(f"{sandbox.base_url}{AUTHORIZE}")
        back = sandbox.approve_oauth2(page, user_id=DARIO)
        secret = (app["client_id"], app["client_secret"])
        token = user.fetch_token(f"{sandbox.base_url}{TOKEN}", authorization_response=back, auth=secret)
        first = user.get(f"{sandbox.base_url}/2/follows")
        user.refresh_token(f"{sandbox.base_url}{TOKEN}", auth=secret)
        second = user.get(f"{sandbox.base_url}/2/follows")
        user.post(f"{sandbox.base_url}{REVOKE}", data={"token": user.token["refresh_token"]}, auth=secret)
        third = user.get(f"{sandbox.base_url}/2/follows")
    assert token["scope"] == SCOPES.split()
    return [answer.status_code for answer in (first, second, third)]


def test_the_vector_of_rfc_7636_is_the_one_that_is_used_here() -> None:
    digest = hashlib.sha256(VERIFIER.encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == CHALLENGE
