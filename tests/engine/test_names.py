"""A name, a URL or a sequence of ids of another type is refused in one sentence that names it, and nothing is sent."""

from collections.abc import Callable
from datetime import UTC, datetime
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from svc_async import InvalidArgument, Session, profiles
from svc_async.auth.oauth2 import PendingAuthorization
from svc_async.platform.oauth1_flow import RequestToken
from svc_async.sandbox import Sandbox
from svc_async.state import SharedState
from tests.support.errors import has

SINCE = datetime(2026, 6, 10, tzinfo=UTC)
URL = "postgresql://host/database"
TOKEN = RequestToken(oauth_token="a", oauth_token_secret="b", oauth_callback_confirmed="true")
PENDING = PendingAuthorization(url="u", redirect_uri="r", state="s", code_verifier="v")


@pytest.fixture(autouse=True)
def clear_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SVC_PROFILE", "SVC_STATE_URL"):
        monkeypatch.delenv(name, raising=False)


async def run(call: Callable[[Any], object], value: object) -> None:
    result = call(value)
    if isawaitable(result):
        await result


async def check_refusal(call: Callable[[Any], object], value: object, parameter: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=parameter)):
        await run(call, value)


@pytest.mark.parametrize("name", [None, "", 5, b"x", ["x"], {}, "x" * 201, "a\nb"], ids=repr)
async def test_a_profile_has_a_name_that_can_be_printed(name: object) -> None:
    profiles.write("default", {"bearer_token": "hush"})
    calls: list[Callable[[Any], object]] = [
        Session.from_profile,
        profiles.from_profile,
        profiles.is_stored,
        profiles.check,
        lambda value: profiles.write(value, {}),
        lambda value: profiles.remove(value, ()),
    ]
    for call in calls if not name else [*calls, profiles.find, profiles.find_state_url]:
        await check_refusal(call, name, "profile")


@pytest.mark.parametrize("path", ["profiles.toml", 5, b"x", False], ids=repr)
async def test_the_file_of_profiles_is_a_path(path: object) -> None:
    calls: list[Callable[[Any], object]] = [
        lambda value: profiles.from_profile(path=value),
        lambda value: profiles.is_stored("default", path=value),
        lambda value: profiles.check("default", path=value),
        lambda value: profiles.write("default", {}, path=value),
        lambda value: profiles.remove("default", (), path=value),
    ]
    for call in calls:
        await check_refusal(call, path, "path")


@pytest.mark.parametrize("settings", [None, 5, "x", ["x"], {"bearer_token": 5}, {"bearer_token": None}], ids=repr)
async def test_a_profile_is_written_with_strings_only(settings: object) -> None:
    def write(value: Any) -> object:
        return profiles.write("default", value)

    await check_refusal(write, settings, "settings")
    assert not profiles.is_stored("default")


@pytest.mark.parametrize("value", [5, b"x", ["x"]], ids=repr)
async def test_a_shared_state_refuses_a_url_and_a_schema_that_are_no_text(value: object) -> None:
    async def enter(schema: Any) -> None:
        async with SharedState.open(URL, schema=schema):
            """Not reached."""

    await check_refusal(SharedState.open, value, "state_url")
    await check_refusal(enter, value, "schema")


@pytest.mark.parametrize("value", [None, 5, b"x", ["x"]], ids=repr)
@pytest.mark.parametrize("validate", [True, False])
async def test_the_steps_of_a_login_refuse_what_is_no_text(sandbox: Sandbox, *, validate: bool, value: object) -> None:
    async with Session.sandbox(sandbox, validate=validate) as session:
        before = sandbox.requests.count("*")
        first, second = session.oauth1, session.oauth2
        await check_refusal(lambda callback: first.request_token(callback=callback), value, "callback")
        await check_refusal(lambda redirect: first.verifier(TOKEN, redirect), value, "redirect")
        await check_refusal(lambda token: first.verifier(token, "?a=b"), value, "request_token")
        await check_refusal(lambda verifier: first.access_token(TOKEN, verifier=verifier), value, "verifier")
        await check_refusal(lambda token: first.access_token(token, verifier="v"), value, "request_token")
        await check_refusal(
            lambda redirect: second.exchange(PENDING, redirect=redirect, client_id="c"), value, "redirect"
        )
        await check_refusal(lambda found: second.exchange(found, redirect="r", client_id="c"), value, "pending")
        await check_refusal(
            lambda uri: second.authorization_url(scopes=["follow.read"], redirect_uri=uri, client_id="c"),
            value,
            "redirect_uri",
        )
        if value is not None:
            await check_refusal(
                lambda client: second.exchange(PENDING, redirect="r", client_id=client),
                value,
                "client_id",
            )
        assert sandbox.requests.count("*") == before


@pytest.mark.parametrize("value", [None, 5, "x", b"x", {}], ids=repr)
async def test_what_is_no_sequence_is_not_sent(sandbox: Sandbox, value: object) -> None:
    async with Session.sandbox(sandbox) as session:
        rules = session.filtered_stream.rules
        await check_refusal(rules.add, value, "rules")
        await check_refusal(rules.delete, value, "ids")
        await check_refusal(
            lambda names: session.oauth2.authorization_url(scopes=names, redirect_uri="r", client_id="c"),
            value,
            "scopes",
        )
        assert sandbox.requests.count("*") == 0


@pytest.mark.parametrize("value", [5, b"DE", ["DE"], {}], ids=repr)
async def test_a_region_of_another_type_is_refused(session: Session, value: Any) -> None:
    users = session.account("a").custom_audience("b").users
    await check_refusal(lambda region: users.upload([], phone_region=region), value, "phone_region")


async def test_a_region_that_does_not_exist_is_refused(session: Session) -> None:
    users = session.account("a").custom_audience("b").users
    await check_refusal(lambda region: users.upload([], phone_region=region), "XX", "phone_region")


@pytest.mark.parametrize("value", [None, "60", -1, True], ids=repr)
async def test_a_wait_for_a_webhook_is_a_number_of_seconds(session: Session, value: object) -> None:
    await check_refusal(
        lambda within: session.webhooks.ensure("https://a.example/hook", within=within), value, "within"
    )
    await check_refusal(lambda within: session.webhooks.replay_gap(SINCE, within=within), value, "within")
