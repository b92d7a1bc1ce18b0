"""The grants of OAuth 2.0, without a connection."""

import re
import traceback
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import pytest

from svc_async.auth.credentials import OAuth2UserCredentials
from svc_async.auth.oauth2 import begin_authorization, code_grant, parse_code, parse_token, refresh_grant
from svc_async.errors import InvalidArgument
from tests.support.errors import has

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BACK = "https://example.test/back?x=1"
PENDING = begin_authorization(
    "https://example.test/authorize", client_id="c/1", redirect_uri=BACK, scopes=["follow.read", "offline.access"]
)
BEFORE = OAuth2UserCredentials(access_token="old", refresh_token="kept", client_id="c", scopes="a b")


@pytest.mark.rule("AUTH-26")
def test_the_page_receives_a_challenge_and_never_the_verifier() -> None:
    page, _, query = PENDING.url.partition("?")
    challenge = urlsafe_b64encode(sha256(PENDING.code_verifier.encode()).digest()).decode().rstrip("=")

    assert (page, PENDING.redirect_uri) == ("https://example.test/authorize", BACK)
    assert dict(parse_qsl(query)) == {
        "response_type": "code",
        "client_id": "c/1",
        "redirect_uri": BACK,
        "scope": "follow.read offline.access",
        "state": PENDING.state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    assert re.fullmatch("[A-Za-z0-9]{64}", PENDING.code_verifier)
    assert len(PENDING.state) >= 30


def test_what_belongs_to_one_user_does_not_show() -> None:
    assert repr(PENDING) == f"PendingAuthorization(redirect_uri={BACK!r})"


def test_the_code_is_in_the_url_that_the_user_returned_to() -> None:
    assert parse_code(f"{BACK}&{urlencode({'state': PENDING.state, 'code': 'c/1'})}", PENDING) == "c/1"


@pytest.mark.parametrize(
    "query",
    [
        "code=hush&state=other",
        "code=hush",
        "error=access_denied&state=other",
        "error=access_denied",
        "state={state}",
        "error=&state={state}",
        "",
    ],
)
def test_a_redirect_without_the_code_of_this_authorization_is_refused(query: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="redirect")) as caught:
        parse_code(f"https://example.test/back?{query.format(state=PENDING.state)}", PENDING)
    assert "denied" not in str(caught.value)  # the error of another authorization is not believed
    assert "hush" not in list_locals(caught.tb)


@pytest.mark.parametrize("redirect", ["https://[", "c/1", "code=hush&state={state}"])
def test_a_redirect_is_a_url_with_a_query(redirect: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="redirect")):
        parse_code(redirect.format(state=PENDING.state), PENDING)


@pytest.mark.parametrize(
    "error",
    [
        "invalid_request",
        "unauthorized_client",
        "access_denied",
        "unsupported_response_type",
        "invalid_scope",
        "server_error",
        "temporarily_unavailable",
    ],
)
def test_a_redirect_with_an_error_says_which(error: str) -> None:
    query = urlencode({"error": error, "error_description": "hush", "state": PENDING.state})
    with pytest.raises(InvalidArgument, check=has(parameter="redirect")) as caught:
        parse_code(f"{BACK}&{query}", PENDING)
    assert error in str(caught.value)
    assert "hush" not in f"{caught.value} {list_locals(caught.tb)}"
    assert not caught.value.repeatable  # the same redirect cannot help


@pytest.mark.parametrize("error", ["hush", "ACCESS_DENIED", "access_denied\n"])
def test_an_error_that_oauth_does_not_define_is_not_quoted(error: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="redirect")) as caught:
        parse_code(f"{BACK}&{urlencode({'error': error, 'state': PENDING.state})}", PENDING)
    assert error.strip() not in f"{caught.value} {list_locals(caught.tb)}"


def list_locals(trace: Any) -> str:
    """Return what a report of errors would show of the frames in the package."""
    frames = [frame for frame, _ in traceback.walk_tb(trace) if frame.f_globals["__name__"].startswith("svc_async")]
    return " ".join(repr(frame.f_locals) for frame in frames)


