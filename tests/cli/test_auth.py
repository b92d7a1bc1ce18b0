"""Logging in and out, and who calls."""

import re
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from svc_async import BearerToken, UserCredentials, profiles
from svc_async.sandbox import Sandbox
from tests.support.command import Call, Command, Ended, Running, environment_of

FILE = Path("svc_async") / "profiles.toml"


def app_of(sandbox: Sandbox) -> dict[str, str]:
    """Return the variables of an app without a user token."""
    return {name: value for name, value in environment_of(sandbox).items() if "TOKEN" not in name}


class Login:
    """A login that is waiting for its user."""

    def __init__(self, running: Running) -> None:
        self.process = running.process
        self.wait = running.wait

    @classmethod
    async def start(cls, folder: Path, sandbox: Sandbox, *arguments: str) -> "Login":
        return cls(await Command(folder, app_of(sandbox)).start("auth", "login", "--no-browser", *arguments))

    async def token(self) -> str:
        """Read the URL of the page and return its request token."""
        assert self.process.stderr is not None
        while line := (await self.process.stderr.readline()).decode():
            if found := re.search(r"https?://\S+/oauth/authorize\S+", line):
                return parse_qs(urlsplit(found[0]).query)["oauth_token"][0]
        raise AssertionError("no page was shown")


async def log_in(folder: Path, sandbox: Sandbox, *arguments: str) -> Ended:
    login = await Login.start(folder, sandbox, *arguments)
    return await login.wait(f"{sandbox.approve(await login.token())}\n".encode())


@pytest.mark.long("runs commands, each of which takes a tenth of a second")
async def test_a_user_logs_in_by_pin_works_and_logs_out(sandbox: Sandbox, tmp_path: Path) -> None:
    ended = await log_in(tmp_path, sandbox, "--profile", "mine")
    assert (ended.code, ended.out) == (0, "")
    path = tmp_path / FILE
    assert path.stat().st_mode & 0o777 == 0o600
    source = profiles.from_profile("mine", path=path)
    assert isinstance(source.credentials, UserCredentials)
    assert source.endpoints.base_url == sandbox.base_url

    command = Command(tmp_path, {"SVC_PROFILE": "mine"})
    who = (await command("auth", "whoami", "--check", "--json")).result
    assert (who["source"], who["credentials"]) == ("the profile 'mine'", "a user")
    assert who["accounts"] == [sandbox.account_id]

    out = await command("auth", "logout", "--json")
    assert out.result == {"profile": "mine", "path": str(path), "invalidated": True}
    assert "access_token" not in path.read_text(encoding="utf-8")
    again = await command("auth", "logout", "--json")
    assert (again.code, again.error["parameter"]) == (2, "token")
    assert (await command("auth", "whoami", "--json")).result["credentials"] == "an app"


async def test_a_login_prints_one_object_without_secrets_for_scripts(sandbox: Sandbox, tmp_path: Path) -> None:
    ended = await log_in(tmp_path, sandbox, "--json")
    printed = ended.result
    assert printed == {
        "profile": "default",
        "path": str(tmp_path / FILE),
        "user_id": sandbox.user_id,
        "screen_name": "anna",
    }
    stored = profiles.from_profile(path=tmp_path / FILE).credentials
    assert isinstance(stored, UserCredentials)
    for secret in (stored.token, stored.token_secret, stored.consumer_secret):
        assert secret not in ended.out + ended.err


@pytest.mark.long("logs in twice")
async def test_who_logs_in_again_takes_the_app_from_the_profile(sandbox: Sandbox, tmp_path: Path) -> None:
    await log_in(tmp_path, sandbox, "--profile", "mine")
    before = profiles.from_profile("mine", path=tmp_path / FILE)
    await log_in(tmp_path, sandbox, "--profile", "mine")
    after = profiles.from_profile("mine", path=tmp_path / FILE)
    assert after.app == before.app


@pytest.mark.parametrize("pin", ["", "0000000"])
async def test_a_wrong_pin_stores_nothing(sandbox: Sandbox, tmp_path: Path, pin: str) -> None:
    login = await Login.start(tmp_path, sandbox)
    sandbox.approve(await login.token())
    ended = await login.wait(f"{pin}\n".encode())
    assert ended.code == (1 if pin else 2)
    assert ended.err.splitlines()[-1].startswith(("svc-async: HTTP 401", "svc-async: PIN "))
    assert not (tmp_path / FILE).exists()


