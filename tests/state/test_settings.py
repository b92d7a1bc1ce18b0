"""The URL of a shared state: where it is found, and that its password is shown nowhere."""

import asyncio
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from svc_async import InvalidArgument, Session, Timeouts, profiles
from svc_async.cli.exit_codes import explain
from svc_async.cli.sessions import open_session
from svc_async.errors import StateUnavailable
from svc_async.state import SharedState
from svc_async.store.database_url import DatabaseUrl
from svc_async.wiring import CommonOptions, SessionOptions, SessionSettings
from tests.support.errors import has
from tests.support.tracebacks import find_shown

SERVICE = {
    "SVC_CONSUMER_KEY": "key",
    "SVC_CONSUMER_SECRET": "secret",
    "SVC_ACCESS_TOKEN": "token",
    "SVC_ACCESS_TOKEN_SECRET": "token-secret",
    "SVC_BASE_URL": "https://base.example.test",
    "SVC_ADS_URL": "https://ads.example.test",
}
HOSTS = 'base_url = "https://base.example.test"\nads_url = "https://ads.example.test"\n'
USER = 'consumer_key = "a"\nconsumer_secret = "b"\naccess_token = "c"\naccess_token_secret = "d"\n'
NOWHERE = "postgresql://user:hush@127.0.0.1:1/customers"