@pytest.mark.parametrize(("client_id", "named"), [("c/1", {"client_id": "c/1"}), (None, {})])
def test_a_grant_is_a_form_that_names_a_client_without_a_secret(client_id: str | None, named: dict[str, str]) -> None:
    assert dict(parse_qsl(code_grant("x y", PENDING, client_id=client_id).decode())) == {
        "grant_type": "authorization_code",
        "code": "x y",
        "redirect_uri": BACK,
        "code_verifier": PENDING.code_verifier,
        **named,
    }
    assert dict(parse_qsl(refresh_grant("r+", client_id=client_id).decode())) == {
        "grant_type": "refresh_token",
        "refresh_token": "r+",
        **named,
    }


ANSWER = {"token_type": "bearer", "access_token": "new"}


@pytest.mark.parametrize(
    ("answer", "previous", "expected"),
    [
        (ANSWER, None, {}),
        ({**ANSWER, "token_type": "Bearer"}, None, {}),
        ({"access_token": "new", "refresh_token": "next"}, BEFORE, {"refresh_token": "next", "scopes": ("a", "b")}),
        (ANSWER, BEFORE, {"refresh_token": "kept", "scopes": ("a", "b")}),
        ({**ANSWER, "refresh_token": "next", "scope": "c"}, BEFORE, {"refresh_token": "next", "scopes": ("c",)}),
        ({**ANSWER, "refresh_token": "", "scope": ""}, BEFORE, {"refresh_token": "kept", "scopes": ("a", "b")}),
        ({**ANSWER, "expires_in": 7200}, None, {"expires_at": NOW + timedelta(hours=2)}),
        ({**ANSWER, "expires_in": 0.5}, None, {"expires_at": NOW + timedelta(seconds=0.5)}),
        ({**ANSWER, "expires_in": -1}, None, {"expires_at": NOW}),
        ({**ANSWER, "expires_in": 3_153_600_000}, None, {"expires_at": NOW + timedelta(days=36_500)}),
        ({**ANSWER, "expires_in": 3_153_600_001}, None, {"expires_at": NOW + timedelta(days=36_500)}),
        ({**ANSWER, "expires_in": "7200"}, None, {"expires_at": NOW + timedelta(hours=2)}),
        ({**ANSWER, "expires_in": "soon"}, None, {}),
        ({**ANSWER, "expires_in": True}, None, {}),
        ({**ANSWER, "scope": ["a", "b"]}, None, {"scopes": ("a", "b")}),
        ({**ANSWER, "scope": 5}, BEFORE, {"refresh_token": "kept", "scopes": ("a", "b")}),
        ({**ANSWER, "scope": [5]}, None, {}),
        ({**ANSWER, "expires_at": 5}, None, {}),
    ],
)
def test_an_answer_has_the_next_token(
    answer: object, previous: OAuth2UserCredentials | None, expected: dict[str, Any]
) -> None:
    granted = parse_token(answer, now=NOW, client_id="c", previous=previous)
    assert granted == attrs.evolve(OAuth2UserCredentials(access_token="new", client_id="c"), **expected)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [ANSWER],
        {},
        {"access_token": "hush"},
        {"token_type": "mac", "access_token": "hush"},
        {"token_type": "bearer", "refresh_token": "hush"},
        {"token_type": "bearer", "access_token": 7},
        {**ANSWER, "refresh_token": ["hush"]},
    ],
)
def test_an_answer_without_a_bearer_token_has_none(answer: object) -> None:
    assert parse_token(answer, now=NOW, client_id="c") is None


def test_each_authorization_has_its_own_state_and_verifier() -> None:
    other = begin_authorization("https://example.test", client_id="c", redirect_uri=BACK, scopes=[])
    assert urlsplit(other.url).path == ""
    assert len({PENDING.state, PENDING.code_verifier, other.state, other.code_verifier}) == 4