async def test_a_user_logs_in_by_callback_and_only_with_the_token_of_this_login(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    login = await Login.start(tmp_path, sandbox, "--callback", sandbox.callback_url)
    token = await login.token()
    verifier = sandbox.approve(token)
    async with aiohttp.ClientSession() as browser:
        for query, status in (
            ({"oauth_token": "of-another", "oauth_verifier": verifier}, 400),
            ({"denied": "of-another"}, 400),
            ({"oauth_token": token, "oauth_verifier": verifier}, 200),
        ):
            async with browser.get(sandbox.callback_url, params=query) as answer:
                assert answer.status == status
    ended = await login.wait()
    assert ended.code == 0
    assert profiles.from_profile(path=tmp_path / FILE).app is not None


async def test_the_verifier_of_a_callback_is_decoded_once(sandbox: Sandbox, tmp_path: Path) -> None:
    login = await Login.start(tmp_path, sandbox, "--callback", sandbox.callback_url)
    token = await login.token()
    verifier = sandbox.approve(token)
    other = f"%{ord(verifier[0]):02x}{verifier[1:]}"  # decoded once more, it would be the verifier
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(sandbox.callback_url, params={"oauth_token": token, "oauth_verifier": other}) as answer,
    ):
        assert answer.status == 200
    ended = await login.wait()
    assert ended.code == 1
    assert "HTTP 401" in ended.err


async def test_a_user_who_denies_is_not_logged_in(sandbox: Sandbox, tmp_path: Path) -> None:
    login = await Login.start(tmp_path, sandbox, "--callback", sandbox.callback_url)
    token = await login.token()
    async with (
        aiohttp.ClientSession() as browser,
        browser.get(sandbox.callback_url, params={"denied": token}) as answer,
    ):
        assert answer.status == 400
    ended = await login.wait()
    assert ended.code == 2
    assert "denied" in ended.err
    assert not (tmp_path / FILE).exists()


async def test_a_callback_that_cannot_be_listened_on_is_an_error_of_one_line(sandbox: Sandbox, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", urlsplit(sandbox.callback_url).port or 0)):
        ended = await (await Login.start(tmp_path, sandbox, "--callback", sandbox.callback_url)).wait()
    assert ended.code == 2
    assert ended.err.startswith("svc-async: callback ")
    assert len(ended.err.splitlines()) == 1


async def test_a_login_can_be_stopped(sandbox: Sandbox, tmp_path: Path) -> None:
    login = await Login.start(tmp_path, sandbox, "--callback", sandbox.callback_url)
    await login.token()
    login.process.send_signal(signal.SIGTERM)
    assert (await login.wait()).code == 130


HOSTS = 'base_url = "https://base.example.test"\nads_url = "https://ads.example.test"\n'
APP = 'consumer_key = "key"\nconsumer_secret = "hush-1"\n'
USER = f'{APP}access_token = "hush-2"\naccess_token_secret = "hush-3"\n'


def store(here: Path, text: str) -> Path:
    path = here / FILE
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(USER, "a user"), (APP, "an app"), ('bearer_token = "hush-4"\n', "an app, by its bearer token")],
)
def test_whoami_prints_the_kind_and_no_secret(call: Call, here: Path, settings: str, kind: str) -> None:
    store(here, f"[default]\n{settings}{HOSTS}")
    printed = call("auth", "whoami", "--json").result
    assert printed["credentials"] == kind
    assert printed["source"] == "the profile 'default'"
    ended = call("auth", "whoami")
    assert "https://base.example.test" in ended.out
    assert "hush" not in ended.out + ended.err


def test_whoami_without_credentials_says_what_to_do(call: Call) -> None:
    ended = call("auth", "whoami", "--json")
    assert (ended.code, ended.error["parameter"], ended.error["hint"]) == (2, "credentials", "SET_CREDENTIALS")


def test_a_bearer_token_without_its_app_is_only_taken_out(call: Call, here: Path) -> None:
    path = store(here, f'[default]\nbearer_token = "hush-4"\n{HOSTS}')
    ended = call("auth", "logout", "--json")
    assert (ended.code, ended.result["invalidated"]) == (0, False)
    assert path.read_text(encoding="utf-8") == f"[default]\n{HOSTS}"


