"""What a sandbox and its settings are given is checked where it is given; the error names it."""

import copy
import pickle
import ssl
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig, SystemClock, VirtualClock, WrongArgument
from svc_async.webhooks import SigningKey, WebhookReceiver
from tests.support.errors import has
from tests.support.v2_client import V2Client

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "seed": ("7", 1.5, True, b"x"),
    "clock": (5, 0, "now", {}),
    "port": ("8080", True, []),
    "host": (5, b"127.0.0.1", []),
    "config": ({"rate_limits": False}, {}, 0, "x", SandboxConfig),
    "ssl_context": (True, 0, "cert.pem", {}),
}
SETTINGS: dict[str, tuple[Any, ...]] = {
    "hosts": ("example.test", ["example.test"], {5}),
    "ack_timeout": ("60", [60], None, True),
    "closed_gates": ("beta", ["beta"], {"gamma"}),
    "catalogs_per_user": ("1", 1.5, True),
    "rate_windows": (["fixed"], None, "rolling"),
    "rate_limits": ("no",),
    "requests_kept": (True,),
}


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        pytest.param(make, name, value, id=f"{name}={value!r}")
        for make, rows in ((Sandbox, ARGUMENTS), (SandboxConfig, SETTINGS))
        for name, values in rows.items()
        for value in values
    ],
)
def test_a_value_of_another_type_is_refused(make: Any, name: str, value: object) -> None:
    with pytest.raises(WrongArgument, check=has(parameter=name)):
        make(**{name: value})


def test_an_error_can_be_copied_and_sent_to_another_process() -> None:
    error = WrongArgument("seed", "must be a whole number")
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (same.parameter, same.rule, str(same)) == (error.parameter, error.rule, str(error))


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (("5", 900), "requests"),
        ((5, None), "seconds"),
        ((5, 900, "app"), "scope"),
        ((True, 900), "requests"),
        ((-1, 900), "requests"),
        ((0, 900), "requests"),
        ((5, 0), "seconds"),
        ((5, -1), "seconds"),
    ],
)
def test_a_rate_rule_of_other_types_or_of_less_than_one_is_refused(wrong: tuple[Any, ...], name: str) -> None:
    with pytest.raises(WrongArgument, check=has(parameter=name)):
        RateRule(*wrong)


@pytest.mark.parametrize("status", [100, 199, 200, 302, 399, 600, -1])
def test_an_error_has_the_status_of_one(status: int) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="status")):
        Fault.http(status, code="ODD")


@pytest.mark.parametrize("make", [Fault.empty, Fault.html, lambda status: Fault.http(status, body=b"[]")])
@pytest.mark.parametrize("status", [0, 101, 600, "200", True])
def test_an_answer_has_a_final_status_that_http_knows(make: Any, status: object) -> None:
    with pytest.raises(WrongArgument, check=has(parameter="status")):
        make(status)


def test_an_error_with_a_status_that_has_no_name_needs_a_code() -> None:
    with pytest.raises(WrongArgument, check=has(parameter="status")):
        Fault.http(520)
    assert {Fault.http(520, code="ODD").name, Fault.http(520, body=b"").name} == {"http(520)"}


def test_what_a_sandbox_takes_is_accepted() -> None:
    Sandbox(seed=1, clock=VirtualClock(), port=0, host="::1", config=SandboxConfig(), ssl_context=None)
    Sandbox(clock=SystemClock(), config=None, ssl_context=ssl.create_default_context())
    SandboxConfig(
        hosts={"example.test"},  # type: ignore[arg-type]  # any set will do
        ack_timeout=10,
        closed_gates=frozenset({"beta"}),
        catalogs_per_user=None,
    )


TRIGGER: dict[str, tuple[Any, ...]] = {
    "event_type": (5, None, ["post.create"], "post.created"),
    "user_id": ("nobody", "", 7, "\u0667", "1 "),
    "payload": ("x", ["x"], 5, {"text": 1j}, {"text": "x"}.items()),
    "direction": ("up", 5, ["sent"]),
    "keyword": (5, b"x", ["x"]),
}
FAULTS: dict[str, tuple[Any, ...]] = {
    "duplicate": (-1, "1", 1.5, True),
    "reorder": (5, "yes", None),
    "corrupt_signature": (5, "yes", None),
    "sign_with": (5, b"secret", ["secret"]),
    "delay": (-1, "x", None, inf, nan, True),
}
HUB: dict[str, tuple[Callable[[Any], Callable[..., object]], tuple[Any, ...]]] = {
    "reason": (lambda hub: hub.refuse, (9, 200, 399, 600, "503", "x", None, True, 503.0, [503])),
    "times": (lambda hub: lambda times: hub.refuse(times=times), (0, -1, "2", None, True)),
    "size": (lambda hub: hub.split_bytes, (0, -1, "2", 1.5)),
    "line": (lambda hub: hub.garbage, ("x", 5, None)),
}


async def test_an_event_is_not_made_of_a_wrong_argument(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    for name, value in ((name, value) for name, values in TRIGGER.items() for value in values):
        with subtests.test(name=name, value=value):
            arguments: dict[str, Any] = {"event_type": "post.create", name: value}
            with pytest.raises(WrongArgument, check=has(parameter=name)):
                await sandbox.trigger(arguments.pop("event_type"), **arguments)


async def test_what_is_no_json_object_is_not_delivered(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    events: list[Any] = ["x", None, ["x"], b"{}", {"x": object()}, {"x": {"y": {1, 2}, "z": 1j}}]
    for event in events:
        with subtests.test(event=event), pytest.raises(WrongArgument, check=has(parameter="event")):
            await sandbox.deliver(event)


async def test_a_wrong_fault_of_deliveries_is_not_armed(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    faults = sandbox.deliveries.faults
    for name, value in ((name, value) for name, values in FAULTS.items() for value in values):
        with subtests.test(name=name, value=value):
            with pytest.raises(WrongArgument, check=has(parameter=name)):
                faults.next(**{name: value})
            assert not faults.armed


async def test_a_stream_does_not_do_what_it_cannot(v2: V2Client, subtests: pytest.Subtests) -> None:
    hub = v2.sandbox.streams["activity"]
    for name, (function, values) in HUB.items():
        with subtests.test(name=name):
            for value in values:
                with pytest.raises(WrongArgument, check=has(parameter=name)):
                    function(hub)(value)
            async with v2.stream("/2/activity/stream") as answer:
                assert answer.status == 200


async def test_what_cannot_answer_is_no_target(sandbox: Sandbox) -> None:
    receiver = WebhookReceiver(keys=[SigningKey("s")])
    for target in (receiver.asgi, WebhookReceiver, type(receiver.asgi()), receiver.aclose, len, 5, None):
        with pytest.raises(WrongArgument, check=has(parameter="target")):
            sandbox.deliver_to("https://hooks.example.test/svc", target)  # type: ignore[arg-type]  # which is refused
    for url in (5, None, b"https://hooks.example.test/svc"):
        with pytest.raises(WrongArgument, check=has(parameter="url")):
            sandbox.deliver_to(url, receiver)  # type: ignore[arg-type]  # which is refused
    for good in (receiver, receiver.asgi(), "http://127.0.0.1:9000/hook", lambda scope, receive, send: None):  # noqa: ARG005 - called by nobody
        sandbox.deliver_to("https://hooks.example.test/svc", good)  # type: ignore[arg-type]  # a function that tells no more
