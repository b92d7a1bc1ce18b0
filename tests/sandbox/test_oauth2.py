"""The bearer token of an app, and what callers may do: schemes, formats, permissions."""

import base64
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import unquote

import pytest

from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.sandbox.server.auth import Scheme
from svc_async.sandbox.server.decoding import integer
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.rendering import Format
from tests.support.raw_client import RawAnswer, RawClient, encode_basic

TOKEN = "/oauth2/token"
INVALIDATE = "/oauth2/invalidate_token"
GRANT = {"grant_type": "client_credentials"}
EXPIRED = {"errors": [{"code": 89, "message": "Invalid or expired token"}]}
SCHEMES: tuple[Scheme, ...] = ("oauth1_user", "bearer_app", "oauth2_user", "basic_app", "none")


def make_token_form(bearer: str) -> dict[str, str]:
    """Return the form of a token that is percent-encoded already: encoding the form encodes it once."""
    return {"access_token": unquote(bearer)}


def _probe(scheme: Scheme, shape: Format) -> Operation:
    """Return an operation that answers with its caller."""
    return Operation(
        id=f"probe.{scheme}.{shape}",
        method="GET",
        path=f"/probe/{scheme}/{shape}",
        handler=_describe_caller,
        query=(integer("count", minimum=1, maximum=5, rule="ASM-95"),),
        limit=None,
        rule="AUTH-25b",
        surface="base",
        schemes=(scheme,),
        format=shape,
    )


def _describe_caller(call: Call) -> Answer:
    caller = call.caller
    who = {"scheme": caller.scheme, "user": caller.user, "app": "" if caller.scheme == "none" else caller.app.name}
    return Answer(str(who) if call.operation.format is Format.HTML else who)


class Probed(Sandbox):
    """A sandbox with a call for every scheme."""

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*super().operations, *(_probe(scheme, shape) for scheme in SCHEMES for shape in Format))


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Sandbox]:
    async with Probed(clock=clock, config=config) as running:
        yield running


@pytest.fixture
def app_header(sandbox: Sandbox) -> str:
    return encode_basic(sandbox.app["consumer_key"], sandbox.app["consumer_secret"])


@pytest.fixture
async def bearer(raw: RawClient, app_header: str) -> str:
    token: str = (await raw.post_form(TOKEN, GRANT, authorization=app_header)).json["access_token"]
    return token


def list_codes(got: RawAnswer) -> list[int]:
    return [error["code"] for error in got.json["errors"]]


@pytest.mark.rule("AUTH-20", "AUTH-20b", "AUTH-20d", "AUTH-21", "LIM-04")
async def test_an_app_has_one_bearer_token(raw: RawClient, app_header: str) -> None:
    got = await raw.post_form(TOKEN, GRANT, authorization=app_header)
    assert (got.status, got.rule, got.basis) == (200, "AUTH-20d", "spec")
    assert got.json == {"token_type": "bearer", "access_token": got.json["access_token"]}
    assert (await raw.post_form(TOKEN, GRANT, authorization=app_header)).json == got.json
    pocket = raw.sandbox.public_app
    other = await raw.post_form(
        TOKEN, GRANT, authorization=encode_basic(pocket["consumer_key"], pocket["consumer_secret"])
    )
    assert other.json["access_token"] != got.json["access_token"]


@pytest.mark.rule("AUTH-20")
async def test_wrong_credentials_are_403_with_code_99(raw: RawClient) -> None:
    key, secret = raw.sandbox.app["consumer_key"], raw.sandbox.app["consumer_secret"]
    wrong = (
        encode_basic(key, "wrong"),
        encode_basic(key, ""),
        encode_basic("nobody", secret),
        encode_basic(secret, key),
        "Basic ö",
        "Basic AA",
        "",
    )
    for header in wrong:
        got = await raw.post_form(TOKEN, GRANT, authorization=header)
        assert (got.status, list_codes(got)) == (403, [99])
        assert got.json["errors"][0]["label"] == "authenticity_token_error"


@pytest.mark.rule("AUTH-20")
async def test_key_and_secret_are_percent_encoded_each(raw: RawClient) -> None:
    parts = (raw.sandbox.app[name] for name in ("consumer_key", "consumer_secret"))
    joined = ":".join("".join(f"%{ord(character):02X}" for character in part) for part in parts)
    header = f"Basic {base64.b64encode(joined.encode()).decode()}"
    assert (await raw.post_form(TOKEN, GRANT, authorization=header)).status == 200


