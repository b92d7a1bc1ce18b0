import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from svc_async import (
    AppCredentials,
    BearerToken,
    Endpoints,
    InvalidArgument,
    Retries,
    Session,
    SvcError,
    TransportError,
    UnusableFile,
    UserCredentials,
    profiles,
)
from svc_async.auth.credentials import Credentials
from svc_async.errors import ApiError, Hint, Sent
from svc_async.sandbox import Sandbox
from svc_async.wire.route import Surface
from tests.support.errors import has
from tests.support.tracebacks import find_shown

ENVIRONMENT = {
    "SVC_CONSUMER_KEY": "key",
    "SVC_CONSUMER_SECRET": "hush-1",
    "SVC_ACCESS_TOKEN": "hush-2",
    "SVC_ACCESS_TOKEN_SECRET": "hush-3",
    "SVC_BASE_URL": "https://base.example.test",
    "SVC_ADS_URL": "https://ads.example.test",
}
HOSTS = {name: url for name, url in ENVIRONMENT.items() if name.endswith("URL")}


@pytest.fixture(autouse=True)
def clear_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [
        *ENVIRONMENT,
        "SVC_CLIENT_ID",
        "SVC_CLIENT_SECRET",
        "SVC_BEARER_TOKEN",
        "SVC_ADS_SANDBOX_URL",
        "SVC_PROFILE",
    ]:
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def write(text: str) -> None:
    path = profiles.default_path()
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")


PROFILE = """
[default]
consumer_key = "key"
consumer_secret = "hush-1"
access_token = "hush-2"
access_token_secret = "hush-3"
base_url = "https://base.example.test"
ads_url = "https://ads.example.test"

[app]
bearer_token = "hush-4"
base_url = "https://base.example.test"
ads_url = "https://ads.example.test"
"""


def test_a_user_is_read_from_the_environment() -> None:
    source = profiles.from_environment(ENVIRONMENT)

    assert source.credentials == UserCredentials(
        consumer_key="key", consumer_secret="hush-1", token="hush-2", token_secret="hush-3"
    )
    assert source.endpoints.ads_sandbox_url is None
    assert source.app is not None
    assert "hush" not in repr(source)


def test_the_sandbox_host_is_optional() -> None:
    source = profiles.from_environment({**ENVIRONMENT, "SVC_ADS_SANDBOX_URL": "https://sandbox.example.test"})
    assert source.endpoints.ads_sandbox_url == "https://sandbox.example.test"


def test_a_bearer_token_is_read_with_or_without_its_app() -> None:
    hosts = {name: value for name, value in ENVIRONMENT.items() if name.endswith("URL")}
    alone = profiles.from_environment({**hosts, "SVC_BEARER_TOKEN": "hush-4"})

    assert (alone.credentials, alone.app) == (BearerToken("hush-4"), None)
    app = {"SVC_CONSUMER_KEY": "key", "SVC_CONSUMER_SECRET": "hush-1"}
    both = profiles.from_environment({**hosts, **app, "SVC_BEARER_TOKEN": "hush-4"})

    assert both.credentials == BearerToken("hush-4")
    assert both.app is not None


@pytest.mark.parametrize("missing", sorted(ENVIRONMENT))
def test_what_is_missing_is_named(missing: str) -> None:
    rest = {name: value for name, value in ENVIRONMENT.items() if name != missing}
    with pytest.raises(InvalidArgument, match=rf"\b{missing}\b", check=has(parameter="credentials")) as caught:
        profiles.from_environment(rest)

    assert "hush" not in str(caught.value)


UNUSABLE = [
    ("consumer_key", " key", "must be a non-empty string without surrounding white space"),
    ("consumer_secret", "hush-1\n", "must be a non-empty string without surrounding white space"),
    ("access_token", "hush-2 ", "must be a non-empty string without surrounding white space"),
    ("access_token_secret", "hush-3\t", "must be a non-empty string without surrounding white space"),
    ("base_url", "http://hush.example.test", "must start with https://; http:// is accepted on loopback only"),
    ("ads_url", "hush.example.test", "must start with https://, or with http:// on loopback"),
    ("base_url", "127.0.0.1:8765", "must start with https://, or with http:// on loopback"),
    ("ads_sandbox_url", "https://hush?x", "must be an absolute ASCII URL without user, query and fragment"),
]


