"""Follows a job in its journal, and shows it on a page of this machine until it ends.

Only this machine is answered, only whoever knows the URL, and no page of another site: the server listens on a loopback
address, its paths begin with a secret, `Host` must name it, and `Origin` and `Sec-Fetch-Site` must not speak of others.
"""

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

import attrs
from aiohttp import web

from svc_async.batch.journal.record import JournalRecord
from svc_async.cancellation import in_thread
from svc_async.cli.job_journal import UNKNOWN_JOB, find_job
from svc_async.cli.job_page import describe_journal_page
from svc_async.clock import Clock, SystemClock
from svc_async.errors import InvalidArgument
from svc_async.jobs.html_report import JobRecord, read_style, render_content, report_page
from svc_async.state import SharedState
from svc_async.webhooks.server import open_server

__all__ = ["ReadJournal", "follow", "open_file", "open_state"]

_PAUSE = 1.0
"""Seconds between two looks into a journal."""
_HOST = "127.0.0.1"
_LIVE = '\n<script type="module" src="live.js"></script>'
_CONNECTION = '<p id="connection" class="live" role="status"></p>'
_CLOSING = 5.0
"""Seconds for which the last content may take to arrive."""
_READING = 30.0
"""Seconds for which any other content may."""
_MOST_READERS = 32
"""Open pages that are kept up to date; another one has to be loaded again to see what has changed."""


ReadJournal = Callable[[], Awaitable[JournalRecord]]


@asynccontextmanager
async def open_file(path: Path) -> AsyncGenerator[ReadJournal]:
    """Yield what reads a journal in a file."""

    async def read() -> JournalRecord:
        return await in_thread(lambda: JournalRecord.read(path))

    yield read


@asynccontextmanager
async def open_state(state: SharedState, job: str) -> AsyncGenerator[ReadJournal]:
    """Yield what reads the journal of a job in a shared state."""
    async with state:

        async def read() -> JournalRecord:
            record = await find_job(state, job)
            if record is None:
                raise InvalidArgument("--job", UNKNOWN_JOB)
            return record

        yield read


async def follow(
    read: ReadJournal, *, port: int, on_open: Callable[[str], Awaitable[None]], clock: Clock | None = None
) -> JournalRecord:
    """Show a job on a page until it is finished, or stops after it ran; return what the journal says then.

    Args:
        read: reads the journal.
        port: the port of this machine; 0 takes a free one.
        on_open: called with the URL of the page.
        clock: the time between two looks.
    """
    clock = clock or SystemClock()
    record = await read()
    server = _WatchServer(describe_journal_page(record, clock))
    async with server.serve(port):
        await on_open(server.url)
        has_run = record.running
        while record.running or not (has_run or record.finished):
            await clock.sleep(_PAUSE)
            record = await read()
            has_run |= record.running
            await server.update(describe_journal_page(record, clock))
        await server.end()
    return record


_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@cache
def _make_headers() -> Mapping[str, str]:
    digest = base64.b64encode(hashlib.sha256(read_style().encode()).digest()).decode()
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "connect-src": "'self'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


@attrs.define
class _WatchServer:
    """The page of a job.

    Attributes:
        record: what it says now.
        url: where it is.
    """

    record: JobRecord
    url: str = ""
    _changed: asyncio.Condition = attrs.field(factory=asyncio.Condition, init=False)
    _has_ended: bool = attrs.field(default=False, init=False)
    _readers: int = attrs.field(default=0, init=False)

    @asynccontextmanager
    async def serve(self, port: int) -> AsyncGenerator[None]:
        """Listen on a port of this machine; 0 takes a free one.

        Raises:
            InvalidArgument: it cannot be listened on.
        """
        secret = secrets.token_urlsafe(12)
        server = web.Application(middlewares=[self._guard])
        server.on_response_prepare.append(_add_headers)
        server.add_routes(
            [
                web.get(f"/{secret}/", self._send_page),
                web.get(f"/{secret}/live.js", _send_script),
                web.get(f"/{secret}/events", self._send_events),
            ]
        )
        async with AsyncExitStack() as stack:
            try:
                taken = await stack.enter_async_context(
                    open_server(server, host=_HOST, port=port, shutdown_timeout=0.1)
                )
            except OSError as error:
                rule = f"cannot be listened on: {error.strerror or 'not possible'}"
                raise InvalidArgument("--port", rule) from None
            self.url = f"http://{_HOST}:{taken}/{secret}/"
            yield

    async def update(self, record: JobRecord) -> None:
        """Show what a job says now."""
        if record != self.record:
            async with self._changed:
                self.record = record
                self._changed.notify_all()

    async def end(self) -> None:
        """Note that the job has ended, and wait until all open pages show its last state."""
        async with self._changed:
            self._has_ended = True
            self._changed.notify_all()
            try:
                await asyncio.wait_for(self._changed.wait_for(lambda: not self._readers), _CLOSING)
            except TimeoutError:
                return

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse what other sites request, or what reaches this machine under another name."""
        if not _is_own(request, self.url):
            return web.Response(status=403, text="This page is for this machine only.")
        return await handler(request)

    async def _send_page(self, _: web.Request) -> web.Response:
        page = report_page(self.record, live=_LIVE).replace("<main>", f"{_CONNECTION}\n<main>", 1)
        return web.Response(text=page, content_type="text/html")

    async def _send_events(self, request: web.Request) -> web.StreamResponse:
        if self._readers >= _MOST_READERS:
            return web.Response(status=503, text="Too many pages of this job are open.")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        self._readers += 1
        try:
            with suppress(ConnectionError, TimeoutError):  # its reader has closed the page, or does not read
                await response.prepare(request)
                await self._follow(response)
        finally:
            async with self._changed:
                self._readers -= 1
                self._changed.notify_all()
        return response

    async def _follow(self, response: web.StreamResponse) -> None:
        shown: JobRecord | None = None
        while True:
            async with self._changed:
                while self.record is shown and not self._has_ended:
                    await self._changed.wait()
                record, has_ended = self.record, self._has_ended
            if record is not shown:
                content = json.dumps(render_content(record))
                async with asyncio.timeout(_READING):
                    await response.write(f"event: content\ndata: {content}\n\n".encode())
                shown = record
            if has_ended:
                await response.write(b"event: end\ndata:\n\n")
                return


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_make_headers())


async def _send_script(_: web.Request) -> web.Response:
    script = files("svc_async.cli").joinpath("watch.js").read_text(encoding="utf-8")
    return web.Response(text=script, content_type="text/javascript")


def _is_own(request: web.Request, url: str) -> bool:
    """Return whether a request comes from the page itself, or from a person who opens it."""
    port = url.split(":")[2].split("/", maxsplit=1)[0]
    hosts = {f"{name}:{port}" for name in (_HOST, "localhost")}
    origin, fetched = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")
    opens = request.headers.get("Sec-Fetch-Mode") == "navigate"
    return (
        request.headers.get("Host") in hosts
        and (origin is None or origin in {f"http://{host}" for host in hosts})
        and (fetched in {"none", "same-origin"} or opens)
    )