@pytest.mark.rule("AUTH-20b")
async def test_the_body_is_a_form_with_its_content_type(
    raw: RawClient, app_header: str, subtests: pytest.Subtests
) -> None:
    for content_type in ["application/json", "text/plain", ""]:
        with subtests.test(content_type=content_type):
            got = await raw.post_form(TOKEN, GRANT, authorization=app_header, **{"Content-Type": content_type})
            assert (got.status, list_codes(got)) == (403, [99])
            with_charset = {"Content-Type": "application/x-www-form-urlencoded;charset=UTF-8"}
            assert (await raw.post_form(TOKEN, GRANT, authorization=app_header, **with_charset)).status == 200


@pytest.mark.rule("AUTH-20c")
async def test_any_other_grant_is_403_with_code_99(raw: RawClient, app_header: str, subtests: pytest.Subtests) -> None:
    for fields in [
        {},
        {"grant_type": ""},
        {"grant_type": "password"},
        {**GRANT, "scope": "x"},
        {"Grant_type": "client_credentials"},
    ]:
        with subtests.test(fields=fields):
            got = await raw.post_form(TOKEN, fields, authorization=app_header)
            assert (got.status, {*list_codes(got)}) == (403, {99})
            assert got.rule in ("AUTH-20c", "ASM-95")


@pytest.mark.rule("AUTH-22", "AUTH-22c", "ERR-02")
async def test_a_bearer_token_asked_for_too_often_is_403_with_code_99(raw: RawClient, app_header: str) -> None:
    statuses = [(await raw.post_form(TOKEN, GRANT, authorization=app_header)).status for _ in range(10)]
    got = await raw.post_form(TOKEN, GRANT, authorization=app_header)
    assert statuses == [200] * 10
    assert (got.status, list_codes(got), got.rule, got.basis) == (403, [99], "AUTH-22", "spec")
    assert got.headers["x-rate-limit-remaining"] == "0"
    await raw.clock.advance(minutes=15)
    assert (await raw.post_form(TOKEN, GRANT, authorization=app_header)).status == 200


@pytest.mark.rule("AUTH-24", "AUTH-24b", "AUTH-24c", "AUTH-24d", "AUTH-17", "ERR-01")
async def test_an_invalidated_bearer_token_stops_working(raw: RawClient, app_header: str, bearer: str) -> None:
    assert (await raw.call_with_token("GET", "/probe/bearer_app/v2", bearer)).status == 200
    got = await raw.post_form(INVALIDATE, make_token_form(bearer), authorization=app_header)
    assert (got.status, got.json, got.rule) == (200, {"access_token": bearer}, "AUTH-24b")
    for shape in ("v1", "v2"):
        refused = await raw.call_with_token("GET", f"/probe/bearer_app/{shape}", bearer)
        assert (refused.status, refused.json, refused.rule) == (401, EXPIRED, "ERR-01")
    again = await raw.post_form(INVALIDATE, make_token_form(bearer), authorization=app_header)
    assert (again.status, again.json) == (401, EXPIRED)
    new = (await raw.post_form(TOKEN, GRANT, authorization=app_header)).json["access_token"]
    assert new != bearer
    assert (await raw.call_with_token("GET", "/probe/bearer_app/v2", new)).status == 200


@pytest.mark.rule("AUTH-24")
async def test_a_bearer_token_is_invalidated_by_its_own_app_only(raw: RawClient, bearer: str) -> None:
    pocket = raw.sandbox.public_app
    other = encode_basic(pocket["consumer_key"], pocket["consumer_secret"])
    assert (await raw.post_form(INVALIDATE, make_token_form(bearer), authorization=other)).status == 401
    wrong = encode_basic(raw.sandbox.app["consumer_key"], "wrong")
    assert list_codes(await raw.post_form(INVALIDATE, make_token_form(bearer), authorization=wrong)) == [99]
    assert (await raw.call_with_token("GET", "/probe/bearer_app/v1", bearer)).status == 200


async def test_a_bearer_token_comes_percent_encoded_and_is_not_encoded_again(raw: RawClient, bearer: str) -> None:
    assert "%2B" in bearer
    twice = await raw.call_with_token("GET", "/probe/bearer_app/v1", bearer.replace("%", "%25"))
    decoded = await raw.call_with_token("GET", "/probe/bearer_app/v1", bearer.replace("%2B", "+").replace("%3D", "="))
    assert (twice.status, decoded.status) == (401, 401)


