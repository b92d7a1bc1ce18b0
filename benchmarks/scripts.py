"""Two scripts that upload a customer file, as one writes them by hand: a loop, and a task for each request.

They normalise, hash and count, and send requests of the size that the service takes. They keep no order, wait for no
limit and recover from nothing.
"""

import asyncio
import csv
import json
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
from oauthlib.oauth1 import Client
from requests_oauthlib import OAuth1Session

from benchmarks import sink
from benchmarks.fake_transport import CREDENTIALS

__all__ = ["upload_in_a_loop", "upload_with_tasks"]

_OPERATIONS = {1: 2_500, 25: 2_470}
"""Operations of a request by users of an operation: more would exceed 5,000,000 bytes."""
_AT_ONCE = 32
_JSON = {"Content-Type": "application/json"}
_KEYS = (CREDENTIALS.consumer_key, CREDENTIALS.consumer_secret, CREDENTIALS.token, CREDENTIALS.token_secret)


def upload_in_a_loop(users_per_operation: int, file: Path, service: sink.Sink) -> int:
    """Send one request after the other with the common HTTP library; return how many rows were accepted."""
    accepted = 0
    with OAuth1Session(*_KEYS) as session:
        for operations in _read_operations(file, users_per_operation):
            response = session.post(service.users_url, json=operations, verify=str(service.certificate))
            response.raise_for_status()
            accepted += response.json()["data"]["success_count"]
    return accepted


def upload_with_tasks(users_per_operation: int, file: Path, service: sink.Sink) -> int:
    """Send many requests at once with asyncio; return how many rows were accepted."""

    async def upload() -> int:
        oauth = Client(*_KEYS)
        turn = asyncio.Semaphore(_AT_ONCE)

        async def post(operations: list[Any]) -> int:
            async with turn:
                _, headers, _ = oauth.sign(service.users_url, "POST", headers=_JSON)
                async with client.post(service.users_url, data=json.dumps(operations), headers=headers) as response:
                    response.raise_for_status()
                    return int((await response.json())["data"]["success_count"])

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=service.require_trust())) as client:
            posts = [post(operations) for operations in _read_operations(file, users_per_operation)]
            return sum(await asyncio.gather(*posts))

    return asyncio.run(upload())


def _read_operations(file: Path, users_per_operation: int) -> Iterator[list[Any]]:
    with file.open(encoding="utf-8", newline="") as text:
        users = ({"email": [_hash(row["email"])]} for row in csv.DictReader(text))
        while operations := list(islice(_group(users, users_per_operation), _OPERATIONS[users_per_operation])):
            yield operations


def _group(users: Iterator[Any], users_per_operation: int) -> Iterator[Any]:
    while members := list(islice(users, users_per_operation)):
        times = {"effective_at": "2026-01-10T23:00:00Z", "expires_at": "2027-02-10T23:00:00Z"}
        yield {"operation_type": "Update", "params": {"users": members, **times}}


def _hash(email: str) -> str:
    return sha256(email.strip().lower().encode()).hexdigest()
