"""Sessions whose HTTP answers are faked, without a socket, and their fixtures."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Unpack

import pytest
from aioresponses import aioresponses

from svc_async import Endpoints, Retries, Session, UserCredentials
from tests.support.session_options import SessionOptions

__all__ = ["ENDPOINTS", "METHODS", "answer_any_method", "answer_next", "make_session", "service", "session"]

ENDPOINTS = Endpoints(
    base_url="https://base.example.test",
    ads_url="https://ads.example.test",
    ads_sandbox_url="https://ads-sandbox.example.test",
)

METHODS = ("GET", "POST", "PUT", "DELETE")


def make_session(**options: Unpack[SessionOptions]) -> Session:
    """Return a session that, by default, repeats no call."""
    options.setdefault("retries", Retries.none())
    credentials = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    return Session(credentials, endpoints=ENDPOINTS, **options)


def answer_any_method(
    service: aioresponses, payload: dict[str, object] | None = None, *, status: int = 200, repeat: bool = False
) -> None:
    """Answer one request of each method, or all of them, whatever its path."""
    for method in METHODS:
        service.add(re.compile(".*"), method, payload=payload, status=status, repeat=repeat)


def answer_next(service: aioresponses, payload: dict[str, object]) -> None:
    """Answer the next request, and forget those before."""
    service.clear()
    service.requests.clear()
    answer_any_method(service, payload)


@pytest.fixture
def service() -> Iterator[aioresponses]:
    with aioresponses() as service:
        yield service


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with make_session() as session:
        yield session