async def test_a_bearer_token_that_is_encoded_again_is_not_invalidated(
    raw: RawClient, app_header: str, bearer: str
) -> None:
    got = await raw.post_form(INVALIDATE, {"access_token": bearer}, authorization=app_header)
    assert (got.status, got.json) == (401, EXPIRED)
    assert (await raw.call_with_token("GET", "/probe/bearer_app/v1", bearer)).status == 200


@pytest.mark.rule("AUTH-25b")
async def test_the_bearer_token_is_the_app_and_no_user(raw: RawClient, bearer: str) -> None:
    got = await raw.call_with_token("GET", "/probe/bearer_app/v1", bearer)
    assert got.json == {"scheme": "bearer_app", "user": "", "app": "Harbour Desk"}


async def test_another_scheme_than_the_call_takes_is_403_with_code_220(raw: RawClient, bearer: str) -> None:
    for scheme in ("oauth1_user", "oauth2_user"):
        got = await raw.call_with_token("GET", f"/probe/{scheme}/v2", bearer)
        assert (got.status, list_codes(got), got.rule) == (403, [220], "ASM-73")
    on_ads = await raw("GET", raw.account, authorization=f"Bearer {bearer}")
    signed = await raw.call_signed("GET", "/probe/bearer_app/v2", credentials=raw.credentials)
    for got in (on_ads, signed):
        assert (got.status, list_codes(got), got.rule) == (403, [220], "ASM-73")


async def test_no_credentials_are_401_in_the_dialect_of_the_call(raw: RawClient) -> None:
    async def ask(shape: str, scheme: str = "bearer_app") -> Any:
        return await raw("GET", f"/probe/{scheme}/{shape}", base=raw.sandbox.base_url, authorization="")

    assert list_codes(await ask("v1")) == list_codes(await ask("form")) == [32]
    problem = await ask("v2")
    assert (problem.status, problem.headers["Content-Type"]) == (401, "application/problem+json")
    assert problem.json.keys() == {"type", "title", "detail", "status"}
    assert (problem.json["title"], problem.json["status"]) == ("Unauthorized", 401)
    assert (await ask("ads")).codes == [("UNAUTHORIZED_ACCESS", None)]
    assert (await ask("oauth2")).json["error"] == "invalid_client"
    assert "<h1>This cannot go on</h1>" in (await ask("html")).text
    assert (await ask("credentials", "basic_app")).status == 403


@pytest.mark.parametrize("config", [SandboxConfig(rate_limits=False)])
async def test_answers_and_refusals_look_as_the_dialect_has_it(raw: RawClient) -> None:
    async def ask(shape: str, count: str = "3") -> Any:
        return await raw("GET", f"/probe/none/{shape}", {"count": count}, base=raw.sandbox.base_url, authorization="")

    who = {"scheme": "none", "user": "", "app": ""}
    assert (await ask("ads")).json == {"request": {"params": {"count": 3}}, "data": who}
    for shape in ("v1", "v2", "oauth2", "credentials"):
        assert (await ask(shape)).json == who
    assert (await ask("form")).body == b"scheme=none&user=&app="
    assert (await ask("html")).headers["Content-Type"] == "text/html;charset=utf-8"
    for shape in Format:
        assert (await ask(shape)).headers["x-sandbox-basis"] == "spec"
        assert (await ask(shape, "9")).headers["x-sandbox-rule"] == "ASM-95"
    assert (await ask("ads", "9")).codes == [("INVALID_PARAMETER", "count")]
    assert list_codes(await ask("v1", "9")) == [44]
    assert (await ask("v2", "9")).failure == ("INVALID_PARAMETER", "count")
    assert (await ask("oauth2", "9")).json["error"] == "invalid_request"


async def test_an_unknown_call_is_404_in_the_dialect_of_its_surface(raw: RawClient) -> None:
    async def ask(path: str, base: str) -> Any:
        return await raw("GET", path, base=base)

    base = raw.sandbox.base_url
    assert (await ask("/2/nothing", base)).json["status"] == 404
    assert list_codes(await ask("/oauth/nothing", base)) == list_codes(await ask("/1.1/nothing", base)) == [34]
    assert (await ask("/12/nothing", raw.sandbox.ads_url)).codes == [("ROUTE_NOT_FOUND", None)]
