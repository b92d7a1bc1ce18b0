"""Which messages of the library reach the terminal: the logger `svc_async`, printed as the command prints its own."""

import logging
import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from svc_async.cli.output.console import say, stderr, terminal
from svc_async.errors import InvalidArgument
from svc_async.monitoring.logs import show

__all__ = ["hide_warnings", "print_log"]

_STYLES = {logging.DEBUG: "dim", logging.INFO: "dim", logging.WARNING: "yellow"}


_LONG_PATH = re.compile(r"^([A-Z]+) /\S*/([^\s/]+):(?= )")
"""The beginning of a message about a call: its method and path."""


class _LogPrinter(logging.Handler):
    """Prints records to stderr, above a bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level, message = f"{record.levelname.lower()}: ", record.getMessage()
            console = stderr()
            if console.is_terminal:
                fits = len(message) <= console.width - len(level)
                message = message if fits else _LONG_PATH.sub(r"\1 …/\2:", message, count=1)
            say((level, _STYLES.get(record.levelno, "bold red")), message, needed=True)
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
        chosen = "info" if verbose else "error" if quiet else (os.environ.get("SVC_LOG") or "warning").lower()
        try:
            show(cast(Any, chosen))
        except InvalidArgument as error:
            raise InvalidArgument("SVC_LOG", error.rule) from None
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
