"""What the marker `svc` says of a test, and the clock, sandbox, session and receiver that are opened for it."""

import asyncio
import traceback
from collections.abc import AsyncGenerator, Generator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from difflib import get_close_matches
from typing import Any, Literal

import attrs
import pytest

from svc_async.errors import BadRequest, InvalidArgument
from svc_async.events.models import Event
from svc_async.printable import clean, clean_lines
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from svc_async.session import Session
from svc_async.webhooks import NotHandled, SigningKey, WebhookReceiver
from svc_async.webhooks.settings import CALLBACK, RECEIVER_KEYWORDS, OnError
from svc_async.wiring import CommonOptions

__all__ = [
    "HANDLER_FAILURES",
    "RECEIVER",
    "RECEIVER_URL",
    "SANDBOX",
    "HandlerFailures",
    "World",
    "make_clock",
    "open_receiver",
    "open_sandbox",
    "open_session",
]

RECEIVER_URL = "https://hooks.example.test/svc"
"""The URL of the webhook of `svc_receiver`."""
SANDBOX: pytest.StashKey[Sandbox] = pytest.StashKey()
"""Where an item has its sandbox while it runs."""
_DRAIN_DEADLINE = 10.0
"""Seconds that the end of a test waits for handlers, unless its marker says otherwise; a handler may hang."""


class HandlerFailures:
    """The exceptions that a receiver has reported.

    Args:
        on_error: a callback of the test, which receives them as well.
    """

    def __init__(self, on_error: OnError | None) -> None:
        self._on_error = on_error
        self._texts: list[str] = []

    def add(self, event: Event | None, error: BaseException) -> object:
        """Describe an exception, with its traceback unless it says all."""
        subject = f"the event {clean(event.event_type)}" if event else "a delivery"
        self._texts.append(clean_lines(_describe(subject, error)))
        return None if self._on_error is None else self._on_error(event, error)

    def take(self) -> Sequence[str]:
        """Return the descriptions since the last call."""
        texts, self._texts = self._texts, []
        return texts


def _describe(subject: str, error: BaseException) -> str:
    if isinstance(error, NotHandled):
        return f"{subject} was not handled: {clean(str(error))}"
    if isinstance(error, pytest.skip.Exception):
        return f"a handler called pytest.skip() for {subject}, which skips no test from there: {clean(str(error))}"
    is_brief = isinstance(error, pytest.fail.Exception) and not error.pytrace
    text = str(error) if is_brief else "".join(traceback.format_exception(error)).rstrip()
    return f"a handler or a store of the receiver failed for {subject}:\n{text}"


HANDLER_FAILURES: pytest.StashKey[HandlerFailures] = pytest.StashKey()
"""Where an item has the exceptions of its receiver."""
RECEIVER: pytest.StashKey[WebhookReceiver] = pytest.StashKey()
"""Where an item has its receiver while it runs."""


@attrs.frozen(kw_only=True)
class World:
    """The arguments of the marker `svc`.

    Attributes:
        seed: determines the ids and keys of the sandbox.
        start: when the clock starts, as an ISO 8601 time.
        clock: `jump` moves to the next wait as soon as all tasks wait; `manual` moves with `advance()` only.
        sandbox: settings of `SandboxConfig`.
        session: settings of `Session.sandbox`.
        receiver: settings of `WebhookReceiver`.
        events: types of events that the receiver is subscribed to.
        faults: faults of the sandbox, in the form of its control API.
        handler_errors: whether exceptions of handlers of the receiver fail the test: `fail` or `allow`.
    """

    seed: int = 7
    start: str = "2026-06-10T12:00:00Z"
    clock: Literal["jump", "manual"] = "jump"
    sandbox: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    session: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    receiver: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    events: Sequence[str] = ()
    faults: Sequence[Mapping[str, Any]] = ()
    handler_errors: Literal["fail", "allow"] = "fail"

    @classmethod
    def of(cls, item: pytest.Item) -> "World":
        """Return what the markers of a test say; of each argument the closest marker decides.

        Raises:
            Failed: an argument or a setting is unknown or unusable.
        """
        given: dict[str, Any] = {}
        for marker in item.iter_markers("svc"):
            given = {**marker.kwargs, **given}
        world = cls(**given)
        if world.clock not in {"jump", "manual"}:
            pytest.fail("the marker svc takes clock='jump' or clock='manual'", pytrace=False)
        if world.handler_errors not in {"fail", "allow"}:
            pytest.fail("the marker svc takes handler_errors='fail' or handler_errors='allow'", pytrace=False)
        _check_start(world.start)
        for argument, (kind, what) in _KINDS.items():
            if not isinstance(getattr(world, argument), kind):
                pytest.fail(f"the marker svc takes {argument} as {what}", pytrace=False)
        _check_names("sandbox", world.sandbox, attrs.fields_dict(SandboxConfig))
        with _explain_settings("sandbox"):
            SandboxConfig(**world.sandbox)
        _check_names("session", world.session, CommonOptions.__annotations__)
        _check_names("receiver", world.receiver, sorted(RECEIVER_KEYWORDS - {"clock", "keys"}))
        return world


