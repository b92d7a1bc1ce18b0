"""Which messages of the library reach the terminal: the logger `svc_async`, printed as the command prints its own."""

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager

from svc_async.cli.output.console import say, terminal
from svc_async.errors import InvalidArgument

__all__ = ["print_log"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
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
    logger, printer = logging.getLogger("svc_async"), _LogPrinter()
    level = logger.level
    logger.setLevel(_find_level(verbose=verbose, quiet=quiet))
    logger.addHandler(printer)
    terminal.quiet = quiet
    try:
        yield
    finally:
        terminal.quiet = False
        logger.removeHandler(printer)
        logger.setLevel(level)


def _find_level(*, verbose: bool, quiet: bool) -> int:
    if verbose and quiet:
        raise InvalidArgument("--verbose", "must not be given with --quiet")
    if verbose or quiet:
        return logging.INFO if verbose else logging.ERROR
    named = os.environ.get("SVC_LOG") or "warning"
    if named.lower() not in _LEVELS:
        raise InvalidArgument("SVC_LOG", f"must be one of {', '.join(_LEVELS)}")
    return _LEVELS[named.lower()]
