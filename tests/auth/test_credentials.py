import re
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from svc_async import AppCredentials, BearerToken, InvalidArgument, OAuth2UserCredentials, UserCredentials
from svc_async.auth.authorization import authorization, identity
from svc_async.auth.credentials import WITH_USER, Credentials
from svc_async.clock import SystemClock
from tests.support.errors import has

KINDS: list[Credentials] = [
    UserCredentials(consumer_key="key", consumer_secret="hush-1", token="hush-2", token_secret="hush-3"),
    AppCredentials(consumer_key="key", consumer_secret="hush-1", client_id="c", client_secret="hush-2"),
    BearerToken("hush-1"),
    OAuth2UserCredentials(access_token="hush-1", refresh_token="hush-2", client_id="c"),
]


@pytest.mark.parametrize("credentials", KINDS)
def test_no_secret_shows_in_a_repr_or_in_the_name_for_limits(credentials: Credentials) -> None:
    assert "hush" not in f"{credentials!r} {credentials} {identity(credentials)}"


@pytest.mark.parametrize("value", ["", "  ", "a ", " a", "a\nb", "a\x00", None, 5])
def test_what_cannot_be_a_credential_is_refused_by_name(value: object) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="token_secret")):
        UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret=value)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("value", ["Bearer AAA%2FBBB", "bearer  x", "a b", "a\u00a0b", "t\u00f6ken", "", " a", None])
def test_what_cannot_be_a_bearer_token_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="token")):
        BearerToken(value)
    with pytest.raises(InvalidArgument, check=has(parameter="access_token")):
        OAuth2UserCredentials(access_token=value)


@pytest.mark.parametrize(("credentials", "scheme"), [*zip(KINDS, ["OAuth", "OAuth", "Bearer", "Bearer"], strict=True)])
def test_the_scheme_of_the_header_is_that_of_the_credentials(credentials: Credentials, scheme: str) -> None:
    header = authorization(credentials, SystemClock())("GET", "https://example.test/2/webhooks", (), None)
    assert header.partition(" ")[0] == scheme


@pytest.mark.rule("AUTH-27")
@pytest.mark.parametrize(("credentials", "is_user"), [*zip(KINDS, [True, False, False, True], strict=True)])
def test_the_advertising_api_takes_the_credentials_of_users(credentials: Credentials, is_user: bool) -> None:
    assert isinstance(credentials, WITH_USER) is is_user


def test_a_bearer_token_goes_out_as_it_came_in() -> None:
    header = authorization(BearerToken("AAA%2FBBB%3D"), SystemClock())
    assert header("GET", "https://example.test/2/webhooks", (), None) == "Bearer AAA%2FBBB%3D"


def test_scoped_tokens_are_bearer_tokens() -> None:
    header = authorization(OAuth2UserCredentials(access_token="tok"), SystemClock())
    assert header("GET", "https://example.test/2/webhooks", (), None) == "Bearer tok"


def test_scopes_are_read_as_the_service_writes_them() -> None:
    assert OAuth2UserCredentials(access_token="t", scopes="a b").scopes == ("a", "b")
    assert OAuth2UserCredentials(access_token="t", scopes=["a"]).scopes == ("a",)


@pytest.mark.parametrize("scopes", [5, None, [5]])
def test_scopes_are_strings(scopes: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="scopes")):
        OAuth2UserCredentials(access_token="t", scopes=scopes)


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01"])  # noqa: DTZ001 - what is refused
def test_an_end_has_a_time_zone(moment: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="expires_at")):
        OAuth2UserCredentials(access_token="t", expires_at=moment)


NAMES = """
from svc_async.auth.authorization import identity
from svc_async.auth.credentials import BearerToken
names = identity(BearerToken("a")), identity(BearerToken("b"))
assert names == (identity(BearerToken("a")), identity(BearerToken("b")))
print(*names)
"""


@pytest.mark.long("another process has to make the names")
def test_the_name_of_a_token_is_a_hash_that_is_the_same_in_all_processes() -> None:
    output = subprocess.run([sys.executable, "-c", NAMES], capture_output=True, check=True).stdout
    names = output.decode().split()

    assert names == [identity(BearerToken(token)) for token in "ab"]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"BearerToken:[0-9a-f]{32}", name) for name in names)


def test_a_user_implies_the_app() -> None:
    user = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    assert user.app == AppCredentials(consumer_key="k", consumer_secret="s")


def test_one_token_has_one_name_for_limits_and_two_have_two() -> None:
    assert identity(BearerToken("a")) == identity(BearerToken("a"))
    assert len({identity(credentials) for credentials in [*KINDS, BearerToken("a"), BearerToken("b")]}) == 6
