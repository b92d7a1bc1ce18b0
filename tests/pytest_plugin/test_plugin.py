"""The pytest plugin as users' tests have it, in each way in which asynchronous tests run."""

from collections.abc import Mapping
from fnmatch import fnmatch

import attrs
import pytest

from svc_async.pytest_plugin import MARKER_ARGUMENTS
from svc_async.pytest_plugin.world import World
from tests.support.recipes import RUNNERS, read_recipes

pytest_plugins = ["pytester"]
ALONE = pytest.mark.parametrize(
    "alone", [False, pytest.param(True, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
"""In this process, and in one that has to import everything on a machine that may be busy."""

CHECK = """
import sys

SMALL = {"svc_async.pytest_plugin", "svc_async._version", "svc_async.lazy"}
assert {name for name in sys.modules if name.startswith("svc_async.")} == SMALL, "imported before it is used"
"""
COMMON = (
    CHECK
    + """
import pytest

FAULT = {"kind": "http", "status": 503, "retry_after": 60, "times": 2}


@pytest.mark.svc(faults=[FAULT], start="2026-01-01T00:00:00Z")
async def test_fixtures_share_a_loop_and_a_clock(svc_session, svc_sandbox, svc_clock):
    assert svc_clock.now().year == 2026
    await svc_session.accounts.get(svc_sandbox.account_id)
    assert svc_clock.monotonic() >= 120


@pytest.mark.svc(events=["post.create"])
async def test_events_are_delivered(svc_sandbox, svc_receiver):
    await svc_sandbox.trigger("post.create")
    assert svc_receiver.stats.received == 2  # with the check


@pytest.mark.svc(faults=[{**FAULT, "path": "*/acount/*"}])
async def test_with_a_fault_that_does_not_strike(svc_session, svc_sandbox):
    await svc_session.accounts.get(svc_sandbox.account_id)
"""
)

MORE = """
import pytest_asyncio


@pytest_asyncio.fixture
async def account(svc_session, svc_sandbox):
    return await svc_session.accounts.get(svc_sandbox.account_id)


@pytest.mark.svc(faults=[FAULT, {"kind": "latency", "seconds": 5, "path": "*/accounts/*", "nth": 3}])
async def test_faults_do_not_strike_what_fixtures_send(account, svc_session, svc_clock):
    assert svc_clock.monotonic() == 0
    with pytest.raises(ExceptionGroup):
        raise ExceptionGroup("", [ValueError()])
    await svc_session.accounts.get(account.id)


@pytest.mark.svc(faults=[{**FAULT, "path": "/accounts/*"}])
async def test_with_a_fault_whose_path_lacks_its_beginning(svc_session, svc_sandbox):
    await svc_session.accounts.get(svc_sandbox.account_id)


@pytest.mark.svc(faults=[FAULT, {"kind": "http", "status": 500, "nth": 1}])
async def test_with_two_faults_for_one_request(svc_session, svc_sandbox):
    await svc_session.accounts.get(svc_sandbox.account_id)


@pytest.mark.svc(faults=[{"kind": "hang", "path": "*/post", "times": 1}])
async def test_a_call_without_an_answer_times_out(svc_session, svc_sandbox, svc_clock):
    from svc_async import TimedOut

    with pytest.raises(TimedOut):
        await svc_session.account(svc_sandbox.account_id).posts.create(as_user_id=int(svc_sandbox.user_id), text="x")
    assert svc_clock.monotonic() == 60


async def test_with_a_server_error_without_a_fault(svc_session, svc_sandbox, monkeypatch):
    from svc_async import Retries, ServerError

    monkeypatch.setattr("svc_async.sandbox.api.ads.features.get_features", None)
    with pytest.raises(ServerError):
        await svc_session.but(retries=Retries.none()).account(svc_sandbox.account_id).features.list()


async def test_with_a_fault_of_deliveries_that_does_not_strike(svc_sandbox):
    svc_sandbox.deliveries.faults.next(duplicate=1)


async def break_down(event, context):
    raise ValueError(event.post.nothing)


ROUTER = {"on_error": lambda event, error: SEEN.append(type(error).__name__)}
SEEN = []


@pytest.mark.svc(events=["post.create"])
async def test_with_a_handler_that_fails(svc_sandbox, svc_receiver):
    svc_receiver.on("*")(break_down)
    await svc_sandbox.trigger("post.create")


@pytest.mark.svc(events=["post.create"], handler_errors="allow", receiver=ROUTER)
async def test_a_handler_that_fails_is_allowed(svc_sandbox, svc_receiver):
    svc_receiver.on("*")(break_down)
    await svc_sandbox.trigger("post.create")
    assert svc_receiver.stats.failed == 1
    assert SEEN == ["AttributeError"]


@pytest.mark.svc(events=["post.create"])
async def test_with_a_handler_that_fails_while_the_receiver_closes(svc_sandbox, svc_receiver, svc_clock):
    import asyncio

    @svc_receiver.on("*")
    async def wait(event, context):
        while svc_receiver.is_running:
            await asyncio.sleep(0)
        raise LookupError("late")

    await svc_sandbox.trigger("post.create")


@pytest.mark.svc(events=["post.create"])
async def test_a_handler_that_uses_a_thread_is_waited_for(svc_sandbox, svc_receiver):
    import asyncio

    stored = []

    @svc_receiver.on("post.create")
    async def store(event, context):
        await asyncio.to_thread(stored.append, event.post.text)

    await svc_sandbox.trigger("post.create", payload={"text": "good morning"})
    await svc_receiver.wait_until_idle()
    assert stored == ["good morning"]


@pytest.mark.svc(events=["post.create"])
async def test_that_does_not_wait_for_a_handler(svc_sandbox, svc_receiver):
    import asyncio

    @svc_receiver.on("post.create")
    async def wait(event, context):
        while svc_receiver.is_running:
            await asyncio.sleep(0)

    await svc_sandbox.trigger("post.create")
    pytest.fail("nothing is stored")


async def hang(event, context):
    import asyncio

    await asyncio.Event().wait()


@pytest.mark.parametrize("mode", [pytest.param(each, marks=pytest.mark.svc(clock=each)) for each in ("jump", "manual")])
@pytest.mark.svc(events=["post.create"], receiver={"drain_deadline": 0.01})
async def test_with_a_handler_that_hangs(svc_sandbox, svc_receiver, mode):
    svc_receiver.on("*")(hang)
    await svc_sandbox.trigger("post.create")


async def test_that_fails(svc_session):
    await svc_session.accounts.get("secret")
"""

SETTINGS = """
import pytest

pytestmark = [pytest.mark.asyncio, pytest.mark.svc(seed=3)]


def test_without_a_loop(svc_sandbox):
    pass


def test_with_a_receiver_and_without_a_loop(svc_receiver):
    pass


@pytest.mark.svc(clock="never")
def test_with_an_unknown_clock(svc_clock):
    pass


@pytest.mark.svc(handler_errors="maybe")
async def test_with_an_unknown_choice(svc_clock):
    pass


@pytest.mark.parametrize("setting", [
    pytest.param(each, marks=pytest.mark.svc(**{each: {"wrong": 1}})) for each in ("sandbox", "session", "receiver")
])
async def test_with_an_unknown(setting, svc_receiver):
    pass


@pytest.mark.svc(session={"retries": 1})
async def test_with_unusable_retries(svc_session):
    pass


@pytest.mark.parametrize("setting", [
    pytest.param(each, marks=pytest.mark.svc(receiver={each: "x"})) for each in ("workers", "on_error")
])
async def test_with_an_unusable(setting, svc_receiver):
    pass


@pytest.mark.parametrize("setting", [
    pytest.param(each, marks=pytest.mark.svc(events=["dm.read", each]))
    for each in ("post.crate", "PostCreate", "dm.read", 5)
])
async def test_with_an_unusable_event(setting, svc_receiver):
    pass


@pytest.mark.svc(faults=[{"kind": "http", "status": 200}])
async def test_with_an_unusable_fault(svc_sandbox):
    pass


@pytest.mark.svc(faults=["hang"])
async def test_with_a_fault_that_is_no_dictionary(svc_sandbox):
    pass


async def test_the_closest_marker_decides(svc_sandbox):
    from svc_async.sandbox import Sandbox

    assert svc_sandbox.app == Sandbox(seed=3).app


@pytest.mark.svc(seed=4, sandbox={"rate_limits": False})
async def test_the_closest_marker_decides_each_argument(svc_sandbox, svc_clock):
    from svc_async.sandbox import Sandbox

    assert svc_sandbox.app == Sandbox(seed=4).app
    assert not svc_sandbox.config.rate_limits
"""


def run(pytester: pytest.Pytester, settings: str, *, alone: bool, **files: str) -> pytest.RunResult:
    """Run files of tests, in a process of its own or in this one, where the modules are already imported."""
    ignored = "" if alone else "\n  ignore:Module already imported:pytest.PytestAssertRewriteWarning"
    pytester.makeini(f"[pytest]\nfilterwarnings =\n  error{ignored}\n{settings}\n")
    pytester.makepyfile(**{name: text if alone else text.replace(CHECK, "") for name, text in files.items()})
    start = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
    return start("-p", "no:randomly", "-p", "no:xdist")


@ALONE
def test_fixtures_open_in_auto_mode(pytester: pytest.Pytester, *, alone: bool) -> None:
    result = run(pytester, RUNNERS["auto"].settings, alone=alone, test_auto=COMMON)
    result.assert_outcomes(passed=2, failed=1)


@ALONE
def test_fixtures_open_in_strict_mode_and_with_anyio_and_tell_why_a_test_fails(
    pytester: pytest.Pytester, *, alone: bool
) -> None:
    strict, anyio = RUNNERS["strict"], RUNNERS["anyio beside asyncio"]
    result = run(
        pytester,
        strict.settings,
        alone=alone,
        test_1=strict.header + COMMON + MORE,
        test_2=anyio.header + COMMON.replace(CHECK, ""),
        test_3=SETTINGS,
    )
    result.assert_outcomes(passed=9 + 2 + 2, failed=8 + 1 + 2, errors=11 + 1 + 5)
    result.stdout.fnmatch_lines(list(ERRORS))
    result.stdout.fnmatch_lines(list(FAILURES))
    result.stdout.no_fnmatch_line("*svc_async.errors.InvalidArgument*")
    result.stdout.no_fnmatch_line("*another exception occurred*")
    result.stdout.no_fnmatch_line("*svc_async.errors.BadRequest*")


VERDICTS = """
import pytest

from svc_async.webhooks import Ack

MODES = {"enqueue": Ack.enqueue(), "inline": Ack.inline()}
MARKED = [pytest.param(name, marks=pytest.mark.svc(receiver={"ack": ack})) for name, ack in MODES.items()]


@pytest.mark.parametrize("ack", MARKED)
@pytest.mark.parametrize("is_plain", [False, True])
@pytest.mark.parametrize("verdict", ["fail", "skip"])
@pytest.mark.svc(events=["post.create"])
async def test_verdict(svc_sandbox, svc_receiver, verdict, is_plain, ack):
    def judge(event, context):
        getattr(pytest, verdict)(f"{verdict} {ack} {is_plain}")

    async def judge_later(event, context):
        judge(event, context)

    svc_receiver.on("*")(judge if is_plain else judge_later)
    await svc_sandbox.trigger("post.create")
    await svc_receiver.wait_until_idle()


@pytest.mark.svc(events=["post.create"])
async def test_verdict_without_a_traceback(svc_sandbox, svc_receiver):
    svc_receiver.on("*")(lambda event, context: pytest.fail("brief", pytrace=False))
    await svc_sandbox.trigger("post.create")
"""


@pytest.mark.parametrize("mode", ["auto", pytest.param("strict", marks=pytest.mark.long)])
def test_a_verdict_in_a_handler_fails_the_test(pytester: pytest.Pytester, mode: str) -> None:
    runner = RUNNERS[mode]
    result = run(pytester, runner.settings, alone=False, test_verdicts=runner.header + VERDICTS)
    result.assert_outcomes(failed=2 * 2 * 2 + 1)
    for ack in ("enqueue", "inline"):
        for is_plain in (False, True):
            result.stdout.fnmatch_lines(f"Failed: fail {ack} {is_plain}")
            skipped = "a handler called pytest.skip() for the event post.create, which skips no test from there: "
            result.stdout.fnmatch_lines(f"{skipped}skip {ack} {is_plain}")
    result.stdout.fnmatch_lines("brief")


ERRORS = (
    "a handler or a store of the receiver failed for the event post.create:",
    "LookupError: late",
    "the event post.create was not handled: the handler test_1.hang has not returned within 0.01 s",
    "svc_sandbox is for tests that run in an event loop: write `async def`, and mark the test with *",
    "svc_receiver is for tests that run in an event loop: write `async def`, and mark the test with *",
    "the marker svc takes clock='jump' or clock='manual'",
    "the marker svc takes handler_errors='fail' or handler_errors='allow'",
    "the marker svc has an unknown setting sandbox?'wrong'?; docs/reference/settings.md lists all",
    "the marker svc has an unknown setting session?'wrong'?; there are validate, *",
    "the marker svc has an unknown setting receiver?'wrong'?; there are ack, *",
    "the marker svc has an unusable setting of session: retries must be Retries(...)",
    "the marker svc has an unusable setting of receiver: workers must be *",
    "the marker svc has an unusable setting of receiver: on_error must be a function that *",
    "the marker svc has an unusable event, events?1?: * event_type is not a type of event; similar ones are *",
    "the marker svc has an unusable event, events?1?: event_type must be a dot-separated name such as post.create; *",
    "the marker svc has an unusable event, events?1?: * a subscription with this event_type * is there already",
    "the marker svc has an unusable event, events?1?: event_type must be a string",
)
FAILURES = (
    "a fault did not strike: http(503) on [*] [*]/acount/[*], the first 2 requests; 0 requests matched",
    "a fault did not strike: http(503) on [*] /accounts/[*], *; 0 requests matched; did you mean [*]/accounts/[*][?]",
    "the sandbox received 1 request in this test:",
    "* GET * /ads/12/accounts/18ce54d4x5t -> 200",
    "a fault did not strike: *; 3 requests matched, but a fault that was armed before struck in its place",
    "the sandbox answered with a server error that no fault caused; *: * GET */features -> 500*",
    "1 of the faults of deliveries did not strike: there were too few deliveries",
    "the sandbox received 0 requests in this test:",
    "a handler or a store of the receiver failed for the event post.create:",
    "Traceback (most recent call last):",
    "*raise ValueError(event.post.nothing)",
    "AttributeError: *",
    "* Captured svc_async call *",
    "1 event was not handled yet; before it asserts, a test awaits svc_receiver.wait_until_idle()",
    "* Captured svc_async call *",
    "* GET * /ads/12/accounts/secret -> 403: the account is not associated with the user",
    "a fault did not strike: *",
    "the marker svc has an unusable fault, faults[[]0]: status must be a whole number from 400 *",
    "the marker svc has an unusable fault, faults[[]0]: it must be a dictionary, *",
)


WRONG = {
    "sed=3": "the marker svc has an unknown argument 'sed'; it takes seed, *",
    "3": "the marker svc has an argument without a name; it takes seed, *",
    "faults=[]": "faults of the marker svc cannot strike; the test uses no svc_clock, *",
}
WRONG_VALUES = {
    "start='yesterday'": "the marker svc takes start as an ISO 8601 time with a time zone, such as *",
    "start='2026-06-10T12:00:00'": "the marker svc takes start as an ISO 8601 time with a time zone, such as *",
    "start='2026-06-10'": "the marker svc takes start as an ISO 8601 time with a time zone, such as *",
    "start=5": "the marker svc takes start as an ISO 8601 time with a time zone, such as *",
    "faults={'kind': 'hang'}": "the marker svc takes faults as a list of dictionaries, such as *",
    "events='post.create'": "the marker svc takes events as a list of types of events",
    "sandbox={'rate_limit': False}": "*setting sandbox?'rate_limit'?; similar ones are rate_limits, *",
    "session={'retry': 1}": "*setting session?'retry'?; similar ones are retries*",
    "sandbox=5": "the marker svc takes sandbox as a dictionary of settings",
    "sandbox={'rate_limits': 'no'}": "*unusable setting of sandbox: rate_limits *",
    "sandbox={'rate_rules': {'account_reads': 1}}": "*unusable setting of sandbox: rate_rules?'account_reads'? *",
    "sandbox={'rate_rules': {'ads.reads.global': 1}}": "*rate_rules has a name that no rule has; use *",
}


def run_wrong(pytester: pytest.Pytester, wrong: Mapping[str, str], test: str) -> pytest.RunResult:
    """Run a test for each of the markers, and another one without a marker; each must end with its message."""
    tests = [f"@pytest.mark.svc({marker})\n{test.replace('test', f'test_{n}')}" for n, marker in enumerate(wrong)]
    pytester.makepyfile("\n\n".join(["import pytest", *tests, "def test_other(): pass"]))
    result = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "no:randomly", "--strict-markers")
    result.assert_outcomes(passed=1, errors=len(wrong))
    errors = result.stdout.str().split("ERROR at setup of ")[1:]
    for error, message in zip(errors, wrong.values(), strict=True):
        assert [line for line in error.splitlines() if fnmatch(line.removeprefix("E").strip(), message)], message
    return result


def test_a_marker_that_means_nothing_fails_only_its_test(pytester: pytest.Pytester) -> None:
    run_wrong(pytester, WRONG, "def test(): pass")


def test_a_wrong_value_of_the_marker_is_one_sentence(pytester: pytest.Pytester) -> None:
    result = run_wrong(pytester, WRONG_VALUES, "def test(svc_clock): pass")
    for words in ("Traceback", "Error: ", "another exception occurred"):
        result.stdout.no_fnmatch_line(f"*{words}*")


def test_the_marker_takes_what_a_world_has() -> None:
    assert {field.name for field in attrs.fields(World)} == set(MARKER_ARGUMENTS)


def test_there_are_at_least_ten_recipes_and_every_program_of_a_section_is_one() -> None:
    assert len(read_recipes()) >= 10
    assert {"A rate limit, in virtual time 1", "A rate limit, in virtual time 2"} <= read_recipes().keys()