@pytest.fixture(autouse=True)
def clear_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [*SERVICE, "SVC_BEARER_TOKEN", "SVC_ADS_SANDBOX_URL", "SVC_PROFILE", "SVC_STATE_URL"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture
def set_service(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SERVICE.items():
        monkeypatch.setenv(name, value)


def write(text: str) -> None:
    path = profiles.default_path()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


async def test_a_missing_package_is_named_by_the_call_that_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(InvalidArgument) as caught:
        await SharedState.open(NOWHERE).__aenter__()
    assert caught.value.parameter == "SharedState.open()"
    assert "svc-async[postgres]" in caught.value.rule
    assert "SharedState" not in explain(caught.value)


def test_the_options_of_from_env_are_the_keywords_of_a_session() -> None:
    keywords = {*inspect.signature(SessionSettings).parameters} - {
        "credentials",
        "app",
        "endpoints",
        "origin",
        "start_sandbox",
    }
    assert {*SessionOptions.__annotations__} - {"proxy"} == keywords - {"proxies"}
    assert {*CommonOptions.__annotations__} == {*SessionOptions.__annotations__} - {"proxy", "clock"}


@pytest.mark.usefixtures("set_service")
async def test_options_reach_the_session_and_an_unknown_one_is_refused() -> None:
    async with Session.from_env(memory=1_000_000, timeouts=Timeouts(total=3), proxy="http://a:1") as session:
        settings = session._require_open().settings
        assert (settings.memory, settings.timeouts) == (1_000_000, Timeouts(total=3))
        assert {*settings.proxies.values()} == {"http://a:1"}
        assert session.state is None
    with pytest.raises(TypeError, match="memry"):
        Session.from_env(memry=1)  # type: ignore[call-arg]  # the test


@pytest.mark.usefixtures("set_service")
async def test_a_session_from_the_environment_opens_and_closes_its_state(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SVC_STATE_URL", postgres_url)
    async with Session.from_env() as session:
        state = session.state
        assert state is not None
        assert await state.database.fetch("SELECT 1")
    assert not state.is_open


async def test_a_session_from_a_profile_opens_the_state_of_the_profile(postgres_url: str) -> None:
    write(f'[default]\n{HOSTS}{USER}state_url = "{postgres_url}"\n')
    async with Session.from_profile() as session:
        assert session.state is not None
        assert session.state.is_open


@pytest.mark.usefixtures("set_service")
async def test_a_given_state_comes_before_the_environment_and_stays_open(
    postgres_url: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SVC_STATE_URL", NOWHERE)
    async with SharedState.open(postgres_url, schema=schema) as state:
        async with Session.from_env(state=state) as session:
            assert session.state is state
        assert state.is_open


@pytest.mark.usefixtures("set_service")
async def test_a_state_that_cannot_be_reached_is_an_error_unless_it_is_not_required(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SVC_STATE_URL", NOWHERE)
    with pytest.raises(StateUnavailable, check=has(name="127.0.0.1:1/customers")):
        async with Session.from_env():
            pass
    async with Session.from_env(state_required=False) as session:
        assert session.state is not None
        assert not session.state.is_open
    assert "127.0.0.1:1/customers" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize("profile", [None, "default"])
def test_a_url_that_cannot_be_used_is_named_by_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, profile: str | None
) -> None:
    if profile:
        write(f'[default]\n{HOSTS}{USER}state_url = "mysql://u:hush@h/x"\n')
        named = "state_url"
    else:
        for name, value in {**SERVICE, "SVC_STATE_URL": "mysql://u:hush@h/x"}.items():
            monkeypatch.setenv(name, value)
        named = "SVC_STATE_URL"
    with pytest.raises(InvalidArgument, check=has(parameter=named)) as caught:
        Session.from_profile(profile) if profile else Session.from_env()
    assert find_shown(caught.value, "hush") == []
    with pytest.raises(InvalidArgument, check=has(parameter=named)) as caught:
        profiles.find_state_url(profile)
    assert find_shown(caught.value, "hush") == []


PROFILES = f'[default]\n{HOSTS}{USER}state_url = "postgresql://default"\n[bare]\n{HOSTS}{USER}'


@pytest.mark.parametrize(
    ("profile", "environ", "found"),
    [
        (None, {}, "postgresql://default"),
        (None, {"SVC_STATE_URL": "postgresql://environment"}, "postgresql://environment"),
        ("default", {"SVC_STATE_URL": "postgresql://environment"}, "postgresql://default"),
        ("bare", {"SVC_STATE_URL": "postgresql://environment"}, "postgresql://environment"),
        ("bare", {}, None),
        (None, {"SVC_PROFILE": "bare"}, None),
        (None, {"SVC_PROFILE": "default", "SVC_STATE_URL": "postgresql://environment"}, "postgresql://default"),
        (None, SERVICE, None),  # the variables come before the profile, as for credentials
    ],
)
def test_the_url_is_found_in_a_fixed_order(profile: str | None, environ: Mapping[str, str], found: str | None) -> None:
    write(PROFILES)
    assert profiles.find_state_url(profile, environ=environ) == found


def test_the_variable_alone_hides_no_profile() -> None:
    write(PROFILES)
    assert profiles.find(environ={"SVC_STATE_URL": "postgresql://a"}).origin == "the profile 'default'"
    assert profiles.set_variables({"SVC_STATE_URL": "postgresql://a"}) == []


def test_without_a_file_there_is_no_url() -> None:
    assert profiles.find_state_url(environ={}) is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://user:hush@db.example.test:5433/customers?sslmode=verify-full", "db.example.test:5433/customers"),
        ("postgres://db/customers", "db/customers"),
        ("postgresql:///customers?host=/run/postgresql&password=hush", "/run/postgresql/customers"),
        ("postgresql:///customers", "a local socket/customers"),
        ("postgresql://user:hush@[::1]/a\x1b[31m", "::1/a\\x1b[31m"),
    ],
)
def test_a_url_is_shown_as_host_and_database(url: str, name: str) -> None:
    parsed = DatabaseUrl.parse(url)
    assert parsed.name == name
    assert "hush" not in repr(parsed)
    assert parsed.reveal() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://hush",
        "hush",
        "postgresql://" + 9_000 * "hush",
        "postgresql://[hush",
        "postgresql://a:hush/b",
        "postgresql://u:hush@a:0/b",
        "postgresql://u:hush@a:70000/b",
        *(f"postgresql://u:{password}@a/b" for password in ("hu/sh", "hu?sh", "hu#sh", "1/hush", "1?hush=2")),
        "postgresql://u:hush@a/b?connect_timeout=5",
        "postgresql://u:hush@a/b?channel_binding=require",
        "postgresql://u:hush@a/b?hush=1",
    ],
)
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="state_url")) as caught:
        DatabaseUrl.parse(url)
    assert "hush" not in str(caught.value)


async def enter(session: Session) -> None:
    async with session:
        pass


OPENINGS: Mapping[str, Callable[[str], Session]] = {
    "environment": lambda _: Session.from_env(),
    "command": lambda _: open_session(None),
    "option": lambda url: open_session(None, state_url=url),
}


@pytest.mark.usefixtures("set_service")
@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("url", [NOWHERE, "mysql://user:hush@host/a"])
async def test_no_password_is_in_a_message_or_in_the_locals_of_a_traceback(
    url: str, opening: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SVC_STATE_URL", url)
    with pytest.raises((StateUnavailable, InvalidArgument)) as caught:
        await enter(OPENINGS[opening](url))
    assert find_shown(caught.value, "hush") == []
    assert caught.value.__context__ is None


async def test_no_password_is_in_the_frames_of_a_connection_that_is_given_up() -> None:
    connected = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(wait, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        state = SharedState.open(f"postgresql://user:hush@127.0.0.1:{port}/customers?sslmode=disable")
        opening = asyncio.ensure_future(state.__aenter__())
        await connected.wait()
        opening.cancel("by the test")
        with pytest.raises(asyncio.CancelledError) as caught:
            await opening
    assert find_shown(caught.value, "hush") == []