@pytest.mark.parametrize(("setting", "value", "rule"), UNUSABLE)
def test_a_setting_that_cannot_be_used_is_named_where_it_stands(
    monkeypatch: pytest.MonkeyPatch, setting: str, value: str, rule: str
) -> None:
    for name, usable in ENVIRONMENT.items():
        monkeypatch.setenv(name, usable)
    monkeypatch.setenv(f"SVC_{setting.upper()}", value)
    settings = {**{name.removeprefix("SVC_").lower(): usable for name, usable in ENVIRONMENT.items()}, setting: value}
    write("\n".join(("[shop]", *(f"{name} = {json.dumps(text)}" for name, text in settings.items()))))

    with pytest.raises(InvalidArgument) as of_variable:
        Session.from_env()
    with pytest.raises(InvalidArgument) as of_profile:
        Session.from_profile("shop")

    assert str(of_variable.value) == f"SVC_{setting.upper()} {rule}"
    assert str(of_profile.value) == f"{setting} of the profile 'shop' {rule}"
    for caught in (of_variable, of_profile):
        assert find_shown(caught.value, "hush") == []


def test_a_bearer_token_that_cannot_be_used_is_named_where_it_stands() -> None:
    hosts = {name: value for name, value in ENVIRONMENT.items() if name.endswith("_URL")}
    write('[shop]\nbearer_token = "hush "\nbase_url = "https://b.example"\nads_url = "https://a.example"\n')
    with pytest.raises(InvalidArgument, check=has(parameter="bearer_token")):
        profiles.from_profile("shop")
    with pytest.raises(InvalidArgument, check=has(parameter="SVC_BEARER_TOKEN")):
        profiles.from_environment({**hosts, "SVC_BEARER_TOKEN": "hush "})


def test_an_empty_variable_is_a_missing_one() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
        profiles.from_environment({**ENVIRONMENT, "SVC_ACCESS_TOKEN": ""})


def test_the_oauth_2_client_of_an_app_is_read_beside_its_key() -> None:
    client = {"SVC_CLIENT_ID": "c1", "SVC_CLIENT_SECRET": "hush-5"}
    source = profiles.from_environment({**ENVIRONMENT, **client})

    assert source.app == AppCredentials(
        consumer_key="key", consumer_secret="hush-1", client_id="c1", client_secret="hush-5"
    )
    assert isinstance(source.credentials, UserCredentials)
    with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
        profiles.from_environment({"SVC_BEARER_TOKEN": "b", **HOSTS, **client})


def test_an_empty_environment_says_what_to_do() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
        Session.from_env()


def test_an_environment_that_names_a_profile_says_how_to_use_it() -> None:
    with pytest.raises(InvalidArgument) as caught:
        profiles.from_environment({"SVC_PROFILE": "prod"})

    assert (caught.value.parameter, caught.value.hint) == ("credentials", Hint.NAME_THE_PROFILE)
    assert "prod" not in str(caught.value)


def test_profiles_are_read_by_name() -> None:
    write(PROFILE)

    assert isinstance(profiles.from_profile().credentials, UserCredentials)
    assert profiles.from_profile("app").credentials == BearerToken("hush-4")


