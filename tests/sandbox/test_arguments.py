"""What a sandbox and its settings are given is checked where it is given, in one sentence that names it."""

import ssl
from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig, SystemClock, VirtualClock
from svc_async.webhooks import SigningKey, WebhookReceiver
from tests.support.v2_client import V2Client

ARGUMENTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "seed": (("7", 1.5, True, b"x"), "must be a whole number"),
    "clock": ((5, 0, "now", {}), "must be a clock, such as VirtualClock()"),
    "port": (("8080", True, []), "must be a whole number"),
    "host": ((5, b"127.0.0.1", []), "must be a string"),
    "config": (({"rate_limits": False}, {}, 0, "x", SandboxConfig), "must be a SandboxConfig"),
    "ssl_context": ((True, 0, "cert.pem", {}), "must be an ssl.SSLContext, or None"),
}
SETTINGS: dict[str, tuple[tuple[Any, ...], str]] = {
    "hosts": (("example.test", ["example.test"], {5}), "must be a set of strings"),
    "ack_timeout": (("60", [60], None, True), "must be a number"),
    "closed_gates": (
        ("beta", ["beta"], {"gamma"}),
        "must be a set, and each element one of early_access, beta, allowlist, enterprise, advertiser_user",
    ),
    "catalogs_per_user": (("1", 1.5, True), "must be a whole number, or None"),
    "rate_windows": ((["fixed"], None), "must be one of fixed, first-request, sliding"),
}


@pytest.mark.parametrize(
    ("make", "name", "value", "rule"),
    [
        pytest.param(make, name, value, rule, id=f"{name}={value!r}")
        for make, rows in ((Sandbox, ARGUMENTS), (SandboxConfig, SETTINGS))
        for name, (values, rule) in rows.items()
        for value in values
    ],
)
def test_a_value_of_another_type_is_refused(make: Any, name: str, value: object, rule: str) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        make(**{name: value})
    assert str(caught.value) == f"{name} {rule}"


@pytest.mark.parametrize("wrong", [("5", 900), (5, None), (5, 900, "app"), (True, 900)])
def test_a_rate_rule_of_other_types_is_refused(wrong: tuple[Any, ...]) -> None:
    with pytest.raises(
        ValueError, match=r"^(requests|seconds|scope) must be (a whole number of at least 1|one of account, user)$"
    ):
        RateRule(*wrong)


@pytest.mark.parametrize(
    ("wrong", "name"), [((-1, 900), "requests"), ((0, 900), "requests"), ((5, 0), "seconds"), ((5, -1), "seconds")]
)
def test_a_rate_rule_of_less_than_one_is_refused(wrong: tuple[int, int], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a whole number of at least 1$"):
        SandboxConfig(rate_rules={"account_reads": RateRule(*wrong)})


@pytest.mark.parametrize("status", [100, 199, 200, 302, 399, 600, -1])
def test_an_error_has_the_status_of_one(status: int) -> None:
    with pytest.raises(ValueError, match="^status must be (one of an error, from 400|from 200)"):
        Fault.http(status, code="ODD")


@pytest.mark.parametrize("make", [Fault.empty, Fault.html, lambda status: Fault.http(status, body=b"[]")])
@pytest.mark.parametrize("status", [0, 101, 600, "200", True])
def test_an_answer_has_a_final_status_that_http_knows(make: Any, status: object) -> None:
    with pytest.raises(ValueError, match="^status must be (from 200|a whole number)"):
        make(status)


def test_an_error_with_a_status_that_has_no_name_needs_a_code() -> None:
    with pytest.raises(ValueError, match="^status must be one that HTTP has a name for, such as 503, unless code="):
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


JSON = "must be a mapping that can be written as JSON, such as {'text': 'Hello'}"
USER = "must be the id of a user, a string of digits; by default it is that of the first"
TRIGGER: dict[str, tuple[tuple[Any, ...], str]] = {
    "event_type": ((5, None, ["post.create"]), "must be a string"),
    "user_id": (("nobody", "", 7, "\u0667", "1 "), USER),
    "payload": (("x", ["x"], 5, {"text": 1j}, {"text": "x"}.items()), JSON),
    "direction": (("up", 5, ["sent"]), "must be one of sent, received"),
    "keyword": ((5, b"x", ["x"]), "must be a string, or None"),
}
FAULTS: dict[str, tuple[tuple[Any, ...], str]] = {
    "duplicate": ((-1, "1", 1.5, True), "must be a whole number of at least 0: how many more times it is sent"),
    "reorder": ((5, "yes", None), "must be True or False"),
    "corrupt_signature": ((5, "yes", None), "must be True or False"),
    "sign_with": ((5, b"secret", ["secret"]), "must be a string, or None"),
    "delay": ((-1, "x", None, inf, nan, True), "must be a number of at least 0"),
}
STATUS = "reason must be 'TooManyConnections' or the status of an error, from 400 to 599"
HUB: dict[str, tuple[Callable[[Any], Callable[..., object]], tuple[Any, ...], str]] = {
    "status": (lambda hub: hub.refuse, (9, 200, 399, 600, "503", "x", None, True, 503.0, [503]), STATUS),
    "times": (lambda hub: lambda times: hub.refuse(times=times), (0, -1, "2", None, True), "at least 1"),
    "size": (lambda hub: hub.split_bytes, (0, -1, "2", 1.5), "size must be a whole number of at least 1"),
    "line": (lambda hub: hub.garbage, ("x", 5, None), "line must be bytes"),
}


async def test_an_event_is_not_made_of_a_wrong_argument(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    for name, value, rule in ((name, value, rule) for name, (values, rule) in TRIGGER.items() for value in values):
        with subtests.test(name=name, value=value):
            arguments: dict[str, Any] = {"event_type": "post.create", name: value}
            with pytest.raises(ValueError, match="must be") as caught:
                await sandbox.trigger(arguments.pop("event_type"), **arguments)
            assert str(caught.value) == f"{name} {rule}"


async def test_what_is_no_json_object_is_not_delivered(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    events: list[Any] = ["x", None, ["x"], b"{}", {"x": object()}, {"x": {"y": {1, 2}, "z": 1j}}]
    for event in events:
        with subtests.test(event=event):
            with pytest.raises(ValueError, match="must be") as caught:
                await sandbox.deliver(event)
            assert str(caught.value) == f"event {JSON}"


async def test_a_wrong_fault_of_deliveries_is_not_armed(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    faults = sandbox.deliveries.faults
    for name, value, rule in ((name, value, rule) for name, (values, rule) in FAULTS.items() for value in values):
        with subtests.test(name=name, value=value):
            with pytest.raises(ValueError, match="must be") as caught:
                faults.next(**{name: value})
            assert str(caught.value) == f"{name} {rule}"
            assert not faults.armed


async def test_a_stream_does_not_do_what_it_cannot(v2: V2Client, subtests: pytest.Subtests) -> None:
    hub = v2.sandbox.streams["activity"]
    for name, (function, values, rule) in HUB.items():
        with subtests.test(name=name):
            for value in values:
                with pytest.raises(ValueError, match="must be") as caught:
                    function(hub)(value)
                assert rule in str(caught.value)
            async with v2.stream("/2/activity/stream") as answer:
                assert answer.status == 200


async def test_what_cannot_answer_is_no_target(sandbox: Sandbox) -> None:
    receiver = WebhookReceiver(keys=[SigningKey("s")])
    for target in (receiver.asgi, WebhookReceiver, type(receiver.asgi()), receiver.aclose, len, 5, None):
        with pytest.raises(
            TypeError, match=r"^a target is .* pass receiver or receiver\.asgi\(\), with the parentheses$"
        ):
            sandbox.deliver_to("https://hooks.example.test/svc", target)  # type: ignore[arg-type]  # which is refused
    for url in (5, None, b"https://hooks.example.test/svc"):
        with pytest.raises(ValueError, match="^url must be a string$"):
            sandbox.deliver_to(url, receiver)  # type: ignore[arg-type]  # which is refused
    for good in (receiver, receiver.asgi(), "http://127.0.0.1:9000/hook", lambda scope, receive, send: None):  # noqa: ARG005 - called by nobody
        sandbox.deliver_to("https://hooks.example.test/svc", good)  # type: ignore[arg-type]  # a function that tells no more