_WHERE_LISTED: Mapping[str, str] = {"sandbox": "docs/reference/settings.md lists all"}
"""Where the settings are that are too many for a message."""
_KINDS: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "seed": (int, "a whole number"),
    "sandbox": (Mapping, "a dictionary of settings"),
    "session": (Mapping, "a dictionary of settings"),
    "receiver": (Mapping, "a dictionary of settings"),
    "events": ((list, tuple), "a list of types of events"),
    "faults": ((list, tuple), 'a list of dictionaries, such as [{"kind": "hang"}]'),
}


def _check_start(start: object) -> None:
    try:
        VirtualClock(start)  # type: ignore[arg-type]  # which is what is checked
    except (TypeError, ValueError, AttributeError):
        message = "the marker svc takes start as an ISO 8601 time with a time zone, such as 2026-06-10T12:00:00Z"
        raise pytest.fail.Exception(message, pytrace=False) from None


@contextmanager
def _explain_settings(argument: str) -> Generator[None]:
    """Fail the test with one sentence if an argument has an unusable setting."""
    try:
        yield
    except ValueError as error:
        message = f"the marker svc has an unusable setting of {argument}: {error}"
        raise pytest.fail.Exception(message, pytrace=False) from None


def _check_names(argument: str, given: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(given.keys() - set(known))
    if unknown:
        advice = _propose_names(argument, str(unknown[0]), [*known])
        pytest.fail(f"the marker svc has an unknown setting {argument}[{unknown[0]!r}]; {advice}", pytrace=False)


def _propose_names(argument: str, name: str, known: Sequence[str]) -> str:
    if near := get_close_matches(name, known):
        return f"similar ones are {', '.join(near)}"
    return _WHERE_LISTED.get(argument) or f"there are {', '.join(known)}"


def make_clock(item: pytest.Item) -> VirtualClock:
    """Return the clock of a test."""
    world = World.of(item)
    return VirtualClock(world.start, mode=world.clock)


@asynccontextmanager
async def open_sandbox(request: pytest.FixtureRequest, svc_clock: VirtualClock) -> AsyncGenerator[Sandbox]:
    """Run the sandbox of a test.

    Raises:
        Failed: the test does not run on asyncio.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        message = "svc_sandbox needs asyncio: let the fixture anyio_backend return 'asyncio' for this test"
        raise pytest.fail.Exception(message, pytrace=False) from None
    world = World.of(request.node)
    async with Sandbox(seed=world.seed, clock=svc_clock, config=SandboxConfig(**world.sandbox)) as sandbox:
        request.node.stash[SANDBOX] = sandbox
        try:
            yield sandbox
        finally:
            del request.node.stash[SANDBOX]


@asynccontextmanager
async def open_session(request: pytest.FixtureRequest, svc_sandbox: Sandbox) -> AsyncGenerator[Session]:
    """Open the session of a test."""
    with _explain_settings("session"):
        session = Session.sandbox(svc_sandbox, **World.of(request.node).session)
    async with session:
        yield session


@asynccontextmanager
async def open_receiver(
    request: pytest.FixtureRequest, svc_sandbox: Sandbox, svc_session: Session
) -> AsyncGenerator[WebhookReceiver]:
    """Run the receiver of a test, and register its webhook and its subscriptions."""
    world = World.of(request.node)
    on_error = world.receiver.get("on_error")
    failures = request.node.stash[HANDLER_FAILURES] = HandlerFailures(on_error)
    settings: dict[str, Any] = {"drain_deadline": _DRAIN_DEADLINE, **world.receiver, "on_error": failures.add}
    keys = [SigningKey(svc_sandbox.app["consumer_secret"])]
    with _explain_settings("receiver"):
        CALLBACK.check("on_error", on_error)
        receiver = request.node.stash[RECEIVER] = WebhookReceiver(keys=keys, clock=svc_sandbox.clock, **settings)
    async with receiver:
        svc_sandbox.deliver_to(RECEIVER_URL, receiver)
        webhook = await svc_session.webhooks.create(RECEIVER_URL)
        for index, event_type in enumerate(world.events):
            try:
                await svc_session.activity.subscriptions.create(
                    event_type=event_type, user_id=svc_sandbox.user_id, webhook_id=webhook.id
                )
            except (BadRequest, InvalidArgument) as error:
                message = f"the marker svc has an unusable event, events[{index}]: {error}"
                raise pytest.fail.Exception(message, pytrace=False) from None
        yield receiver
    late = failures.take()  # of handlers that ended while the receiver was closed
    if late and world.handler_errors == "fail":
        pytest.fail("\n".join(late), pytrace=False)