@pytest.mark.parametrize(
    ("text", "kind", "named"),
    [
        (PROFILE, InvalidArgument, "'default', 'app'; "),
        ("other = 5", InvalidArgument, "'other'"),
        ("".join(f"[p{number}]\n" for number in range(12)), InvalidArgument, "'p8', 'p9', 2 more; "),
        ('["a\\u202eb"]', InvalidArgument, r"'a\\u202eb'; "),
        ("[other]\nconsumer_kee = 'hush'", InvalidArgument, "consumer_kee"),
        ("[other]\nconsumer_key = 5", InvalidArgument, "'other'"),
        ("[other]\nbase_url = 'https://a.example.test'", InvalidArgument, "ads_url, consumer_key, "),
        ("[other\nhush", UnusableFile, "TOML"),
    ],
)
def test_a_profile_that_cannot_be_used_names_what_is_wrong(text: str, kind: type[SvcError], named: str) -> None:
    write(text)
    with pytest.raises(kind, match=named) as caught:
        profiles.from_profile("other")

    assert "hush" not in str(caught.value)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UnusableFile, check=has(path=str(profiles.default_path()), hint=Hint.STORE_A_PROFILE)):
        Session.from_profile()


@pytest.mark.parametrize(
    ("named", "environment", "name"),
    [
        ("app", {**ENVIRONMENT, "SVC_PROFILE": "default"}, "the profile 'app'"),
        (None, {**ENVIRONMENT, "SVC_PROFILE": "app"}, "the profile 'app'"),
        (None, ENVIRONMENT, "the environment"),
        (None, {}, "the profile 'default'"),
    ],
)
def test_one_whole_source_is_chosen_in_a_fixed_order(
    named: str | None, environment: Mapping[str, str], name: str
) -> None:
    write(PROFILE)
    assert profiles.find(named, environ=environment).origin == name


def test_sources_are_never_mixed() -> None:
    write(PROFILE)
    with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
        profiles.find(environ={"SVC_CONSUMER_KEY": "key"})


def test_proxies_are_resolved_once_for_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.test:3128")
    monkeypatch.setenv("no_proxy", "base.example.test")
    source = profiles.from_environment(ENVIRONMENT)

    assert profiles.find_proxies(source.endpoints) == {Surface.ADS: "http://proxy.example.test:3128"}


EXCLUDED = [  # URL, NO_PROXY, whether the proxy is used
    ("https://ads.svc.example", "", True),
    ("https://ads.svc.example", "*", False),
    ("https://ads.svc.example", "svc.example", False),
    ("https://ads.svc.example", ".svc.example", False),
    ("https://ads.svc.example", "*.svc.example", False),
    ("https://svc.example", "*.svc.example", True),
    ("https://svc.example", ".svc.example", False),
    ("https://ads.svc.example", "vc.example", True),
    ("https://ads.svc.example", " other.example , SVC.EXAMPLE. ", False),
    ("https://ads.svc.example", "other.example svc.example", False),
    ("https://ads.svc.example.", "ads.svc.example", False),
    ("https://ads.svc.example", "ads.svc.example:443", False),
    ("https://ads.svc.example:8443", "ads.svc.example:8443", False),
    ("https://ads.svc.example:8443", "ads.svc.example:443", True),
    ("https://ads.svc.example:8443", "*:8443", False),
    ("https://10.1.2.3", "10.1.2.3", False),
    ("https://10.1.2.3", "10.0.0.0/8", False),
    ("https://10.1.2.3:8443", "10.0.0.0/8:8443", False),
    ("https://11.1.2.3", "10.0.0.0/8", True),
    ("https://10.1.2.3", "3", True),
    ("https://[::1]:8443", "::1", False),
    ("https://[::1]:8443", "[::1]", False),
    ("https://[::1]:8443", "[::1]:8443", False),
    ("https://[::1]:8443", "[::1]:443", True),
    ("https://[fd00::1]", "fd00::/8", False),
    ("https://ads.svc.example", "10.0.0.0/8,[::,:,:443,/,*.,.", True),
]


@pytest.mark.parametrize("spelling", ["NO_PROXY", "no_proxy"])
def test_an_excluded_host_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch, spelling: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.test:3128")
    for url, excluded, is_used in EXCLUDED:
        monkeypatch.setenv(spelling, excluded)
        assert bool(profiles.find_proxies(Endpoints(base_url=url, ads_url=url))) is is_used, (url, excluded)


def test_one_proxy_may_serve_all_kinds_of_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("all_proxy", "http://proxy.example.test:3128")
    endpoints = profiles.from_environment(ENVIRONMENT).endpoints

    assert set(profiles.find_proxies(endpoints)) == {Surface.BASE, Surface.ADS}


