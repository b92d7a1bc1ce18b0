"""A plugin of pytest that limits the processor time of a run: `pytest --processor-seconds 150`.

It counts what pytest, its workers and the processes that they start use, as if all had been in one process: workers
import and collect the same modules, so that the largest of these times counts once. No test fails by its own time; the
run fails by the sum, and names the tests that use most.

The limit does not depend on the machine, whose speed may be another one a minute later: all along the run, a piece of
work of always the same size is timed, and the seconds count as those of a machine that does it in `_USUAL`.
"""

import argparse
import os
import statistics
import time
from collections.abc import Generator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any, NamedTuple

import pytest

__all__ = ["pytest_addoption", "pytest_configure"]

_NAMED = 10
_EVERY = 200
"""Tests from one piece of work to the next."""
_USUAL = 0.0175
"""Seconds of the piece of work on the machine for which the limits are meant: an idle one with a clock of 2.5 GHz."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--processor-seconds", type=float, metavar="SECONDS", help="fail when the run uses more processor time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Measure the run if the option is given."""
    limit = config.getoption("processor_seconds")
    if limit is not None:
        config.pluginmanager.register(_ProcessorTime(limit))


class _Measured(NamedTuple):
    """What a process used."""

    collected: float
    """Seconds until its tests were known."""
    seconds: float
    cases: dict[str, float]
    """Seconds of each test."""
    pieces: list[float]
    """Seconds of the piece of work, from time to time."""


class _ProcessorTime:
    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._own = _Measured(0.0, 0.0, {}, [_time_piece()])
        self._workers: list[_Measured] = []
        self._seconds = 0.0

    def pytest_collection_finish(self) -> None:
        self._own = self._own._replace(collected=_read_seconds())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _read_seconds()
        result = yield
        self._own.cases[item.nodeid] = _read_seconds() - before
        if len(self._own.cases) % _EVERY == 0:
            self._own.pieces.append(_time_piece())
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker has measured; one that crashed has nothing to say, and fails the run by itself."""
        if "processor_time" in getattr(node, "workeroutput", {}):
            self._workers.append(_Measured(*node.workeroutput["processor_time"]))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # Time counts when a process has ended. Commands are forked by this server, which would end after this.
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way
        # Workers are children of this process, and have counted themselves.
        self._own = self._own._replace(seconds=_read_seconds(with_children=not self._workers))
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["processor_time"] = tuple(self._own)
            return
        measured = [self._own, *self._workers]
        seconds = max(each.collected for each in measured) + sum(each.seconds - each.collected for each in measured)
        self._seconds = seconds * _USUAL / statistics.fmean(piece for each in measured for piece in each.pieces)
        if self._seconds > self._limit and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        cases = {name: seconds for each in (*self._workers, self._own) for name, seconds in each.cases.items()}
        terminalreporter.section("processor time")
        for name in sorted(cases, key=cases.__getitem__, reverse=True)[:_NAMED]:
            terminalreporter.line(f"{cases[name]:6.2f} s {name}")
        is_over = self._seconds > self._limit
        total = f"{self._seconds:6.1f} s in all, {'more than' if is_over else 'of'} {self._limit:g} s"
        terminalreporter.line(total, red=is_over, green=not is_over)


def _time_piece() -> float:
    """Return the processor time of a piece of work of always the same size: a module that is compiled."""
    source = Path(argparse.__file__).read_bytes()
    before = time.thread_time()
    compile(source, "argparse.py", "exec")
    return time.thread_time() - before


def _read_seconds(*, with_children: bool = True) -> float:
    """Return the processor time of this process, and of the ended ones that it has started."""
    times = os.times()
    return times.user + times.system + (times.children_user + times.children_system if with_children else 0.0)
