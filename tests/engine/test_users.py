"""What a session of an app, without a user, says to calls of the advertising API."""

from pathlib import Path

import pytest

from svc_async import AccessDenied, ApiError, AppCredentials, BearerToken, Forbidden, OAuth2UserCredentials, Session
from svc_async.errors import Hint
from svc_async.profiles import default_path
from svc_async.sandbox import Sandbox
from tests.support.errors import has


async def test_an_app_in_the_session_of_a_user_sends_nothing(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        for credentials in (AppCredentials(**sandbox.app), BearerToken("hush")):
            with pytest.raises(AccessDenied) as caught:
                await session.as_user(credentials).accounts.list()
            assert caught.value.hint is Hint.GIVE_A_USER
        app = session.as_user(AppCredentials(**sandbox.app))
        assert sandbox.requests.count("*") == 0
        assert await app.webhooks.list().collect() == []
        with pytest.raises(Forbidden):
            await app.request("GET", "/12/accounts")


async def test_who_is_forgotten_in_the_settings_is_named_there(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    keys = {name: sandbox.app[name] for name in ("consumer_key", "consumer_secret")}
    settings = {**keys, "base_url": sandbox.base_url, "ads_url": sandbox.ads_url}
    for name in ("ACCESS_TOKEN", "ACCESS_TOKEN_SECRET", "BEARER_TOKEN", "STATE_URL"):
        monkeypatch.delenv(f"SVC_{name}", raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(f"SVC_{name.upper()}", value)
    default_path().parent.mkdir(parents=True)
    default_path().write_text("\n".join(("[shop]", *(f'{name} = "{value}"' for name, value in settings.items()))))

    for made, place in ((Session.from_env(), "the environment"), (Session.from_profile("shop"), "the profile 'shop'")):
        async with made as session:
            with pytest.raises(AccessDenied, match=place, check=has(hint=Hint.GIVE_A_USER)):
                session.account("a")
    assert sandbox.requests.count("*") == 0


async def test_a_token_with_scopes_is_left_to_the_service(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        with pytest.raises(ApiError):
            await session.as_user(OAuth2UserCredentials(access_token="hush")).accounts.list()
    assert sandbox.requests.count("*") == 1
