"""A server of aiohttp for strangers: what they send, or do not send, costs little and prints no traceback."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["log_malformed_requests_briefly", "open_server"]

_HEAD_DEADLINE: Final = 30.0
"""Seconds from the opening of a connection, or from the answer before, in which the head of a request arrives."""


@asynccontextmanager
async def open_server(
    app: web.Application, *, host: str, port: int, shutdown_timeout: float = 60.0
) -> AsyncGenerator[int]:
    """Serve an application within the block.

    Args:
        app: the application.
        host: the address to listen on.
        port: the port; 0 chooses a free one.
        shutdown_timeout: seconds that requests in progress have at the end.

    Yields:
        The port.

    Raises:
        OSError: the address cannot be listened on.
    """
    log_malformed_requests_briefly()
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        keepalive_timeout=_HEAD_DEADLINE,
        shutdown_timeout=shutdown_timeout,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def log_malformed_requests_briefly() -> None:
    """Log what is not HTTP as aiohttp logs requests of TLS to a port without it: at the level DEBUG.

    By default it logs an error with a traceback, which strangers can have printed as often as they like.
    """
    logging.getLogger("aiohttp.server").addFilter(_log_briefly)  # which is added once


def _log_briefly(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, HttpProcessingError | web.RequestPayloadError):
        return True
    record.msg, record.args = "a malformed request was refused: %s", (type(error).__name__,)
    record.exc_info = record.exc_text = None
    record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)
