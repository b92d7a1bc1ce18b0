"""What a stream or an answer sends takes no more memory and time than is stated, whatever it holds."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import attrs

from svc_async import SvcError
from svc_async.ads.accounts import Account
from svc_async.ads.products import ProductDeleteResult, ProductDeleteResults
from svc_async.batch.packing.batch import Batch
from svc_async.clock import SystemClock
from svc_async.engine.pipeline import Pipeline
from svc_async.engine.transport import OpenStream
from svc_async.events.parser import EventParser
from svc_async.lists.product_results import Deletions
from svc_async.platform.filtered_stream import Rules
from svc_async.sandbox import VirtualClock
from svc_async.streams.reader import StreamSource
from svc_async.streams.stream import EventStream, StreamSettings
from svc_async.wire.envelope import Answer
from svc_async.wire.reading import Reader
from svc_async.wire.route import Listing, Request
from tests.support.bounded_process import MIB, check_linear, measure_peak
from tests.support.scripted_server import Answer as Scripted
from tests.support.scripted_server import ScriptedServer, run_service

LIST = Listing("/12/accounts", Account)
TIMES = {"created_at": "Tue Aug 27 22:22:12 +0000 2019", "updated_at": "2026-01-02T03:04:05"}


@attrs.define
class Flood:
    """A connection that sends large events until the stream reads no more."""

    lines: int
    is_read: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def read_chunk(self) -> bytes:
        self.lines -= 1
        if not self.lines:
            self.is_read.set()
            await asyncio.Event().wait()
        values = "[]," * (MIB // 3)
        return f'{{"data":{{"event_type":"x","event_uuid":"{self.lines}","payload":[{values}0]}}}}\n'.encode()


async def follow(lines: int) -> int:
    flood = Flood(lines)

    @asynccontextmanager
    async def connect(_: Mapping[str, Any]) -> AsyncIterator[OpenStream]:
        yield cast(OpenStream, flood)

    source = StreamSource(connect=connect, max_connections=1)
    settings = StreamSettings(recover="off", overflow="drop_oldest")
    async with EventStream(source, settings, clock=SystemClock()) as stream:
        await flood.is_read.wait()
        return stream.stats.dropped


def test_the_queue_of_a_stream_is_bounded_whatever_its_events_hold() -> None:
    peak = measure_peak(follow, 14)  # each takes 24 MiB of memory
    assert peak.value > 5
    assert peak.bytes < 192 * MIB


def read_misfits(size: int) -> Callable[[], object]:
    account = {"id": 1, "name": "n", "timezone": "t", "approval_status": "x", "deleted": False, **TIMES}
    body = json.dumps({"data": [{**account, "business_id": []}] * size}).encode()
    return lambda: Reader().read(LIST(), Answer(status=200, headers={}, body=body)).items


def test_a_page_of_records_that_fit_in_part_is_linear() -> None:
    check_linear(read_misfits)


async def read_answers_of_many() -> float:
    """Receive hostile answers; return the most processor time that the event loop took without a break."""
    odd = json.dumps({"id": 5, "name": 6, "timezone": "t", "approval_status": "x", "deleted": False, **TIMES})
    bodies = [
        f'{{"data":[{",".join([record] * count)}]}}'.encode()
        for record, count in (("{}", 2_000_000), ("{}", 300_000), ("{}", 10_000), (odd, 10_000), ("0", 999_000))
    ]
    service, longest = ScriptedServer(VirtualClock()), 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)

    async with run_service(service), service.session() as session:
        task = asyncio.create_task(beat())
        for body in bodies:
            service.answer_all(Scripted(body))
            for call in (session.accounts.list().page, lambda: session.accounts.get("x")):
                with suppress(SvcError):
                    await call()
        task.cancel()
    return longest


def test_an_answer_of_many_records_does_not_stop_the_event_loop() -> None:
    peak = measure_peak(read_answers_of_many)
    assert peak.value < 0.5
    assert peak.bytes < 256 * MIB


def delete_products(size: int) -> Callable[[], object]:
    keys = [str(number) for number in range(size)]
    result = ProductDeleteResult(failed_product_key=keys, message=["no"] * size)
    batch = cast(Batch, SimpleNamespace(write_users=lambda: [json.dumps(keys)]))
    destination = Deletions(product_catalog_id="c", host="h", dialect=None)
    return lambda: destination.evaluate(ProductDeleteResults(delete_products=(result,)), batch)


class Answering:
    """A pipeline that answers every request with the same."""

    def __init__(self, body: object) -> None:
        self._answer = Answer(status=200, headers={}, body=json.dumps(body).encode())

    async def send(self, request: Request[Any]) -> object:
        return Reader().read(request, self._answer)


def refuse_rules(size: int) -> Callable[[], object]:
    rules = [str(number) for number in range(size)]
    errors = [{"value": rule, "title": "Invalid"} for rule in rules]
    pipeline = Answering({"errors": errors, "meta": {"sent": "2026-01-02T03:04:05Z", "summary": {}}})
    return lambda: Rules(cast(Pipeline, pipeline)).delete(rules)


def test_the_reasons_of_an_answer_are_read_in_linear_time() -> None:
    check_linear(delete_products, refuse_rules)


def parse_many(size: int) -> Callable[[], object]:
    """Return work on several bodies: one alone may hold too few events to take long enough on a fast machine."""
    events = [{"event_type": "post.create", "event_uuid": str(number), "payload": {}} for number in range(size)]
    body = json.dumps({"data": events}).encode()
    return lambda: sum(len(EventParser().parse(body)) for _ in range(20))


def test_a_body_of_many_events_that_do_not_fit_is_linear() -> None:
    check_linear(parse_many)


def read_text(size: int) -> Callable[[], object]:
    text = "\ud83d" * size * 1_000 + "-" * size * 1_000 + "9" * size * 1_000
    body = json.dumps({"data": [{"id": text, "created_at": text, "deleted": text}]}).encode()
    return lambda: Reader().read(LIST(), Answer(status=200, headers={}, body=body)).items


def test_a_long_string_in_every_field_is_linear() -> None:
    check_linear(read_text)