async def test_a_session_from_the_environment_uses_its_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = "http://127.0.0.1:1"
    for name, value in {**ENVIRONMENT, "SVC_BASE_URL": nobody, "SVC_ADS_URL": nobody}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:2")
    async with Session.from_env() as session:
        with pytest.raises(TransportError, check=has(sent=Sent.NO)):
            await session.but(retries=Retries.none()).accounts.get("a")
    monkeypatch.setenv("http_proxy", "http://proxy.invalid:2")
    async with Session.from_env() as session:
        with pytest.raises(TransportError, check=has(sent=Sent.NO)):
            await session.but(retries=Retries.none()).accounts.get("a")


def test_a_proxy_without_a_scheme_is_taken_and_one_of_another_kind_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoints = profiles.from_environment(ENVIRONMENT).endpoints
    monkeypatch.setenv("https_proxy", "proxy.example.test:3128")

    assert set(profiles.find_proxies(endpoints).values()) == {"http://proxy.example.test:3128"}
    monkeypatch.setenv("https_proxy", "socks5://proxy.example.test")
    with pytest.raises(InvalidArgument, check=has(parameter="HTTPS_PROXY")):
        profiles.find_proxies(endpoints)
    monkeypatch.delenv("https_proxy")
    monkeypatch.setenv("ALL_PROXY", "socks5://proxy.example.test")
    with pytest.raises(InvalidArgument, check=has(parameter="ALL_PROXY")):
        profiles.find_proxies(endpoints)


class TenantSession(Session):
    """A session with an attribute of its own."""

    def __init__(self, credentials: Credentials, **settings: Any) -> None:
        super().__init__(credentials, **settings)
        self.tenant = "t1"


async def test_a_subclass_is_initialised_from_the_environment_and_keeps_its_attributes_in_a_view(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    session = TenantSession.from_env()
    assert isinstance(session, TenantSession)

    async with session:
        view = session.but(timeout=5)

        assert isinstance(view, TenantSession)
        assert (session.tenant, view.tenant) == ("t1", "t1")


async def test_a_session_from_the_environment_works(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SVC_CONSUMER_KEY": sandbox.credentials["consumer_key"],
        "SVC_CONSUMER_SECRET": sandbox.credentials["consumer_secret"],
        "SVC_ACCESS_TOKEN": sandbox.credentials["token"],
        "SVC_ACCESS_TOKEN_SECRET": sandbox.credentials["token_secret"],
        "SVC_BASE_URL": sandbox.base_url,
        "SVC_ADS_URL": sandbox.ads_url,
    }.items():
        monkeypatch.setenv(name, value)
    session = Session.from_env()
    async with session:
        assert session.app is not None
        # The sandbox of this test keeps its own time; a signature from the machine's time is too old or too new.
        with pytest.raises(ApiError, check=has(status=401)):
            await session.accounts.get(sandbox.account_id)


# --- an app alone


def test_an_app_alone_is_read() -> None:
    app = {name: value for name, value in ENVIRONMENT.items() if "TOKEN" not in name}
    source = profiles.from_environment(app)

    assert source.credentials == source.app == AppCredentials(consumer_key="key", consumer_secret="hush-1")


@pytest.mark.parametrize("alone", ["SVC_CONSUMER_KEY", "SVC_CONSUMER_SECRET"])
def test_half_an_app_is_none(alone: str) -> None:
    hosts = {name: value for name, value in ENVIRONMENT.items() if name.endswith("URL")}
    with pytest.raises(InvalidArgument, check=has(parameter="credentials")):
        profiles.from_environment({**hosts, alone: "hush"})


# --- written


SETTINGS = {
    "consumer_key": "key",
    "consumer_secret": 'hu"sh\\1é',
    "base_url": "https://b.test",
    "ads_url": "https://a.test",
}


def read_stored() -> str:
    return profiles.default_path().read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["default", "my profile", "a.b", 'quo"ted', "ü"])
