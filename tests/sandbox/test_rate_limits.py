import re
from typing import Any

import pytest

from svc_async import Governor, Retries, Session, WouldWaitTooLong
from svc_async.governor.limits import LIMITS, change_limit
from svc_async.sandbox import RateRule, Sandbox, SandboxConfig, VirtualClock, WrongArgument
from svc_async.sandbox.api import OPERATIONS
from svc_async.sandbox.config import CLIENT_NAMES, RATE_RULES
from svc_async.sandbox.refusal import Refusal
from svc_async.sandbox.server.gatekeeping import RateLimits
from svc_async.sandbox.server.operations import Operation
from svc_async.wire.route import Surface
from tests.support.errors import has
from tests.support.raw_client import RawAnswer, RawClient

START = 1781092800


def rate_headers(got: RawAnswer) -> tuple[str, ...]:
    return tuple(got.headers[f"x-rate-limit-{name}"] for name in ("limit", "remaining", "reset"))


def take(limits: RateLimits, rule: str, times: int, *, account: str | None = "a") -> None:
    for _ in range(times):
        limits.take([rule], user="u", account=account)


@pytest.fixture
def path(raw: RawClient) -> str:
    return f"{raw.account}/line_item_curated_categories"


async def test_every_answer_has_the_rate_limit_headers_errors_included(raw: RawClient, path: str) -> None:
    assert rate_headers(await raw("GET", path)) == ("2000", "1999", str(START + 900))
    assert rate_headers(await raw("GET", path, {"count": "0"})) == ("2000", "1998", str(START + 900))
    assert rate_headers(await raw("GET", f"{path}/nothing")) == ("2000", "1997", str(START + 900))
    await raw.clock.advance(minutes=15)
    assert rate_headers(await raw("GET", path)) == ("2000", "1999", str(START + 1800))


async def test_reads_without_an_account_are_5_in_15_minutes(raw: RawClient) -> None:
    for _ in range(5):
        assert (await raw("GET", "/12/accounts")).status == 200
    got = await raw("GET", "/12/accounts")
    assert (got.status, got.codes) == (429, [("TOO_MANY_REQUESTS", None)])
    assert (rate_headers(got), got.rule, got.basis) == (("5", "0", str(START + 900)), "ASM-11", "public")
    assert (await raw("GET", raw.account)).status == 200
    await raw.clock.advance(minutes=15)
    assert (await raw("GET", "/12/accounts")).status == 200


@pytest.mark.rule("GEN-10", "LIM-05")
def test_total_counts_are_200_in_15_minutes() -> None:
    limits = RateLimits(VirtualClock(), SandboxConfig())
    take(limits, "total_count", 200)
    with pytest.raises(Refusal) as refused:
        take(limits, "total_count", 1, account="b")
    assert (refused.value.status, refused.value.rule) == (429, "GEN-10")


@pytest.mark.rule("GEN-10")
async def test_a_list_with_its_total_counts_in_the_lower_window_too(raw: RawClient, path: str) -> None:
    assert rate_headers(await raw("GET", path, {"with_total_count": "true"}))[:2] == ("200", "199")
    assert rate_headers(await raw("GET", path))[:2] == ("2000", "1998")


@pytest.mark.rule("CAU-03", "LIM-06")
def test_audience_requests_are_1500_a_minute_for_each_account() -> None:
    limits = RateLimits(VirtualClock(), SandboxConfig())
    take(limits, "audience_users", 1500)
    take(limits, "audience_users", 1500, account="b")
    with pytest.raises(Refusal) as refused:
        take(limits, "audience_users", 1)
    assert (refused.value.rule, refused.value.headers["x-rate-limit-reset"]) == ("CAU-03", str(START + 60))


@pytest.mark.rule("CAU-03")
@pytest.mark.parametrize("config", [SandboxConfig(rate_rules={"audience_users": RateRule(1, 60)})])
async def test_a_refused_request_takes_no_effect_and_is_not_counted(raw: RawClient) -> None:
    first = [{"operation_type": "Update", "params": {"users": [{"partner_user_id": ["1"]}]}}]
    second = [{"operation_type": "Update", "params": {"users": [{"partner_user_id": ["2"]}]}}]
    assert (await raw.send_users(first)).status == 200
    for _ in range(3):
        assert (await raw.send_users(second)).status == 429
    assert len(raw.sandbox.audience(raw.sandbox.audience_id).users) == 1
    await raw.clock.advance(minutes=1)
    assert (await raw.send_users(second)).status == 200


async def test_writes_share_one_window(raw: RawClient, path: str) -> None:
    assert rate_headers(await raw("PUT", raw.account, {"name": "x"}))[:2] == ("450", "449")
    assert rate_headers(await raw("DELETE", f"{path}/43853bhii885"))[:2] == ("450", "448")


