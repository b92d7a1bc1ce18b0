"""What the logger `svc_async.http` says of calls, and what it never says."""

import asyncio
import logging

import pytest

from svc_async import Governor, InvalidArgument, NotFound, Session, TransportError, WouldWaitTooLong
from svc_async.monitoring import logs
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.errors import has
from tests.support.loggers import keep_loggers  # noqa: F401 - a fixture

READ = ("GET", "*/accounts/*")
HTTP = "svc_async.http"


pytestmark = pytest.mark.usefixtures("keep_loggers")


def list_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == HTTP]


async def test_info_is_one_line_a_call(session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, HTTP)
    await session.accounts.get(sandbox.account_id)
    made = await session.accounts.create()
    await session.accounts.delete(made.id)
    with pytest.raises(NotFound):
        await session.accounts.get(made.id)

    lines = list_lines(caplog)
    assert {level for level, _ in lines} == {"INFO"}
    assert [line.partition(" in ")[0] for _, line in lines] == [
        "GET /12/accounts/{account_id}: HTTP 200",
        "POST /12/accounts: HTTP 200",
        "DELETE /12/accounts/{account_id}: HTTP 200",
        "GET /12/accounts/{account_id}: NotFound (HTTP 404)",
    ]


async def test_a_repeat_is_a_warning_with_its_wait(
    session: Session, sandbox: Sandbox, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await clock.advance(minutes=1)
    caplog.set_level(logging.INFO, HTTP)
    sandbox.faults.on(*READ).once().do(Fault.http(503, retry_after=7))
    await session.accounts.get(sandbox.account_id)

    (warning, repeat), (info, call) = list_lines(caplog)
    assert (warning, repeat) == ("WARNING", "GET /12/accounts/{account_id}: ServerError (HTTP 503); repeated in 7 s")
    assert info == "INFO"
    assert call.startswith("GET /12/accounts/{account_id}: HTTP 200 in 7.")
    assert call.endswith(", 2 attempts, waited 7.000 s")


async def test_a_repeat_after_a_429_waits_for_the_rate_limit(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, HTTP)
    sandbox.faults.on(*READ).once().do(Fault.rate_limited(reset=30))
    await session.accounts.get(sandbox.account_id)

    (_, repeat), (_, call) = list_lines(caplog)
    assert (
        repeat == "GET /12/accounts/{account_id}: RateLimited (HTTP 429); repeated if the rate limit opens within 60 s"
    )
    assert float(call.split("waited ")[1].split()[0]) > 20


async def test_a_repeat_is_promised_only_within_the_longest_wait(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.faults.on(*READ).once().do(Fault.rate_limited(reset=500))
    async with Session.sandbox(sandbox, governor=Governor(max_wait=40, clock=sandbox.clock)) as session:
        with pytest.raises(WouldWaitTooLong):
            await session.accounts.get(sandbox.account_id)

    (_, repeat), *_ = list_lines(caplog)
    assert repeat.endswith("repeated if the rate limit opens within 40 s")


async def test_a_repeat_without_a_longest_wait_waits_until_the_rate_limit_opens(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox.faults.on(*READ).once().do(Fault.rate_limited(reset=500))
    async with Session.sandbox(sandbox, governor=Governor(max_wait=None, clock=sandbox.clock)) as session:
        await session.accounts.get(sandbox.account_id)

    (_, repeat), *_ = list_lines(caplog)
    assert repeat.endswith("repeated when the rate limit opens")


async def test_a_call_that_never_had_its_turn_has_not_waited(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        await session.accounts.list().first()
    caplog.set_level(logging.INFO, HTTP)
    with pytest.raises(WouldWaitTooLong):
        await session.accounts.list().first()

    ((_, line),) = list_lines(caplog)
    assert line.startswith("GET /12/accounts: WouldWaitTooLong")
    assert "waited" not in line


async def test_debug_is_one_line_an_attempt(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, HTTP)
    sandbox.faults.on(*READ).once().do(Fault.drop_connection())
    async with Session.sandbox(sandbox, request_id_header="content-type") as session:
        await session.accounts.get(sandbox.account_id)
        size = len((await session.with_answer(session.accounts.get(sandbox.account_id)))[1].body)

    attempts = [line for level, line in list_lines(caplog) if level == "DEBUG"]
    assert len(attempts) == 3
    assert ": attempt 1: TransportError: the connection was closed before an answer (sent: maybe) in 0" in attempts[0]
    assert attempts[1].startswith("GET /12/accounts/{account_id}: attempt 2: HTTP 200 in 0")
    assert attempts[2].endswith(
        f"0.000 s of them at the rate limit, 0 bytes sent, {size} received, request id application/json;charset=utf-8"
    )


async def test_a_call_that_is_cancelled_is_logged(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, HTTP)
    sandbox.faults.on("*").do(Fault.hang())
    call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
    await sandbox.requests.wait(count=1)
    call.cancel()
    await asyncio.wait([call])
    assert [line.partition(" in ")[0] for _, line in list_lines(caplog)] == [
        "GET /12/accounts/{account_id}: attempt 1: CancelledError",
        "GET /12/accounts/{account_id}: CancelledError",
    ]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/2/users/by/username/ann", "/2/users/..."),
        ("/2/users/4711", "/2/users/..."),
        ("/12/accounts/{account}/campaigns/abc1", "/12/accounts/{account_id}/campaigns/..."),
        ("/12/accounts/{account}/campaigns", "/12/accounts/{account_id}/campaigns"),
        ("/12/accounts/{account}", "/12/accounts/{account_id}"),
        ("/1.1/friendships/show", "/1.1/friendships/..."),
        ("/12/Ann", "/..."),
        ("/ann", "/..."),
    ],
)
async def test_no_line_names_a_person_an_account_or_a_value(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture, path: str, shown: str
) -> None:
    caplog.set_level(logging.DEBUG, HTTP)
    path = path.replace("{account}", sandbox.account_id)
    sandbox.faults.on("*").once().do(Fault.http(503))
    try:
        await session.request("GET", path, params={"q": "ann@example.test"})
    except Exception as error:  # noqa: BLE001 - most of these paths do not exist
        assert "HTTP 4" in str(error)

    lines = [line for _, line in list_lines(caplog)]
    assert len(lines) == 4
    assert all(line.startswith(f"GET {shown}: ") for line in lines)
    hidden = (sandbox.account_id, "ann", "Ann", "4711", "abc1", *sandbox.credentials.values())
    assert not [word for word in hidden if word in caplog.text]


async def test_importing_and_using_the_sdk_installs_no_handler(session: Session, sandbox: Sandbox) -> None:
    await session.accounts.get(sandbox.account_id)
    assert logging.getLogger("svc_async").handlers == logging.getLogger(HTTP).handlers == []
    assert logging.getLogger("svc_async").level == logging.NOTSET


HOSTS = {
    "SVC_BASE_URL": "https://base.example.test",
    "SVC_ADS_URL": "https://ads.example.test",
    "SVC_BEARER_TOKEN": "t",
}


@pytest.mark.parametrize(
    ("value", "level"),
    [("info", logging.INFO), ("DEBUG", logging.DEBUG), ("error", logging.ERROR), ("", logging.NOTSET)],
)
def test_svc_log_is_read_with_the_other_variables(
    monkeypatch: pytest.MonkeyPatch, value: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    for name, setting in {**HOSTS, "SVC_LOG": value}.items():
        monkeypatch.setenv(name, setting)
    Session.from_env()

    assert logging.getLogger("svc_async").level == level
    assert logging.getLogger("svc_async").handlers == [], "the program has configured where logs go"
    assert caplog.handler in logging.getLogger().handlers


def test_another_value_of_svc_log_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, setting in {**HOSTS, "SVC_LOG": "loud"}.items():
        monkeypatch.setenv(name, setting)
    with pytest.raises(InvalidArgument, check=has(parameter="SVC_LOG")):
        Session.from_env()
    with pytest.raises(InvalidArgument, check=has(parameter="level")):
        logs.show("loud")  # type: ignore[arg-type]  # the test


def test_without_any_handler_the_log_goes_to_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger("svc_async"), "propagate", False)  # as in a program without logging
    logs.show("info")
    logs.show("info")
    logging.getLogger(HTTP).info("once")
    assert capsys.readouterr().err.endswith(" INFO svc_async.http: once\n")

    assert len(logging.getLogger("svc_async").handlers) == 1


def test_a_program_that_handles_the_log_itself_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("svc_async")
    logger.addHandler(logging.NullHandler())
    logger.setLevel(logging.ERROR)
    for name, setting in {**HOSTS, "SVC_LOG": "debug"}.items():
        monkeypatch.setenv(name, setting)
    Session.from_env()
    assert (logger.level, len(logger.handlers)) == (logging.ERROR, 1)


async def test_a_call_without_an_answer_says_whether_it_was_sent(
    session: Session, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, HTTP)
    sandbox.faults.on("POST", "*").do(Fault.drop_connection())
    with pytest.raises(TransportError):
        await session.accounts.create()
    assert [line.partition(" in ")[0] for _, line in list_lines(caplog)] == [
        "POST /12/accounts: TransportError: the connection was closed before an answer (sent: maybe)"
    ]
