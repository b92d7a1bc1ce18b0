"""Uploads a few requests one after another with a journal in a file; run with `trace_syscalls.c` preloaded.

The arguments are the path of the journal and statements for its connection.
"""

import asyncio
import sys

import attrs

from svc_async import Session
from svc_async.sandbox import Sandbox
from tests.support.fake_service import make_members
from tests.support.journals import make_journal

REQUESTS = 8


async def main(path: str, *statements: str) -> None:
    """Upload."""
    async with Sandbox() as sandbox, Session.sandbox(sandbox) as session:
        users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
        users = attrs.evolve(users, limits=attrs.evolve(users.limits, operations=1))
        journal = make_journal(path, *statements)
        report = await users.upload(make_members(REQUESTS), journal=journal, users_per_operation=1, concurrency=1)
        assert report.requests == REQUESTS


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