@pytest.mark.parametrize("config", [SandboxConfig(rate_limits=False)])
async def test_limits_can_be_off(raw: RawClient) -> None:
    for _ in range(7):
        got = await raw("GET", "/12/accounts")
        assert got.status == 200
    assert not any(name.startswith("x-rate") for name in got.headers)


async def take_after(clock: VirtualClock, limits: RateLimits, *waits: float) -> list[bool]:
    granted = []
    for wait in waits:
        await clock.advance(seconds=wait)
        try:
            take(limits, "writes", 1)
        except Refusal:
            granted.append(False)
        else:
            granted.append(True)
    return granted


@pytest.mark.parametrize(
    ("kind", "granted"),
    [
        ("fixed", [True, True, True, True]),
        ("first-request", [True, True, False, True]),
        ("sliding", [True, True, False, True]),
    ],
)
async def test_the_start_of_windows_is_a_setting(kind: Any, granted: list[bool]) -> None:
    clock = VirtualClock("2026-06-10T12:00:30Z")
    rules = {"writes": RateRule(2, 60)}
    limits = RateLimits(clock, SandboxConfig(rate_windows=kind, rate_rules=rules))
    assert await take_after(clock, limits, 0, 20, 35, 5) == granted


async def test_a_sliding_window_frees_one_at_a_time() -> None:
    clock = VirtualClock()
    limits = RateLimits(clock, SandboxConfig(rate_windows="sliding", rate_rules={"writes": RateRule(2, 60)}))
    assert await take_after(clock, limits, 0, 30, 30, 0, 30) == [True, True, True, False, True]
    assert limits.count("writes", account="a") == 2


@pytest.mark.parametrize(
    ("rules", "parameter", "hint"),
    [
        ({"ads.reads.global": RateRule(100, 900)}, "rate_rules", "use global_reads"),
        ({"account_read": RateRule(100, 900)}, "rate_rules", "use account_reads"),
        ({"x": RateRule(100, 900)}, "rate_rules", "there are audience_users, "),
        ({"account_reads": 1}, "rate_rules['account_reads']", ""),
        (1, "rate_rules", ""),
    ],
)
def test_a_rule_that_would_do_nothing_is_refused(rules: Any, parameter: str, hint: str) -> None:
    with pytest.raises(WrongArgument, check=has(parameter=parameter)) as caught:
        SandboxConfig(rate_rules=rules)
    assert hint in str(caught.value)


def test_client_and_sandbox_have_the_same_limits_for_the_same_scopes() -> None:
    rules = {name: RATE_RULES[rule] for name, rule in CLIENT_NAMES.items()}
    limits = {limit.name: limit for limit in LIMITS}
    assert limits.keys() - rules.keys() == {"ads.product_sets.delete"}  # no operation of the reference
    of_apps = {operation.limit for operation in OPERATIONS if operation.schemes == ("bearer_app",)}
    scopes = {name: "app" if CLIENT_NAMES[name] in of_apps else rule.scope for name, rule in rules.items()}
    assert {name: (rule.requests, rule.seconds, scopes[name]) for name, rule in rules.items()} == {
        name: (limits[name].requests, limits[name].period, limits[name].scope.value) for name in rules
    }


@pytest.mark.rule("GEN-10", "LIM-05")
async def test_totals_of_many_accounts_are_within_the_limit_of_their_user() -> None:
    config = SandboxConfig(rate_rules={"total_count": RateRule(3, 900, "user")})
    limits = change_limit(LIMITS, "ads.total_count", requests=3)
    async with Sandbox(config=config) as sandbox:
        accounts = [sandbox.add_account(name=f"Shop {number}") for number in range(5)]
        governor = Governor(limits=limits, headroom=1.0, max_wait=0.0)
        async with Session.sandbox(sandbox, governor=governor, retries=Retries.none()) as session:
            for number, account in enumerate(accounts):
                count = session.account(account).line_item_curated_categories.list().total_count
                if number < 3:
                    await count()
                else:
                    with pytest.raises(WouldWaitTooLong):
                        await count()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.id)
def test_the_client_counts_each_call_in_the_limit_that_the_sandbox_does(operation: Operation) -> None:
    is_ads = re.match(r"/(12|5)/", operation.path) is not None
    surface, path = Surface.ADS if is_ads else Surface.BASE, re.sub(r"\{\w+\}", "x", operation.path)
    found = [row.name for row in LIMITS if not row.with_total_count and row.matches(operation.method, surface, path)]
    expected = next((name for name, rule in CLIENT_NAMES.items() if rule == operation.limit), None)
    assert [*found, None][0] == expected
