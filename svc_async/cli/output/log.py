"""Which messages of the library reach the terminal: the logger `svc_async`, printed as the command prints its own."""

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from svc_async.cli.output.console import say, terminal
from svc_async.errors import InvalidArgument
from svc_async.monitoring.logs import show

__all__ = ["hide_warnings", "print_log"]

_STYLES = {logging.DEBUG: "dim", logging.INFO: "dim", logging.WARNING: "yellow"}


class _LogPrinter(logging.Handler):
    """Prints records to stderr, above a bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(
                (f"{record.levelname.lower()}: ", _STYLES.get(record.levelno, "bold red")),
                record.getMessage(),
                needed=True,
            )
        except Exception:  # noqa: BLE001 - as all handlers do: a message that cannot be printed stops no job
            self.handleError(record)


@contextmanager
def print_log(*, verbose: bool, quiet: bool) -> Generator[None]:
    """Print what the library logs, from warnings on; with `verbose` each request as well, with `quiet` only errors.

    Raises:
        InvalidArgument: both are given, or SVC_LOG names no level.
    """
    if verbose and quiet:
        raise InvalidArgument("--verbose", "must not be given with --quiet")
    logger, printer = logging.getLogger("svc_async"), _LogPrinter()
    level = logger.level
    logger.addHandler(printer)
    terminal.quiet = quiet
    try:
        _set_level("info" if verbose else "error" if quiet else None)
        yield
    finally:
        terminal.quiet = False
        logger.removeHandler(printer)
        logger.setLevel(level)


@contextmanager
def hide_warnings() -> Generator[None]:
    """Print no warnings of the library, unless requests are printed: the command itself injects the faults."""
    logger = logging.getLogger("svc_async")
    level = logger.level
    if level == logging.WARNING:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _set_level(level: str | None) -> None:
    try:
        show(cast(Any, level or (os.environ.get("SVC_LOG") or "warning").lower()))
    except InvalidArgument as error:
        raise InvalidArgument("SVC_LOG", error.rule) from None
