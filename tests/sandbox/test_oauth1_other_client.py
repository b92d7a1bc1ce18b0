"""OAuth 1.0a in three steps with another client, as an independent witness."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from requests_oauthlib import OAuth1Session

from svc_async.sandbox import Sandbox

REQUEST = "/oauth/request_token"
ACCESS = "/oauth/access_token"
INVALIDATE = "/1.1/oauth/invalidate_token"


def _open_session(sandbox: Sandbox, **settings: Any) -> OAuth1Session:
    """Return another client, on the sandbox's time."""
    return OAuth1Session(
        sandbox.app["consumer_key"],
        sandbox.app["consumer_secret"],
        timestamp=str(int(sandbox.clock.now().timestamp())),
        **settings,
    )


@pytest.mark.rule("AUTH-01", "AUTH-03", "AUTH-08", "AUTH-14d", "AUTH-16b", "AUTH-17")
@pytest.mark.parametrize("callback", ["oob", "http://127.0.0.1:8399/callback"])
async def test_another_client_walks_all_the_steps(sandbox: Sandbox, callback: str) -> None:
    assert await asyncio.to_thread(_walk, sandbox, callback) == [200, 200, 401]


def _walk(sandbox: Sandbox, callback: str) -> list[int]:
    url = sandbox.base_url
    with _open_session(sandbox, callback_uri=callback) as asking:
        token = asking.fetch_request_token(f"{url}{REQUEST}")
        page = asking.authorization_url(f"{url}/oauth/authorize", force_login="true")
    verifier = _approve(page)
    owner = {"resource_owner_key": token["oauth_token"], "resource_owner_secret": token["oauth_token_secret"]}
    with _open_session(sandbox, verifier=verifier, **owner) as exchanging:
        granted = exchanging.fetch_access_token(f"{url}{ACCESS}")
    assert granted["screen_name"] == "anna"
    owner = {"resource_owner_key": granted["oauth_token"], "resource_owner_secret": granted["oauth_token_secret"]}
    with _open_session(sandbox, **owner) as user:
        account = f"{sandbox.ads_url}/12/accounts"
        answers = [
            user.get(account, params={"q": "Harbour: 100 %, café"}),
            user.post(f"{url}{INVALIDATE}"),
            user.get(account),
        ]
    return [answer.status_code for answer in answers]


def _approve(page: str) -> str:
    """Approve on the page, as a user does, and return the verifier or the PIN."""
    with requests.Session() as browser:
        shown = browser.get(page, timeout=10)
        fields = dict(
            part.split('" value="') for part in _find_between(shown.text, '<input type="hidden" name="', '">')
        )
        fields |= {"screen_name": "anna", "decision": "approve"}
        done = browser.post(page.partition("?")[0], data=fields, allow_redirects=False, timeout=10)
    if pin := _find_between(done.text, "<output>", "</output>"):
        return pin[0]
    return dict(parse_qsl(urlsplit(done.headers["Location"]).query))["oauth_verifier"]


def _find_between(text: str, start: str, end: str) -> list[str]:
    return [part.partition(end)[0] for part in text.split(start)[1:]]
