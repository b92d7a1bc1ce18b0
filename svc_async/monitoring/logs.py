"""Shows the log of the SDK, for programs that configure no logging of their own.

    svc_async.http      INFO one line a call, DEBUG one an attempt, WARNING a call that is repeated, also of a job
    svc_async           everything else, such as answers that do not fit and limits that cannot be shared

Importing the SDK changes no logger and installs no handler.
"""

import logging
import os
from collections.abc import Mapping
from typing import Any, Literal, cast

from svc_async.errors import InvalidArgument

__all__ = ["show", "show_as_set"]

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def show(level: Literal["debug", "info", "warning", "error"]) -> None:
    """Log calls (`info`), each of their attempts as well (`debug`), or only what is wrong (`warning`, `error`).

    It goes to the handlers that the program has configured; where there are none, to standard error.

    Raises:
        InvalidArgument: the level is not one of these.
    """
    if level not in _LEVELS:
        raise InvalidArgument("level", f"must be one of {', '.join(_LEVELS)}")
    logger = logging.getLogger("svc_async")
    logger.setLevel(_LEVELS[level])
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        handler.name = __name__
        logger.addHandler(handler)


def show_as_set(environ: Mapping[str, str] | None = None) -> None:
    """Do as the variable `SVC_LOG` says, if it is set; a program that has given the logger a handler is left alone.

    Raises:
        InvalidArgument: it names no level.
    """
    named = ((os.environ if environ is None else environ).get("SVC_LOG") or "").lower()
    if not named:
        return
    if named not in _LEVELS:
        raise InvalidArgument("SVC_LOG", f"must be one of {', '.join(_LEVELS)}")
    if all(handler.name == __name__ for handler in logging.getLogger("svc_async").handlers):
        show(cast(Any, named))
