"""Whether a test went as it said: its faults strike, nothing else answers with a 5xx, and no handler fails."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus

import attrs
import pytest

from svc_async.printable import clean
from svc_async.pytest_plugin.world import HANDLER_FAILURES, RECEIVER, SANDBOX, World
from svc_async.sandbox import LoggedRequest, Sandbox
from svc_async.sandbox.api.control_faults import arm
from svc_async.sandbox.refusal import Refusal
from svc_async.sandbox.server.faults import Plan

__all__ = ["watch"]

_SHOWN = 50
"""Requests that a message lists."""
_LONGEST = 200
"""Characters of a line of it."""


@contextmanager
def watch(item: pytest.Item) -> Generator[None]:
    """Arm the faults of a test; fail it afterwards if one did not strike, or a 5xx was not caused by a fault.

    It also fails if a handler of its receiver has raised an exception, unless the marker allows that. What the sandbox
    received, and these exceptions, are in the report of every test that fails.
    """
    sandbox = item.stash.get(SANDBOX, None)
    if sandbox is None:
        yield
        return
    before = sandbox.requests.total
    _arm_faults(sandbox, World.of(item))
    try:
        yield
    except BaseException:
        lines = [*_take_handler_failures(item), *_find_waiting(item), *_list_requests(sandbox, before)]
        item.add_report_section("call", "svc_async", "\n".join(lines))
        raise
    failures = _take_handler_failures(item)
    allowed = World.of(item).handler_errors == "allow"
    problems = [*([] if allowed else failures), *_find_unused_faults(sandbox), *_find_server_errors(sandbox)]
    if problems:
        pytest.fail("\n".join([*problems, *_list_requests(sandbox, before)]), pytrace=False)


def _take_handler_failures(item: pytest.Item) -> Sequence[str]:
    failures = item.stash.get(HANDLER_FAILURES, None)
    return failures.take() if failures is not None else ()


def _find_waiting(item: pytest.Item) -> Iterator[str]:
    receiver = item.stash.get(RECEIVER, None)
    waiting = receiver.stats.waiting if receiver is not None else 0
    if waiting:
        events = "1 event was" if waiting == 1 else f"{waiting} events were"
        yield f"{events} not handled yet; before it asserts, a test awaits svc_receiver.wait_until_idle()"


def _arm_faults(sandbox: Sandbox, world: World) -> None:
    for index, fault in enumerate(world.faults):
        problem = _arm(sandbox, fault)
        if problem:
            pytest.fail(f"the marker svc has an unusable fault, faults[{index}]: {problem}", pytrace=False)


def _arm(sandbox: Sandbox, fault: object) -> str:
    """Arm a fault; return why it cannot be armed, or nothing."""
    if not isinstance(fault, Mapping):
        return 'it must be a dictionary, such as {"kind": "hang"}'
    try:
        arm(sandbox.faults, fault)
    except Refusal as refusal:
        return "; ".join(problem.message for problem in refusal.problems)
    return ""


def _find_unused_faults(sandbox: Sandbox) -> Iterator[str]:
    for injection in sandbox.faults.unused():
        plan = injection.plan
        struck = f"struck {injection.struck} of {plan.expected} times" if injection.struck else "did not strike"
        matched = f"{_count(injection.seen)} matched"
        matched += ", but a fault that was armed before struck in its place" if injection.preempted else ""
        matched += "" if injection.seen else _propose_path(sandbox, plan)
        yield _cut(f"a fault {struck}: {injection.fault.name} on {plan.method} {plan.path}, {plan.when}; {matched}")
    waiting = len(sandbox.deliveries.faults.armed)
    if waiting:
        yield f"{waiting} of the faults of deliveries did not strike: there were too few deliveries"


def _propose_path(sandbox: Sandbox, plan: Plan) -> str:
    """Return an advice if only the beginning of the path keeps a fault from what was received, such as /ads/12."""
    wider = attrs.evolve(plan, path=f"*{plan.path}")
    is_meant = any(wider.matches(entry.method, entry.path) for entry in sandbox.requests)
    return f"; did you mean {wider.path}?" if is_meant else ""


def _find_server_errors(sandbox: Sandbox) -> Iterator[str]:
    for entry in sandbox.requests:
        if entry.status is not None and entry.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not entry.fault:
            what = "the sandbox answered with a server error that no fault caused; please report it as a bug"
            yield f"{what}: {_describe(entry)}"


def _list_requests(sandbox: Sandbox, before: int) -> Sequence[str]:
    requests = [entry for entry in sandbox.requests if entry.number >= before]
    more = len(requests) - _SHOWN
    lines = [f"  ... {more} before", *map(_describe, requests[-_SHOWN:])] if more > 0 else map(_describe, requests)
    return [f"the sandbox received {_count(len(requests))} in this test:", *lines]


def _count(requests: int) -> str:
    return "1 request" if requests == 1 else f"{requests} requests"


def _describe(entry: LoggedRequest) -> str:
    """Describe a request, without its query and its body, which may name people."""
    status = "no answer" if entry.status is None else f"{entry.status}"
    faults = f" by {', '.join(entry.faults)}" if entry.faults else ""
    reason = f": {entry.reason}" if entry.reason else ""
    size = f", {entry.size:,} bytes" if entry.size else ""
    return _cut(f"  {entry.number:>4}  {entry.method:<6} {entry.path}{size} -> {status}{faults}{reason}")


def _cut(line: str) -> str:
    return clean(line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…")
