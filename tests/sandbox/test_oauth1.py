"""OAuth 1.0a in three steps, request by request."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest
import requests
from requests_oauthlib import OAuth1

from svc_async.sandbox import Sandbox, SandboxConfig
from tests.support.browser import Browser
from tests.support.raw_client import RawAnswer, RawClient, sign_oauth

REQUEST = "/oauth/request_token"
ACCESS = "/oauth/access_token"
INVALIDATE = "/1.1/oauth/invalidate_token"
EXPIRED = {"errors": [{"code": 89, "message": "Invalid or expired token"}]}

AskToken = Callable[..., Awaitable[dict[str, str]]]
ExchangeToken = Callable[[Mapping[str, str], str], Awaitable[dict[str, str]]]


def list_codes(got: RawAnswer) -> list[int]:
    return [error["code"] for error in got.json["errors"]]


@pytest.fixture
def app(sandbox: Sandbox) -> Mapping[str, str]:
    return {name: sandbox.app[name] for name in ("consumer_key", "consumer_secret")}


@pytest.fixture
def ask_token(raw: RawClient, app: Mapping[str, str]) -> AskToken:
    """Ask for a request token."""

    async def ask(callback: str = "oob", query: Mapping[str, str] | None = None) -> dict[str, str]:
        got = await raw.call_signed("POST", REQUEST, query, credentials=app, oauth_callback=callback)
        assert got.status == 200
        form: dict[str, str] = got.form
        return {**app, "token": form["oauth_token"], "token_secret": form["oauth_token_secret"]}

    return ask


@pytest.fixture
def exchange_token(raw: RawClient, app: Mapping[str, str]) -> ExchangeToken:
    """Exchange an approved request token for what a user signs with."""

    async def exchange(token: Mapping[str, str], verifier: str) -> dict[str, str]:
        got = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=verifier)
        assert got.status == 200
        return {**app, "token": got.form["oauth_token"], "token_secret": got.form["oauth_token_secret"]}

    return exchange


@pytest.mark.rule("AUTH-01", "AUTH-01e", "AUTH-08")
async def test_a_request_token_comes_form_encoded(raw: RawClient, app: Mapping[str, str]) -> None:
    got = await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob")
    assert (got.status, got.rule, got.basis) == (200, "AUTH-08", "spec")
    assert got.headers["Content-Type"].startswith("application/x-www-form-urlencoded")
    assert got.form.keys() == {"oauth_token", "oauth_token_secret", "oauth_callback_confirmed"}
    assert got.form["oauth_callback_confirmed"] == "true"


@pytest.mark.rule("AUTH-02")
async def test_the_callback_is_sent_every_time(raw: RawClient, app: Mapping[str, str]) -> None:
    got = await raw.call_signed("POST", REQUEST, credentials=app)
    assert (got.status, list_codes(got), got.rule) == (400, [38], "AUTH-02")
    assert "oauth_callback" in got.json["errors"][0]["message"]


@pytest.mark.rule("AUTH-04")
async def test_a_callback_that_is_not_configured_is_refused(
    raw: RawClient, app: Mapping[str, str], subtests: pytest.Subtests
) -> None:
    for callback in [
        "https://elsewhere.example/",
        "https://desk.example/oauth/callback/",
        "https://desk.example/oauth/callback?more=1",
        "http://desk.example/oauth/callback",
        "otherdesk://signed-in",
    ]:
        with subtests.test(callback=callback):
            got = await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback=callback)
            assert (got.status, list_codes(got), got.rule) == (403, [415], "AUTH-04")
            assert "`svc-async sandbox` prints as CALLBACK_URL" in got.json["errors"][0]["message"]


@pytest.mark.rule("AUTH-01b", "AUTH-01c")
async def test_each_parameter_of_the_header_is_needed(
    raw: RawClient, app: Mapping[str, str], subtests: pytest.Subtests
) -> None:
    for name in ["oauth_consumer_key", "oauth_nonce", "oauth_signature_method", "oauth_timestamp", "oauth_version"]:
        with subtests.test(name=name):
            got = await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob", **{name: ""})
            assert (got.status, list_codes(got)) == (401, [32])
            assert name in got.json["errors"][0]["message"]


@pytest.mark.rule("AUTH-06", "AUTH-01c")
async def test_a_header_that_is_wrong_is_refused(
    raw: RawClient, app: Mapping[str, str], subtests: pytest.Subtests
) -> None:
    for changes, rule in [
        ({"oauth_nonce": "nönce"}, "AUTH-06"),
        ({"oauth_signature_method": "PLAINTEXT"}, "AUTH-01c"),
        ({"oauth_version": "1.1"}, "AUTH-01c"),
        ({"oauth_timestamp": "yesterday"}, "AUTH-01b"),
        ({"oauth_consumer_key": "nobody"}, "ASM-75"),
        ({"oauth_timestamp": "1000000000"}, "ASM-10"),
    ]:
        with subtests.test(changes=changes, rule=rule):
            got = await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob", **changes)
            assert (got.status, list_codes(got), got.rule) == (401, [32], rule)


@pytest.mark.rule("AUTH-01e")
async def test_a_user_s_token_does_not_sign_the_first_step(raw: RawClient, sandbox: Sandbox) -> None:
    got = await raw.call_signed("POST", REQUEST, credentials=sandbox.credentials, oauth_callback="oob")
    assert (got.status, list_codes(got), got.rule) == (401, [32], "AUTH-01e")


@pytest.mark.rule("AUTH-01")
async def test_a_nonce_is_valid_once(raw: RawClient, app: Mapping[str, str]) -> None:
    statuses = [
        (await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob", oauth_nonce="same")).status
        for _ in range(2)
    ]
    assert statuses == [200, 401]


@pytest.mark.rule("AUTH-01")
async def test_another_secret_or_none_is_refused(raw: RawClient, sandbox: Sandbox, app: Mapping[str, str]) -> None:
    wrong = {**app, "consumer_secret": "wrong"}
    got = await raw.call_signed("POST", REQUEST, credentials=wrong, oauth_callback="oob")
    assert (got.status, list_codes(got), got.rule) == (401, [32], "ASM-75")
    unsigned = await raw("POST", REQUEST, base=sandbox.base_url, authorization="")
    assert (unsigned.status, list_codes(unsigned), unsigned.rule) == (401, [32], "AUTH-01f")


@pytest.mark.rule("AUTH-01d")
async def test_the_body_of_the_first_step_is_empty(raw: RawClient, app: Mapping[str, str]) -> None:
    url = f"{raw.sandbox.base_url}{REQUEST}"
    protocol = raw.make_protocol(oauth_token=None, oauth_callback="oob")
    got = await raw(
        "POST",
        REQUEST,
        base=raw.sandbox.base_url,
        data=b"x",
        authorization=sign_oauth("POST", url, app, protocol),
    )
    assert (got.status, list_codes(got)) == (400, [44])


@pytest.mark.rule("AUTH-07")
async def test_the_access_type_is_read_or_write(
    raw: RawClient, app: Mapping[str, str], subtests: pytest.Subtests
) -> None:
    for value, status in [("read", 200), ("write", 200), ("admin", 400), ("", 400)]:
        with subtests.test(value=value, status=status):
            query = {"svc_auth_access_type": value}
            assert (
                await raw.call_signed("POST", REQUEST, query, credentials=app, oauth_callback="oob")
            ).status == status
            in_header = await raw.call_signed(
                "POST", REQUEST, credentials=app, oauth_callback="oob", svc_auth_access_type="read"
            )
            assert (in_header.status, in_header.rule) == (400, "ASM-82")


@pytest.mark.rule("AUTH-09")
async def test_request_tokens_are_rate_limited(raw: RawClient, app: Mapping[str, str]) -> None:
    for left in range(14, -1, -1):
        got = await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob")
        assert (got.status, got.headers["x-rate-limit-remaining"]) == (200, str(left))
    got = await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob")
    assert (got.status, list_codes(got), got.rule) == (429, [88], "AUTH-09")
    await raw.clock.advance(minutes=15)
    assert (await raw.call_signed("POST", REQUEST, credentials=app, oauth_callback="oob")).status == 200


@pytest.mark.rule("AUTH-12", "AUTH-12d", "AUTH-12e", "AUTH-14", "AUTH-14c", "AUTH-14d", "AUTH-19")
async def test_the_three_steps_with_a_callback(
    raw: RawClient, browser: Browser, ask_token: AskToken, sandbox: Sandbox
) -> None:
    callback = sandbox.callback_url
    token = await ask_token(callback)
    shown = await browser.open("/oauth/authorize", {"oauth_token": token["token"], "screen_name": "bruno"})
    assert shown.status == 200
    assert browser.page.fields["screen_name"] == "bruno"
    back = await browser.click("approve")
    assert (back.status, back.location) == (303, callback)
    assert back.added.keys() == {"oauth_token", "oauth_verifier"}
    assert back.added["oauth_token"] == token["token"]
    got = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=back.added["oauth_verifier"])
    assert (got.status, got.rule) == (200, "AUTH-14d")
    assert got.form["user_id"] == "913311844217532416"
    assert got.form["screen_name"] == "bruno"
    assert got.form["oauth_token"] == sandbox.other_credentials["token"]
    assert got.form["oauth_token_secret"] == sandbox.other_credentials["token_secret"]
    raw.credentials = sandbox.other_credentials
    accounts = await raw("GET", "/12/accounts")
    assert [account["name"] for account in accounts.data] == ["Northern Trails"]


@pytest.mark.rule("AUTH-03", "AUTH-14c")
async def test_out_of_band_a_page_shows_the_pin(
    raw: RawClient, browser: Browser, ask_token: AskToken, sandbox: Sandbox
) -> None:
    token = await ask_token("oob")
    await browser.open("/oauth/authorize", {"oauth_token": token["token"]})
    page = await browser.click("approve", screen_name="anna")
    pin = page.text.partition("<output>")[2].partition("</output>")[0]
    assert page.status == 200
    assert pin.isdecimal()
    got = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=pin)
    assert got.form["oauth_token"] == sandbox.credentials["token"]


@pytest.mark.rule("AUTH-05")
async def test_a_custom_scheme_is_a_callback_too(browser: Browser, ask_token: AskToken) -> None:
    token = await ask_token("harbourdesk://signed-in")
    await browser.open("/oauth/authorize", {"oauth_token": token["token"]})
    back = await browser.click("approve", screen_name="anna")
    assert back.location == "harbourdesk://signed-in"


async def test_what_a_callback_has_in_its_query_stays(raw: RawClient, browser: Browser, sandbox: Sandbox) -> None:
    callback = "https://pocket.example/back?from=svc"
    got = await raw.call_signed("POST", REQUEST, credentials=sandbox.public_app, oauth_callback=callback)
    await browser.open("/oauth/authorize", {"oauth_token": got.form["oauth_token"]})
    back = await browser.click("approve", screen_name="anna")
    assert back.added.keys() == {"from", "oauth_token", "oauth_verifier"}


async def test_a_user_who_denies_is_redirected_without_a_verifier(
    raw: RawClient, browser: Browser, ask_token: AskToken, sandbox: Sandbox
) -> None:
    token = await ask_token(sandbox.callback_url)
    await browser.open("/oauth/authorize", {"oauth_token": token["token"]})
    back = await browser.click("deny", screen_name="")
    assert (back.status, back.added) == (303, {"denied": token["token"]})
    assert (await browser.open("/oauth/authorize", {"oauth_token": token["token"]})).status == 401
    got = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier="x")
    assert (got.status, got.json) == (401, EXPIRED)
    token = await ask_token("oob")
    await browser.open("/oauth/authorize", {"oauth_token": token["token"]})
    assert "not let in" in (await browser.click("deny")).text


@pytest.mark.rule("AUTH-12", "AUTH-13e")
@pytest.mark.parametrize("path", ["/oauth/authorize", "/oauth/authenticate"])
async def test_a_page_needs_a_request_token_that_is_good(
    browser: Browser, ask_token: AskToken, sandbox: Sandbox, path: str
) -> None:
    assert (await browser.open(path)).status == 400
    unknown = await browser.open(path, {"oauth_token": "unknown"})
    assert (unknown.status, unknown.headers["Content-Type"]) == (401, "text/html;charset=utf-8")
    token = await ask_token(sandbox.callback_url)
    sandbox.approve(token["token"])
    assert (await browser.open(path, {"oauth_token": token["token"]})).status == 401
    late = await ask_token(sandbox.callback_url)
    await sandbox.clock.advance(minutes=15)  # type: ignore[union-attr]  # the fixture's clock is virtual
    assert (await browser.open(path, {"oauth_token": late["token"]})).status == 401


@pytest.mark.rule("AUTH-12b")
@pytest.mark.parametrize("path", ["/oauth/authorize", "/oauth/authenticate"])
async def test_no_page_takes_the_callback(browser: Browser, ask_token: AskToken, path: str) -> None:
    token = await ask_token("https://desk.example/oauth/callback")
    query = {"oauth_token": token["token"], "oauth_callback": "https://desk.example/oauth/callback"}
    got = await browser.open(path, query)
    assert got.status == 400
    assert "oauth_callback" in got.text


@pytest.mark.rule("AUTH-13", "AUTH-13d")
async def test_a_user_who_granted_access_before_is_redirected_at_once(
    browser: Browser, ask_token: AskToken, sandbox: Sandbox
) -> None:
    token = await ask_token(sandbox.callback_url)
    shown = await browser.open("/oauth/authenticate", {"oauth_token": token["token"]})
    assert shown.status == 200  # nobody is logged in yet
    await browser.click("approve", screen_name="anna")
    token = await ask_token(sandbox.callback_url)
    back = await browser.open("/oauth/authenticate", {"oauth_token": token["token"]})
    assert (back.status, back.location) == (303, sandbox.callback_url)
    assert back.added["oauth_token"] == token["token"]


async def test_the_authorize_page_asks_every_time(browser: Browser, ask_token: AskToken, sandbox: Sandbox) -> None:
    for _ in range(2):
        token = await ask_token(sandbox.callback_url)
        assert (await browser.open("/oauth/authorize", {"oauth_token": token["token"]})).status == 200
        await browser.click("approve", screen_name="anna")


@pytest.mark.rule("AUTH-13")
async def test_a_user_who_granted_less_before_is_asked(
    browser: Browser, ask_token: AskToken, exchange_token: ExchangeToken, sandbox: Sandbox
) -> None:
    read = {"svc_auth_access_type": "read"}
    token = await ask_token(sandbox.callback_url, read)
    await browser.open("/oauth/authenticate", {"oauth_token": token["token"]})
    back = await browser.click("approve", screen_name="dario")
    await exchange_token(token, back.added["oauth_verifier"])
    again, more = await ask_token(sandbox.callback_url, read), await ask_token(sandbox.callback_url)
    assert (await browser.open("/oauth/authenticate", {"oauth_token": more["token"]})).status == 200
    assert (await browser.open("/oauth/authenticate", {"oauth_token": again["token"]})).status == 303


@pytest.mark.rule("AUTH-13b")
async def test_without_the_sign_in_setting_every_user_is_asked(
    raw: RawClient, browser: Browser, sandbox: Sandbox
) -> None:
    for _ in range(2):
        callback = "harbourpocket://signed-in"
        got = await raw.call_signed("POST", REQUEST, credentials=sandbox.public_app, oauth_callback=callback)
        assert (await browser.open("/oauth/authenticate", {"oauth_token": got.form["oauth_token"]})).status == 200
        back = await browser.click("approve", screen_name="anna")
        token = {**sandbox.public_app, "token": got.form["oauth_token"], "token_secret": got.form["oauth_token_secret"]}
        await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=back.added["oauth_verifier"])


@pytest.mark.rule("AUTH-13f")
async def test_authenticate_is_for_callbacks_only(browser: Browser, ask_token: AskToken) -> None:
    token = await ask_token("oob")
    got = await browser.open("/oauth/authenticate", {"oauth_token": token["token"]})
    assert (got.status, got.rule) == (403, "AUTH-13f")


@pytest.mark.rule("AUTH-12c", "AUTH-13d", "AUTH-12d")
@pytest.mark.parametrize("path", ["/oauth/authorize", "/oauth/authenticate"])
async def test_force_login_asks_for_the_user(
    browser: Browser, ask_token: AskToken, sandbox: Sandbox, path: str
) -> None:
    token = await ask_token(sandbox.callback_url)
    await browser.open(path, {"oauth_token": token["token"]})
    await browser.click("approve", screen_name="anna")
    token = await ask_token(sandbox.callback_url)
    query = {"oauth_token": token["token"], "force_login": "true", "screen_name": "bruno"}
    assert (await browser.open(path, query)).status == 200
    assert browser.page.fields["screen_name"] == "bruno"
    assert "There is no such user" in (await browser.click("approve", screen_name="")).text
    assert "There is no such user" in (await browser.click("approve", screen_name="nobody")).text
    assert (await browser.click("approve", screen_name="@bruno")).status == 303


@pytest.mark.rule("AUTH-13d")
async def test_a_logged_in_user_needs_no_name(
    raw: RawClient, browser: Browser, ask_token: AskToken, sandbox: Sandbox
) -> None:
    token = await ask_token(sandbox.callback_url)
    await browser.open("/oauth/authorize", {"oauth_token": token["token"]})
    await browser.click("approve", screen_name="carla")
    token = await ask_token(sandbox.callback_url)
    query = {"oauth_token": token["token"], "force_login": "false"}
    assert "You are @carla" in (await browser.open("/oauth/authorize", query)).text
    assert "screen_name" not in browser.page.fields
    back = await browser.click("approve")
    got = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=back.added["oauth_verifier"])
    assert got.form["screen_name"] == "carla"


async def test_the_page_is_small_and_has_nothing_from_elsewhere(browser: Browser, ask_token: AskToken) -> None:
    token = await ask_token("oob")
    query = {"oauth_token": token["token"], "screen_name": '"><script>'}
    shown = await browser.open("/oauth/authorize", query)
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in shown.headers["Content-Security-Policy"]
    assert shown.headers["Cache-Control"] == "no-store"
    assert '<html lang="en">' in shown.text
    assert '<label for="screen_name">' in shown.text
    assert ("<script" in shown.text, "http" in shown.text, "src=" in shown.text) == (False, False, False)
    assert browser.page.fields["screen_name"] == '"><script>'
    assert browser.page.buttons == [("decision", "approve"), ("decision", "deny")]
    assert "HttpOnly; SameSite=Lax" in shown.headers["Set-Cookie"]


async def test_a_form_from_elsewhere_is_refused(raw: RawClient, browser: Browser, ask_token: AskToken) -> None:
    first, second = await ask_token("oob"), await ask_token("oob")
    await browser.open("/oauth/authorize", {"oauth_token": first["token"]})
    fields = {**browser.page.fields, "decision": "approve", "screen_name": "anna"}
    refused = [
        await raw.post_form("/oauth/authorize", fields),  # another browser
        await browser.click("approve", seal="0" * 64, screen_name="anna"),
        await browser.click("approve", oauth_token=second["token"], screen_name="anna"),
        await browser.click("approve", headers={"Origin": "https://elsewhere.example"}, screen_name="anna"),
        await browser.click("deny", headers={"Origin": "null"}),
    ]
    assert [got.status for got in refused] == [403] * 5
    assert raw.sandbox.requests[-1].headers["cookie"] == "***"
    origin = browser.sandbox.base_url
    assert (await browser.click("approve", headers={"Origin": origin}, screen_name="anna")).status == 200
    assert (await raw.post_form("/oauth/authorize", fields, Cookie='svc_sandbox_session="')).status == 401


@pytest.mark.rule("AUTH-14b")
async def test_the_verifier_is_strictly_enforced(raw: RawClient, ask_token: AskToken, sandbox: Sandbox) -> None:
    token = await ask_token()
    early = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier="1234567")
    assert (early.status, list_codes(early), early.rule) == (401, [32], "ASM-76")
    pin = sandbox.approve(token["token"])
    for wrong in ({}, {"oauth_verifier": "wrong"}, {"oauth_verifier": ""}, {"oauth_verifier": f"{pin}0"}):
        got = await raw.call_signed("POST", ACCESS, credentials=token, **wrong)
        assert got.status in (400, 401)
    assert (await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=pin)).status == 200


async def test_the_verifier_may_be_in_the_query_or_the_form(
    raw: RawClient, ask_token: AskToken, sandbox: Sandbox
) -> None:
    token = await ask_token()
    query = {"oauth_verifier": sandbox.approve(token["token"])}
    assert (await raw.call_signed("POST", ACCESS, query, credentials=token)).status == 200
    token = await ask_token()
    signed = OAuth1(
        token["consumer_key"],
        token["consumer_secret"],
        token["token"],
        token["token_secret"],
        timestamp=str(int(sandbox.clock.now().timestamp())),
    )
    form = {"oauth_verifier": sandbox.approve(token["token"])}
    got = await asyncio.to_thread(requests.post, f"{sandbox.base_url}{ACCESS}", form, auth=signed, timeout=10)
    assert got.status_code == 200


@pytest.mark.rule("AUTH-14")
async def test_a_request_token_is_valid_once_and_expires(raw: RawClient, ask_token: AskToken, sandbox: Sandbox) -> None:
    token, late = await ask_token(), await ask_token()
    pin, late_pin = sandbox.approve(token["token"]), sandbox.approve(late["token"])
    assert (await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=pin)).status == 200
    again = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=pin)
    await raw.clock.advance(minutes=15)
    too_late = await raw.call_signed("POST", ACCESS, credentials=late, oauth_verifier=late_pin)
    for got in (again, too_late):
        assert (got.status, got.json) == (401, EXPIRED)


@pytest.mark.rule("AUTH-14")
async def test_another_token_or_another_app_gets_nothing(raw: RawClient, ask_token: AskToken, sandbox: Sandbox) -> None:
    token = await ask_token()
    pin = sandbox.approve(token["token"])
    other = {**token, **{name: sandbox.public_app[name] for name in ("consumer_key", "consumer_secret")}}
    for credentials in (other, {**token, "token": "unknown"}, sandbox.credentials):
        got = await raw.call_signed("POST", ACCESS, credentials=credentials, oauth_verifier=pin)
        assert (got.status, got.json) == (401, EXPIRED)
    wrong = {**token, "token_secret": "wrong"}
    assert list_codes(await raw.call_signed("POST", ACCESS, credentials=wrong, oauth_verifier=pin)) == [32]


async def test_a_user_s_token_is_the_same_until_it_is_invalidated(
    ask_token: AskToken, exchange_token: ExchangeToken, sandbox: Sandbox
) -> None:
    tokens = []
    for _ in range(2):
        token = await ask_token()
        tokens.append(await exchange_token(token, sandbox.approve(token["token"], user_id="1401775033290919936")))
    assert tokens[0] == tokens[1]
    assert tokens[0]["token"].startswith("1401775033290919936-")


@pytest.mark.rule("AUTH-16", "AUTH-16b", "AUTH-17", "AUTH-18", "ERR-01", "VER-02")
async def test_an_invalidated_token_is_refused_everywhere_and_another_is_issued(
    raw: RawClient, ask_token: AskToken, exchange_token: ExchangeToken, sandbox: Sandbox
) -> None:
    old = dict(sandbox.credentials)
    got = await raw.call_signed("POST", INVALIDATE, credentials=old)
    assert (got.status, got.json, got.rule) == (200, {"access_token": old["token"]}, "AUTH-16b")
    again = await raw.call_signed("POST", INVALIDATE, credentials=old)
    on_ads = await raw("GET", "/12/accounts")
    for refused in (again, on_ads):
        assert (refused.status, refused.json, refused.rule) == (401, EXPIRED, "ERR-01")
    token = await ask_token()
    new = await exchange_token(token, sandbox.approve(token["token"]))
    assert new["token"] != old["token"]
    raw.credentials = new
    assert (await raw("GET", "/12/accounts")).status == 200
    raw.credentials = old
    assert (await raw("GET", "/12/accounts")).json == EXPIRED


@pytest.mark.rule("AUTH-16")
async def test_invalidating_takes_nothing_else(raw: RawClient, sandbox: Sandbox) -> None:
    got = await raw.call_signed("POST", INVALIDATE, {"access_token": "x"}, credentials=sandbox.credentials)
    assert (got.status, list_codes(got)) == (400, [44])
    consumer = {name: sandbox.app[name] for name in ("consumer_key", "consumer_secret")}
    assert list_codes(await raw.call_signed("POST", INVALIDATE, credentials=consumer)) == [32]
    bearer = await raw("POST", INVALIDATE, base=sandbox.base_url, authorization="Bearer AAAA")
    assert (bearer.status, list_codes(bearer), bearer.rule) == (403, [220], "ASM-73")


@pytest.mark.rule("AUTH-07b")
async def test_a_read_only_token_reads_and_does_not_write(
    raw: RawClient, ask_token: AskToken, exchange_token: ExchangeToken, sandbox: Sandbox
) -> None:
    token = await ask_token("oob", {"svc_auth_access_type": "read"})
    raw.credentials = await exchange_token(token, sandbox.approve(token["token"]))
    assert raw.credentials["token"] != sandbox.credentials["token"]
    assert (await raw("GET", raw.account)).status == 200
    refused = await raw("PUT", raw.account, {"name": "Mine"})
    assert (refused.status, refused.codes) == (403, [("READONLY_CLIENT_APPLICATION", None)])
    assert refused.rule == "ASM-78"
    assert (await raw.call_signed("POST", INVALIDATE, credentials=raw.credentials)).status == 200


async def test_only_what_is_there_is_approved(ask_token: AskToken, sandbox: Sandbox) -> None:
    token = await ask_token()
    with pytest.raises(KeyError):
        sandbox.approve("unknown")
    with pytest.raises(KeyError):
        sandbox.approve(token["token"], user_id="nobody")


async def test_a_read_only_app_never_writes(raw: RawClient, sandbox: Sandbox) -> None:
    app = {name: sandbox.public_app[name] for name in ("consumer_key", "consumer_secret")}
    ask_token = await raw.call_signed(
        "POST", REQUEST, {"svc_auth_access_type": "write"}, credentials=app, oauth_callback="oob"
    )
    token = {**app, "token": ask_token.form["oauth_token"], "token_secret": ask_token.form["oauth_token_secret"]}
    got = await raw.call_signed("POST", ACCESS, credentials=token, oauth_verifier=sandbox.approve(token["token"]))
    raw.credentials = {**app, "token": got.form["oauth_token"], "token_secret": got.form["oauth_token_secret"]}
    assert (await raw("GET", raw.account)).status == 200
    assert (await raw("PUT", raw.account, {"name": "Mine"})).status == 403


@pytest.mark.rule("AUTH-10")
@pytest.mark.parametrize("config", [SandboxConfig(require_https=True)])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", REQUEST),
        ("GET", "/oauth/authorize"),
        ("GET", "/oauth/authenticate"),
        ("POST", ACCESS),
        ("POST", INVALIDATE),
    ],
)
async def test_every_step_needs_https_when_required(raw: RawClient, method: str, path: str) -> None:
    got = await raw(method, path, base=raw.sandbox.base_url, authorization="")
    assert (got.status, got.rule, got.basis) == (403, "AUTH-10", "spec")
