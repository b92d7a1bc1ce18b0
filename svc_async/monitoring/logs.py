"""Shows the log of the SDK, for programs that configure no logging of their own.

    svc_async.http      INFO one line a call, DEBUG one an attempt, WARNING a call that is repeated
    svc_async           everything else, such as answers that do not fit and limits that cannot be shared

Importing the SDK changes no logger and installs no handler.
"""

import logging
import os
from collections.abc import Mapping
from typing import Literal

from svc_async.errors import InvalidArgument

__all__ = ["show", "show_as_set"]

_LEVELS = {"info": logging.INFO, "debug": logging.DEBUG}
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show(level: Literal["info", "debug"], *, handler: logging.Handler | None = None) -> None:
    """Log calls (`info`), or each of their attempts (`debug`).

    They go to the handlers that the program has configured; where there are none, to standard error.

    Args:
        level: how much is logged.
        handler: where the log goes instead; one of an earlier call is replaced.

    Raises:
        InvalidArgument: the level is neither of the two.
    """
    if level not in _LEVELS:
        raise InvalidArgument("level", f"must be one of {', '.join(_LEVELS)}")
    logger = logging.getLogger("svc_async")
    logger.setLevel(_LEVELS[level])
    former = next((each for each in logger.handlers if each.name == __name__), None)
    if handler is None and (former is not None or logger.hasHandlers()):
        return
    if former is not None:
        logger.removeHandler(former)
    if handler is None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
    handler.name = __name__
    logger.addHandler(handler)


def show_as_set(environ: Mapping[str, str] | None = None) -> None:
    """Do as the variable `SVC_LOG` says, if it is set: `info` or `debug`.

    Raises:
        InvalidArgument: it has another value.
    """
    chosen = (os.environ if environ is None else environ).get("SVC_LOG")
    if not chosen:
        return
    if chosen not in _LEVELS:
        raise InvalidArgument("SVC_LOG", f"must be one of {', '.join(_LEVELS)}")
    show("debug" if chosen == "debug" else "info")
