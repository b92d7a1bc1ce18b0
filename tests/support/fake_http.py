"""Fixtures of narrow client tests: a session on a service that answers as each test says, without a socket."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from aioresponses import aioresponses

from svc_async import Endpoints, Retries, Session, UserCredentials

__all__ = ["HOSTS", "METHODS", "connect", "serve", "service", "session"]

HOSTS = Endpoints(
    base_url="https://base.example.test",
    ads_url="https://ads.example.test",
    ads_sandbox_url="https://ads-sandbox.example.test",
)

METHODS = ("GET", "POST", "PUT", "DELETE")


def connect(**settings: Any) -> Session:
    """Make a session that repeats nothing."""
    credentials = UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")
    return Session(credentials, endpoints=HOSTS, retries=Retries.none(), **settings)


def serve(service: aioresponses, payload: dict[str, Any] | None = None, *, status: int = 200) -> None:
    """Answer each method once, whatever the path."""
    for method in METHODS:
        service.add(re.compile(".*"), method, payload=payload, status=status)


@pytest.fixture
def service() -> Iterator[aioresponses]:
    with aioresponses() as service:
        yield service


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with connect() as session:
        yield session
