"""No table of a shared state holds a token, or an identifier in the clear, after everything that may write to it."""

from datetime import timedelta

import pytest

from svc_async import Endpoints, Session, UserCredentials
from svc_async.sandbox import Sandbox
from svc_async.state import SharedState
from svc_async.webhooks import WebhookReceiver
from svc_async.webhooks.testing import build_delivery
from tests.support.deliveries import KEY
from tests.support.event_samples import activity

MEMBERS = [
    {"email": f"anna.{number}@example.test", "phone_number": f"+4930123456{number:02}", "handle": f"anna_{number}"}
    for number in range(20)
]


async def read_rows(state: SharedState) -> str:
    """Return every row of every table as text; binary values are in hexadecimal."""
    rows: list[str] = []
    for table in (await state.check()).tables:
        found = await state.database.fetch(f'SELECT each::text AS text FROM "{table.name}" AS each')  # noqa: S608 - ours
        rows += [row["text"] for row in found]
    return "\n".join(rows)


async def find(state: SharedState, *secrets: str) -> list[str]:
    """Return which texts are in a row, as text or as bytes."""
    content = await read_rows(state)
    return [secret for secret in secrets if secret in content or secret.encode().hex() in content]


async def test_what_was_written_is_found(postgres_url: str, schema: str) -> None:
    async with SharedState.open(postgres_url, schema=schema) as state:
        await state.database.execute("INSERT INTO event_bodies (body, events) VALUES ('a@example.test', 1)")
        await state.database.execute("CREATE TABLE other (note text)")
        await state.database.execute("INSERT INTO other VALUES ('+4930')")
        assert await find(state, "a@example.test", "+4930", "b@example.test") == ["a@example.test", "+4930"]


@pytest.mark.long("runs two syncs, a job and a receiver with a database")
async def test_no_token_and_no_identifier_is_stored(postgres_url: str, schema: str) -> None:
    async with Sandbox() as sandbox, SharedState.open(postgres_url, schema=schema) as state:
        credentials = UserCredentials(**sandbox.credentials)
        endpoints = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)
        async with Session(credentials, endpoints=endpoints, clock=sandbox.clock, state=state) as session:
            users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
            await users.sync(MEMBERS, state=state)
            await users.sync(MEMBERS[1:], state=state, max_removal_share=1.0)
            await users.upload(MEMBERS, journal=state.journal("customers"), state=state)
        async with WebhookReceiver(keys=[KEY], state=state) as receiver:
            event = activity("dm.received", uuid="1") | {"payload": {"text": "a private word"}}
            assert (await receiver.handle(*build_delivery({"data": event}, KEY))).status == 200
        identifiers = [value for member in MEMBERS for value in member.values()]
        secrets = [credentials.consumer_secret, credentials.token, credentials.token_secret, "a private word"]
        assert await find(state, *identifiers, *secrets) == []
        tables = {each.name: each.rows for each in (await state.check()).tables}
        assert {name for name in ("event_claims", "limit_buckets", "records") if not tables[name]} == set()
        report = await state.check()
        assert (report.jobs, len(report.syncs)) == ({"running": 0, "stopped": 0, "finished": 1}, 1)
        assert report.callers == 1
        assert (await state.prune(older_than=timedelta())).journals == 1
        report = await state.check()
        assert (report.jobs["finished"], len(report.syncs)) == (0, 1)  # a state of a list is never deleted