def test_a_login_needs_an_app(call: Call, here: Path) -> None:
    store(here, f'[default]\nbearer_token = "hush-4"\n{HOSTS}')
    ended = call("auth", "login", "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "app")


@pytest.mark.parametrize("arguments", [(), ("--profile", "new")])
@pytest.mark.parametrize("variables", [(), ("SVC_BASE_URL", "SVC_ADS_URL"), ("SVC_BEARER_TOKEN",)])
def test_a_first_login_names_only_what_it_needs(
    call: Call, monkeypatch: pytest.MonkeyPatch, variables: Sequence[str], arguments: Sequence[str]
) -> None:
    for name in variables:
        monkeypatch.setenv(name, "https://api.example.test")
    ended = call("auth", "login", *arguments)
    assert ended.code == 2
    needed = {"SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET", "SVC_BASE_URL", "SVC_ADS_URL"}
    assert set(re.findall(r"SVC_\w+", ended.err)) == needed


@pytest.mark.parametrize(
    "callback",
    [
        "https://127.0.0.1:1/x",
        "http://example.test:1/x",
        "http://127.0.0.1/x",
        "http://0.0.0.0:1/x",
        "http://127.0.0.1:x/",
    ],
)
def test_a_callback_is_on_loopback(call: Call, here: Path, callback: str) -> None:
    store(here, f"[default]\n{USER}{HOSTS}")
    ended = call("auth", "login", "--callback", callback, "--json")
    assert (ended.code, ended.error["parameter"]) == (2, "callback")


def test_a_token_that_could_not_be_stored_is_not_asked_for(call: Call, here: Path) -> None:
    path = store(here, f"[default]\n{USER}{HOSTS}")
    path.rename(path.with_name("elsewhere.toml"))
    path.symlink_to(path.with_name("elsewhere.toml"))
    ended = call("auth", "login", "--json")
    assert (ended.code, ended.error["type"], ended.error["parameter"]) == (2, "UnusableFile", "file")


def test_a_token_is_not_asked_for_if_the_folder_of_profiles_cannot_be_created(
    call: Call, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store(here, f"[default]\n{USER}{HOSTS}")
    for line in path.read_text().splitlines()[1:]:
        name, _, value = line.partition(" = ")
        monkeypatch.setenv(f"SVC_{name.upper()}", value.strip('"'))
    (here / "none").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(here / "none"))
    ended = call("auth", "login", "--profile", "new", "--json")
    assert (ended.code, ended.error["type"], ended.error["parameter"]) == (2, "UnusableFile", "file")


def test_the_bearer_token_of_a_profile_is_read_back(here: Path) -> None:
    path = store(here, f'[default]\nbearer_token = "hush-4"\n{HOSTS}')
    assert profiles.from_profile(path=path).credentials == BearerToken("hush-4")


@pytest.mark.long("runs five commands in processes of their own")
async def test_a_login_says_what_hides_its_profile(sandbox: Sandbox, tmp_path: Path) -> None:
    """The variables of the app are still set after a login, and come before the profile `default`."""
    ended = await log_in(tmp_path, sandbox)
    assert "--profile default" in ended.err
    command = Command(tmp_path, app_of(sandbox))
    assert "'default'" in (await command("auth", "whoami", "--json")).result["not_used"]
    calls = sandbox.requests.count("*")
    for arguments in (("accounts", "list"), ("audience", "upload", "f.csv", "--account", "a", "--audience", "b")):
        (tmp_path / "f.csv").write_text("email\na@example.org\n")
        refused = await command(*arguments, "--json")
        assert (refused.code, refused.error["type"], refused.error["hint"]) == (2, "AccessDenied", "GIVE_A_USER")
    assert sandbox.requests.count("*") == calls
    assert (await command("accounts", "list", "--profile", "default")).code == 0


@pytest.mark.long("logs in twice, and runs two more commands")
async def test_a_login_says_how_to_use_another_profile(sandbox: Sandbox, tmp_path: Path) -> None:
    await log_in(tmp_path, sandbox, "--profile", "mine")
    again = Command(tmp_path, {})
    running = await again.start("auth", "login", "--no-browser", "--profile", "mine")
    login = Login(running)
    ended = await login.wait(f"{sandbox.approve(await login.token())}\n".encode())
    assert "--profile mine" in ended.err
    assert (await again("auth", "logout", "--profile", "mine")).code == 0
    refused = await again("accounts", "list", "--profile", "mine", "--json")
    assert (refused.code, refused.error["type"], refused.error["sent"]) == (2, "AccessDenied", "no")
