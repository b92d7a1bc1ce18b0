"""Undoes what a test does to the loggers of the SDK."""

import logging
from collections.abc import Iterator

import pytest

__all__ = ["keep_loggers"]


@pytest.fixture
def keep_loggers() -> Iterator[None]:
    logger = logging.getLogger("svc_async")
    level, handlers = logger.level, [*logger.handlers]
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers
