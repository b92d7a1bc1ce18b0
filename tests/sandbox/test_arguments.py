"""What a sandbox and its settings are given is checked where it is given, in one sentence that names it."""

import ssl
from datetime import UTC, datetime
from typing import Any

import pytest

from svc_async.sandbox import Fault, RateRule, Sandbox, SandboxConfig, SystemClock, VirtualClock

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
    "delivery_delays": ((60, "60", ["60"], None), "must be a sequence of numbers"),
    "closed_gates": (
        ("beta", ["beta"], {"gamma"}),
        "must be a set, and each element one of early_access, beta, allowlist",
    ),
    "catalogs_per_user": (("1", 1.5, True), "must be a whole number, or None"),
    "paid_partnership_since": (("2026-06-03", 5, datetime(2026, 6, 3)), "must be a time with a time zone, or None"),  # noqa: DTZ001 - refused
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
    with pytest.raises(ValueError, match=r"^(requests|seconds|scope) must be (a whole number|one of account, user)$"):
        RateRule(*wrong)


@pytest.mark.parametrize(
    ("wrong", "name"), [((-1, 900), "requests"), ((0, 900), "requests"), ((5, 0), "seconds"), ((5, -1), "seconds")]
)
def test_a_rate_rule_of_less_than_one_is_refused(wrong: tuple[int, int], name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be a whole number from 1$"):
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
        delivery_delays=[1, 2.5],  # type: ignore[arg-type]  # and any list
        closed_gates=frozenset({"beta"}),
        catalogs_per_user=None,
        paid_partnership_since=datetime(2026, 6, 3, tzinfo=UTC),
    )
