"""The pytest plugin: fixtures for the tests of code that uses this SDK, and the marker `svc`, which sets them up.

pytest imports this module in every run where the SDK is installed. So it imports nothing of the SDK until a test uses a
fixture.

The fixtures are opened in the event loop of their test, by the plugin that runs it: pytest-asyncio or anyio. Neither
runs an asynchronous fixture of somebody else in all of its modes, so pytest sees plain functions here, and the function
that is called at set-up is replaced by one that the plugin at hand takes for its own.
"""

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import AbstractAsyncContextManager
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from svc_async import Session
    from svc_async.sandbox import Sandbox, VirtualClock
    from svc_async.webhooks import WebhookReceiver

__all__ = ["MARKER_ARGUMENTS", "pytest_configure", "pytest_fixture_setup", "pytest_runtest_setup"]

MARKER_ARGUMENTS = ("seed", "start", "clock", "sandbox", "session", "receiver", "events", "faults", "handler_errors")
_FIXTURES = frozenset({"svc_clock", "svc_receiver", "svc_sandbox", "svc_session"})
_MARKER = (
    "svc(*, seed, start, clock, sandbox, session, receiver, events, faults, handler_errors): the sandbox, the settings "
    "and the faults of a test that uses svc_sandbox, svc_session, svc_receiver or svc_clock; see "
    "docs/how-to-test-your-code.md"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fail a test whose marker means nothing: an argument is unknown, or no fixture is there for its faults."""
    for marker in item.iter_markers("svc"):
        unknown = sorted(marker.kwargs.keys() - set(MARKER_ARGUMENTS))
        if unknown or marker.args:
            what = f"an unknown argument {unknown[0]!r}" if unknown else "an argument without a name"
            pytest.fail(f"the marker svc has {what}; it takes {', '.join(MARKER_ARGUMENTS)}", pytrace=False)
    own = [marker for marker in item.own_markers if marker.name == "svc" and "faults" in marker.kwargs]
    if own and _FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        fixtures = ", ".join(sorted(_FIXTURES))
        pytest.fail(f"faults of the marker svc cannot strike; the test uses no {fixtures}", pytrace=False)


@pytest.fixture
def svc_clock(request: pytest.FixtureRequest) -> "VirtualClock":
    """Return a virtual clock, which sandbox, session and receiver share: waits take no time, `advance()` moves it."""
    from svc_async.pytest_plugin.world import make_clock  # noqa: PLC0415 - see the head of the module

    return make_clock(request.node)


@pytest.fixture
def svc_sandbox(request: pytest.FixtureRequest, svc_clock: "VirtualClock") -> "Sandbox":  # noqa: ARG001 - see _OPENERS
    """Run a sandbox in the event loop of the test; a fault that never strikes fails the test."""
    _refuse(request)


@pytest.fixture
def svc_session(request: pytest.FixtureRequest, svc_sandbox: "Sandbox") -> "Session":  # noqa: ARG001 - see _OPENERS
    """Open a session with the sandbox, with the credentials of its first user."""
    _refuse(request)


@pytest.fixture
def svc_receiver(
    request: pytest.FixtureRequest,
    svc_sandbox: "Sandbox",  # noqa: ARG001 - see _OPENERS
    svc_session: "Session",  # noqa: ARG001 - see _OPENERS
) -> "WebhookReceiver":
    """Run a receiver to which the sandbox delivers the `events` of the marker, about its first user."""
    _refuse(request)


_OPENERS = {"svc_sandbox": "open_sandbox", "svc_session": "open_session", "svc_receiver": "open_receiver"}
"""What opens the value of a fixture, a context manager that takes the same arguments; each follows those it needs."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: "pytest.FixtureDef[Any]", request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Let the plugin that runs the test open the fixtures, as asynchronous fixtures of its own."""
    is_ours = fixturedef.argname in _OPENERS and fixturedef.func.__module__ == __name__
    opener = _make_opener(fixturedef.argname, request) if is_ours else None
    if opener is None:
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixturedef, "func", opener)
        return (yield)


def _make_opener(name: str, request: pytest.FixtureRequest) -> Callable[..., AsyncIterator[object]] | None:
    """Return an asynchronous fixture for the plugin that runs the test; None if no plugin runs it."""
    has_asyncio = request.config.pluginmanager.has_plugin("asyncio")
    marker = request.node.get_closest_marker("asyncio") if has_asyncio else None
    is_run = marker is not None or "anyio_backend" in request.fixturenames
    if not is_run or not _is_async(request.function):
        return None
    from svc_async.pytest_plugin import world  # noqa: PLC0415 - see the head of the module

    open_: Callable[..., AbstractAsyncContextManager[object]] = getattr(world, _OPENERS[name])

    async def opener(**values: object) -> AsyncIterator[object]:
        async with open_(**values) as value:
            yield value

    if marker is not None:
        import pytest_asyncio  # noqa: PLC0415 - it is there

        scope = marker.kwargs.get("loop_scope") or request.config.getini("asyncio_default_test_loop_scope")
        pytest_asyncio.fixture(opener, loop_scope=scope)  # marks the function
    return opener


def _is_async(function: Any) -> bool:
    test = function.hypothesis.inner_test if hasattr(function, "hypothesis") else function
    return iscoroutinefunction(test)


def _refuse(request: pytest.FixtureRequest) -> NoReturn:
    asked = next(name for name in reversed(_OPENERS) if name in request.fixturenames)  # the others may be what it needs
    message = (
        f"{asked} is for tests that run in an event loop: write `async def`, and mark the test with "
        "pytest.mark.asyncio (not needed with asyncio_mode = auto) or pytest.mark.anyio"
    )
    pytest.fail(message, pytrace=False)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Arm the faults of a test that uses the sandbox, and verify afterwards what the sandbox has seen."""
    if _FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
        return (yield)
    from svc_async.pytest_plugin.verdict import watch  # noqa: PLC0415 - see the head of the module

    with watch(item):
        return (yield)
