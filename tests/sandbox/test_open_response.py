"""Operations that write their own answer: late, in pieces, or as long as the client is connected."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from svc_async.sandbox import Fault, Sandbox, SandboxConfig, VirtualClock
from svc_async.sandbox.refusal import Problem, Refusal
from svc_async.sandbox.server.operations import Answer, Call, Operation, Serve
from svc_async.sandbox.server.rendering import Format, OpenResponse
from tests.support.raw_client import RawClient

PIECE = {"Content-Type": "application/json"}


def _operation(name: str, serve: Serve) -> Operation:
    return Operation(
        id=f"probe.{name}",
        method="GET",
        path=f"/2/{name}",
        serve=serve,
        limit="filtered_connects",
        rule="ASM-54",
        surface="base",
        format=Format.V2,
    )


class Probed(Sandbox):
    """A sandbox with operations that write their own answer or wait.

    Attributes:
        seen: how far they came.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.seen: list[str] = []

    @property
    def operations(self) -> tuple[Operation, ...]:
        probes = {"beat": self._beat, "late": self._answer_late, "refuse": self._refuse}
        return (*super().operations, *(_operation(name, serve) for name, serve in probes.items()))

    async def _beat(self, _call: Call, response: OpenResponse) -> None:
        """Send a blank line, then nothing until the connection is closed."""
        stream = await response.start(headers=PIECE)
        await stream.write(b"\r\n")
        with response.clock.release():
            await response.closed.wait()
        self.seen.append("over")

    async def _answer_late(self, call: Call, response: OpenResponse) -> Answer:
        """Wait a minute, then answer as usual."""
        with response.clock.release():
            await response.clock.sleep(60)
        with call.sandbox.store.transaction():
            self.seen.append(call.sandbox.store["seen"].add("", {"id": "late"}).id)
        return Answer({"late": True})

    async def _refuse(self, _call: Call, _response: OpenResponse) -> None:
        problem = Problem("TooManyConnections", "one is open")
        raise Refusal(429, problem, more={"connection_issue": "TooManyConnections"})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(mode="jump")


@pytest.fixture
async def sandbox(clock: VirtualClock, config: SandboxConfig) -> AsyncIterator[Probed]:
    async with Probed(clock=clock, config=config) as running:
        yield running


def signed(raw: RawClient, path: str) -> tuple[str, dict[str, str]]:
    url = f"{raw.sandbox.base_url}{path}"
    return url, {"Authorization": raw.sign("GET", url)}


async def test_a_line_stays_open_until_the_caller_hangs_up(raw: RawClient, sandbox: Probed) -> None:
    url, headers = signed(raw, "/2/beat")
    answer = await raw.http.get(url, headers=headers)
    assert await answer.content.readline() == b"\r\n"
    assert answer.headers["x-sandbox-rule"] == "ASM-54"
    assert answer.headers["x-rate-limit-remaining"] == "49"
    assert answer.headers["x-transaction-id"] == f"{0:016x}"
    assert raw.sandbox.requests[0].status == 200
    assert sandbox.seen == []
    answer.close()
    await raw.sandbox.clock.sleep(1)
    assert sandbox.seen == ["over"]


async def test_a_line_is_over_when_the_sandbox_closes(raw: RawClient, sandbox: Probed) -> None:
    url, headers = signed(raw, "/2/beat")
    answer = await raw.http.get(url, headers=headers)
    await answer.content.readline()
    await raw.sandbox.aclose()
    assert sandbox.seen == ["over"]


async def test_an_answer_may_take_its_time(raw: RawClient, sandbox: Probed) -> None:
    before = raw.sandbox.clock.now()
    got = await raw("GET", "/2/late", base=raw.sandbox.base_url)
    assert (got.status, got.json, sandbox.seen) == (200, {"late": True}, ["late"])
    assert (raw.sandbox.clock.now() - before).total_seconds() == 60


async def test_a_line_may_be_refused(raw: RawClient) -> None:
    got = await raw("GET", "/2/refuse", base=raw.sandbox.base_url)
    assert (got.status, got.headers["Content-Type"]) == (429, "application/problem+json")
    assert got.json["connection_issue"] == "TooManyConnections"
    assert got.json["detail"] == "TooManyConnections: one is open"


async def test_faults_strike_before_a_line_opens(raw: RawClient, sandbox: Probed) -> None:
    raw.sandbox.faults.on("GET", "/2/beat").once().do(Fault.http(503))
    assert (await raw("GET", "/2/beat", base=raw.sandbox.base_url)).status == 503
    assert sandbox.seen == []


async def test_no_fault_strikes_after_a_line_that_answered_itself(raw: RawClient, sandbox: Probed) -> None:
    url, headers = signed(raw, "/2/beat")
    raw.sandbox.faults.on("GET", "/2/beat").once().do(Fault.http(503), stage="after")
    answer = await raw.http.get(url, headers=headers)
    answer.close()
    await raw.sandbox.clock.sleep(1)
    assert sandbox.seen == ["over"]
    assert raw.sandbox.requests[0].status == 200