def test_a_new_profile_is_read_as_it_was_written(name: str) -> None:
    path = profiles.write(name, SETTINGS)

    assert path == profiles.default_path()
    source = profiles.from_profile(name)

    assert source.app == AppCredentials(consumer_key="key", consumer_secret='hu"sh\\1é')
    assert profiles.is_stored(name)
    assert not profiles.is_stored("another")


def test_only_the_user_can_read_the_file() -> None:
    write(PROFILE)
    profiles.default_path().chmod(0o604)  # what a group may do is kept
    profiles.write("mine", SETTINGS)

    assert profiles.default_path().stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in profiles.default_path().parent.iterdir()] == ["profiles.toml"]


COMMENTED = """# mine, do not touch
[default]  # the first
# a comment
consumer_key = "old"
consumer_secret = "hush-1"

base_url = 'https://b.test'
ads_url = "https://a.test"

[app] # the second
bearer_token = "hush-4"
"""


def test_the_other_profiles_the_order_and_the_comments_stay() -> None:
    write(COMMENTED)
    profiles.write("default", {"consumer_key": "new", "access_token": "hush-2", "access_token_secret": "hush-3"})

    assert read_stored() == COMMENTED.replace('"old"', '"new"').replace(
        'ads_url = "https://a.test"\n',
        'ads_url = "https://a.test"\naccess_token = "hush-2"\naccess_token_secret = "hush-3"\n',
    )
    profiles.remove("default", ["access_token", "access_token_secret", "bearer_token"])

    assert read_stored() == COMMENTED.replace('"old"', '"new"')
    profiles.write("third", {"bearer_token": "hush-5"})

    assert read_stored() == COMMENTED.replace('"old"', '"new"') + '\n[third]\nbearer_token = "hush-5"\n'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[default.more]\nconsumer_key = 'hush'\n", InvalidArgument),
        ("[[default]]\n", InvalidArgument),
        ("[default]\nconsumer_kee = 'hush'\n", InvalidArgument),
        ("[default\nhush", UnusableFile),
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_left_as_it_was(text: str, kind: type[SvcError]) -> None:
    write(text)
    with pytest.raises(kind) as caught:
        profiles.write("default", SETTINGS)

    assert read_stored() == text
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'default = {consumer_key = "old"}\n',
        '[default]\nconsumer_key = """\nold\n"""  # of several lines\n',
        '"default" = {}\n[other]\nconsumer_key = "1"\n',
        'other.consumer_key = "1"\n[default]\n',
    ],
)
def test_a_profile_may_be_written_in_any_way_of_toml(text: str) -> None:
    write(text)
    before = tomllib.loads(text)
    profiles.write("default", SETTINGS)
    assert tomllib.loads(read_stored()) == {**before, "default": SETTINGS}


def test_secrets_do_not_go_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "shared.toml"
    target.write_text(PROFILE, encoding="utf-8")
    path = profiles.default_path()
    path.parent.mkdir()
    path.symlink_to(target)
    with pytest.raises(UnusableFile, check=has(path=str(path))):
        profiles.write("default", SETTINGS)

    assert target.read_text(encoding="utf-8") == PROFILE


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "svc_async").write_text("a file")
    with pytest.raises(UnusableFile, check=has(path=str(profiles.default_path()))):
        profiles.write("default", SETTINGS)


def test_a_profile_that_is_not_there_loses_nothing() -> None:
    write(PROFILE)
    with pytest.raises(InvalidArgument, check=has(parameter="profile")):
        profiles.remove("other", ["access_token"])

    assert read_stored() == PROFILE


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o640, 0), (0o604, 1), (0o602, 1), (0o644, 1)])
def test_a_file_that_all_users_can_open_is_reported(mode: int, warnings: int, caplog: pytest.LogCaptureFixture) -> None:
    write(PROFILE)
    profiles.default_path().chmod(mode)
    profiles.from_profile("default")
    assert len(caplog.messages) == warnings
    assert all("can open" in each and "chmod 600" in each and "hush" not in each for each in caplog.messages)
