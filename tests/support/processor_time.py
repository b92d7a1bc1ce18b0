"""A plugin of pytest that limits the processor time of a run: `pytest --processor-seconds 150`.

It counts what pytest, its workers and the processes that they start use, as if all had been in one process: workers
import and collect the same modules, so that the largest of these times counts once. No test fails by its own time; the
run fails by the sum, and names the tests that use most.
"""

import os
from collections.abc import Generator
from multiprocessing import forkserver
from typing import Any

import pytest

__all__ = ["pytest_addoption", "pytest_configure"]

_NAMED = 10


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


class _ProcessorTime:
    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._collected = 0.0
        self._cases: dict[str, float] = {}
        self._workers: list[tuple[float, float, dict[str, float]]] = []
        self._seconds = 0.0

    def pytest_collection_finish(self) -> None:
        self._collected = _read_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        before = _read_seconds()
        result = yield
        self._cases[item.nodeid] = _read_seconds() - before
        return result

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker has measured; one that crashed has nothing to say, and fails the run by itself."""
        if "processor_time" in getattr(node, "workeroutput", {}):
            self._workers.append(node.workeroutput["processor_time"])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        # Time counts when a process has ended. Commands are forked by this server, which would end after this.
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # there is no public way
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["processor_time"] = (self._collected, _read_seconds(), self._cases)
            return
        # Workers are children of this process, and have counted themselves.
        own = (self._collected, _read_seconds(with_children=not self._workers), self._cases)
        measured = [own, *self._workers]
        collected = max(collected for collected, _, _ in measured)
        self._seconds = collected + sum(seconds - before for before, seconds, _ in measured)
        if self._seconds > self._limit and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        cases = {name: seconds for _, _, cases in self._workers for name, seconds in cases.items()} | self._cases
        terminalreporter.section("processor time")
        for name in sorted(cases, key=cases.__getitem__, reverse=True)[:_NAMED]:
            terminalreporter.line(f"{cases[name]:6.2f} s {name}")
        is_over = self._seconds > self._limit
        total = f"{self._seconds:6.1f} s in all, {'more than' if is_over else 'of'} {self._limit:g} s"
        terminalreporter.line(total, red=is_over, green=not is_over)


def _read_seconds(*, with_children: bool = True) -> float:
    """Return the processor time of this process, and of the ended ones that it has started."""
    times = os.times()
    return times.user + times.system + (times.children_user + times.children_system if with_children else 0.0)
