import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import aiohttp
import pytest

from svc_async import (
    ApiError,
    AppCredentials,
    BadRequest,
    BearerToken,
    Endpoints,
    Forbidden,
    InvalidArgument,
    NotFound,
    RateLimited,
    Retries,
    ServerError,
    Session,
    TimedOut,
    Timeouts,
    TransportError,
    Unauthorized,
    UnexpectedAnswer,
    UserCredentials,
    WouldWaitTooLong,
    WrongState,
)
from svc_async.ads.accounts import Account, IndustryType
from svc_async.engine.transport import Transport
from svc_async.errors import Hint, Sent
from svc_async.monitoring import CallEvent
from svc_async.sandbox import Fault, Sandbox, SandboxConfig, VirtualClock
from svc_async.wire.records import list_field_names
from tests.support.errors import has
from tests.support.tracebacks import find_shown

HOSTS = Endpoints(base_url="https://base.example.test", ads_url="https://ads.example.test")


# --- making one


def test_without_credentials_a_session_says_what_to_do() -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="credentials", hint=Hint.GIVE_CREDENTIALS)):
        Session(endpoints=HOSTS)


def test_without_endpoints_a_session_says_what_to_do(sandbox_credentials: UserCredentials) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="endpoints", hint=Hint.GIVE_CREDENTIALS)):
        Session(sandbox_credentials)


@pytest.fixture
def sandbox_credentials() -> UserCredentials:
    return UserCredentials(consumer_key="k", consumer_secret="s", token="t", token_secret="u")


async def test_a_session_that_is_not_open_says_so(sandbox_credentials: UserCredentials) -> None:
    session = Session(sandbox_credentials, endpoints=HOSTS)
    with pytest.raises(WrongState, check=has(hint=Hint.OPEN_IT)):
        await session.accounts.get("a")
    async with session:
        assert not session.is_sandbox
    with pytest.raises(WrongState, check=has(hint=Hint.OPEN_IT)):
        session.account("a")


async def test_a_session_starts_a_sandbox_of_its_own() -> None:
    async with Session.sandbox() as session:
        assert session.is_sandbox
        assert await session.accounts.list().first() is not None


async def test_what_is_given_by_hand_reaches_the_service(sandbox: Sandbox) -> None:
    hosts = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url, ads_sandbox_url=sandbox.ads_sandbox_url)
    async with Session(UserCredentials(**sandbox.credentials), endpoints=hosts, clock=sandbox.clock) as session:
        assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id


async def test_the_app_is_implied_or_given(sandbox_credentials: UserCredentials) -> None:
    app = AppCredentials(consumer_key="k", consumer_secret="s")

    assert Session(sandbox_credentials, endpoints=HOSTS).app == app
    assert Session(app=app, endpoints=HOSTS).app == app
    assert Session(BearerToken("t"), app=app, endpoints=HOSTS).app == app
    assert Session(BearerToken("t"), endpoints=HOSTS).app is None


async def test_a_session_uses_the_given_connector_and_leaves_it_open(sandbox: Sandbox) -> None:
    class Counting(aiohttp.TCPConnector):
        calls = 0

        async def connect(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            return await super().connect(*args, **kwargs)

    connector = Counting()
    async with connector:
        async with Session.sandbox(sandbox, connector=connector) as session:
            await session.accounts.get(sandbox.account_id)
        assert connector.calls == 1
        assert not connector.closed


async def test_a_view_shares_connections_and_governor_and_closes_nothing(session: Session) -> None:
    view = session.but(timeout=5)

    assert view.governor is session.governor
    assert (await view.accounts.list().first()) is not None
    async with view:
        assert (await view.accounts.list().first()) is not None
    with pytest.raises(WrongState):
        view.account("a")

    assert (await session.accounts.list().first()) is not None
    with pytest.raises(WrongState):
        async with session:
            pass


async def test_what_was_bound_by_a_session_that_is_closed_says_so(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox) as session:
        bound = [session.accounts, session.but(timeout=5).accounts]
    for accounts in bound:
        with pytest.raises(WrongState):
            await accounts.get(sandbox.account_id)


async def test_a_sandbox_of_its_own_is_closed_when_the_session_cannot_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Sandbox] = []

    async def aclose(self: Sandbox, close: Any = Sandbox.aclose) -> None:
        closed.append(self)
        await close(self)

    def fail(**_: object) -> Transport:
        raise RuntimeError("the connector belongs to another loop")

    monkeypatch.setattr(Sandbox, "aclose", aclose)
    monkeypatch.setattr(Transport, "open", fail)
    with pytest.raises(RuntimeError, match="another loop"):
        async with Session.sandbox():
            pass

    assert len(closed) == 1


@pytest.mark.parametrize("bad", [{"consumer_secret": "hush"}, {}, "hush", "", 5], ids=repr)
def test_what_are_no_credentials_are_refused(bad: Any) -> None:
    for app in (None, AppCredentials(consumer_key="k", consumer_secret="s")):
        with pytest.raises(InvalidArgument, check=has(parameter="credentials")) as caught:
            Session(bad, app=app, endpoints=HOSTS)
        assert find_shown(caught.value, "hush") == []


@pytest.mark.parametrize("bad", [{"consumer_key": "k"}, "key", 0], ids=repr)
def test_what_is_no_app_is_refused_without_a_user_too(bad: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="app")):
        Session(app=bad, endpoints=HOSTS)


async def test_a_sandbox_that_does_not_run_is_refused_when_a_session_opens() -> None:
    sandbox = Sandbox()
    session = Session.sandbox(sandbox)
    for state in ("not started", "closed"):
        with pytest.raises(InvalidArgument, check=has(parameter="running")):
            await session.open()
        assert not sandbox.is_running, state
        async with sandbox, session:
            assert sandbox.is_running
            assert await session.accounts.list().first() is not None


@pytest.mark.parametrize("setting", ["timeouts", "retries", "governor", "connector", "memory"])
def test_a_setting_of_another_type_is_refused_before_a_session_opens(setting: str) -> None:
    wrong: Any = {setting: "5"}
    with pytest.raises(InvalidArgument, check=has(parameter=setting)):
        Session.sandbox(**wrong)


async def test_no_repr_shows_a_secret_or_the_password_of_a_proxy(sandbox_credentials: UserCredentials) -> None:
    proxy = "http://user:hush@proxy.example.test:3128"
    async with Session(sandbox_credentials, endpoints=HOSTS, proxy=proxy) as session:
        handle = session.account("a")
        seen = [session, session.accounts, session.accounts.list(), handle, handle.custom_audience("b")]
        assert "hush" not in repr(seen)
        assert " object at 0x" not in repr([*seen, handle.custom_audience("b").users])


def test_what_is_no_proxy_is_refused(sandbox_credentials: UserCredentials) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="proxy")):
        Session(sandbox_credentials, endpoints=HOSTS, proxy="socks5://proxy.example.test")


@pytest.mark.parametrize("bad", ["", " ", "a/b", "..", None])
async def test_an_id_that_would_change_the_path_is_refused_when_it_is_bound(session: Session, bad: Any) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="account_id")):
        session.account(bad)
    with pytest.raises(InvalidArgument, check=has(parameter="custom_audience_id")):
        session.account("a").custom_audience(bad)


# --- accounts


@pytest.mark.rule("ACC-02", "ACC-04", "ACC-06")
async def test_an_account_is_read_and_changed(session: Session, sandbox: Sandbox) -> None:
    changed = await session.accounts.update(
        sandbox.account_id, name="Müller & Söhne: 100 % $'~", industry_type=IndustryType.TRAVEL
    )

    assert changed.name == "Müller & Söhne: 100 % $'~"
    assert await session.accounts.get(sandbox.account_id) == changed
    assert changed.industry_type is IndustryType.TRAVEL
    listed = await session.accounts.list(account_ids=[sandbox.account_id]).first()

    assert listed is not None
    assert listed.industry_type is None


@pytest.mark.rule("ACC-03", "ACC-05", "ACC-10", "GEN-14")
async def test_accounts_are_made_and_deleted_on_the_sandbox_host(session: Session) -> None:
    made = await session.accounts.create()

    assert not made.deleted
    assert (await session.accounts.delete(made.id)).deleted
    with pytest.raises(NotFound):
        await session.accounts.get(made.id)

    assert (await session.accounts.get(made.id, with_deleted=True)).deleted


@pytest.mark.rule("ACC-01", "ACC-01b")
async def test_names_are_found_by_their_beginning_in_any_case(session: Session, sandbox: Sandbox) -> None:
    account = await session.accounts.get(sandbox.account_id)
    found = await session.accounts.list(q=account.name[:4].upper()).collect()

    assert account.id in [each.id for each in found]


@pytest.mark.rule("ACC-01", "LICC-01")
async def test_every_parameter_of_a_listing_reaches_the_service(session: Session, sandbox: Sandbox) -> None:
    common: dict[str, Any] = {"count": 5, "sort_by": "created_at-desc", "with_deleted": True}
    await session.accounts.list(account_ids=["a", "b"], q="Har", **common).first()

    assert parse_qs(sandbox.requests[-1].query) == {
        "account_ids": ["a,b"],
        "q": ["Har"],
        "count": ["5"],
        "sort_by": ["created_at-desc"],
        "with_deleted": ["true"],
    }
    await session.account(sandbox.account_id).line_item_curated_categories.list(**common).first()

    assert parse_qs(sandbox.requests[-1].query).keys() == common.keys()


@pytest.mark.rule("LICC-02", "LICC-03", "LICC-04", "LICC-05")
async def test_a_line_item_curated_category_lives_from_create_to_delete(session: Session, sandbox: Sandbox) -> None:
    service = session.account(sandbox.account_id).line_item_curated_categories
    seeded = await service.list().collect()
    made = await service.create(line_item_id=seeded[0].line_item_id, curated_category_id=seeded[1].curated_category_id)

    assert await service.get(made.id) == made
    moved = await service.update(made.id, line_item_id=seeded[1].line_item_id)

    assert moved.line_item_id == seeded[1].line_item_id
    assert moved.curated_category_id == made.curated_category_id
    again = await service.update(made.id, curated_category_id=seeded[0].curated_category_id)

    assert again.line_item_id == moved.line_item_id
    assert again.curated_category_id == seeded[0].curated_category_id
    assert (await service.delete(made.id)).deleted
    with pytest.raises(NotFound):
        await service.get(made.id)

    assert (await service.get(made.id, with_deleted=True)).id == made.id


@pytest.mark.rule("TGT-01", "TGT-02")
async def test_who_targets_an_audience(session: Session, sandbox: Sandbox) -> None:
    audience = session.account(sandbox.account_id).custom_audience(sandbox.audience_id)
    active = await audience.targeted().collect()
    every = await audience.targeted(with_active=False).collect()

    assert all(item.servable for entry in active for item in entry.line_items)
    assert sum(len(entry.line_items) for entry in every) > sum(len(entry.line_items) for entry in active)
    assert every[0].campaign_id


@pytest.mark.rule("GEN-02b", "AUTH-27")
async def test_an_account_of_somebody_else_is_forbidden(session: Session) -> None:
    with pytest.raises(Forbidden) as caught:
        await session.accounts.get("nobodys")

    assert caught.value.has_code("ACCOUNT_NOT_FOUND")
    assert caught.value.sent is Sent.YES
    assert not caught.value.repeatable


async def test_wrong_secrets_are_unauthorized_and_do_not_show(sandbox: Sandbox) -> None:
    wrong = UserCredentials(**{**sandbox.credentials, "token_secret": "not-the-secret"})
    hosts = Endpoints(base_url=sandbox.base_url, ads_url=sandbox.ads_url)
    async with Session(wrong, endpoints=hosts, clock=sandbox.clock) as session:
        with pytest.raises(Unauthorized) as caught:
            await session.accounts.get(sandbox.account_id)
    for secret in ("not-the-secret", *list(sandbox.credentials.values())[1:]):
        assert secret not in f"{caught.value!r} {caught.value} {caught.value.__dict__}"


# --- calls that the SDK does not list


async def test_any_call_goes_signed_and_comes_back_as_plain_values(session: Session, sandbox: Sandbox) -> None:
    body = await session.request("get", f"/12/accounts/{sandbox.account_id}", params={"with_deleted": True})

    assert body["data"]["id"] == sandbox.account_id
    assert body["request"]["params"]["with_deleted"] is True


async def test_any_call_can_be_read_into_a_model(session: Session, sandbox: Sandbox) -> None:
    account = await session.request("GET", f"/12/accounts/{sandbox.account_id}", into=Account)

    assert account == await session.accounts.get(sandbox.account_id)
    made = await session.request("POST", "/12/accounts", surface="ads_sandbox", into=Account)

    assert made.id != account.id


async def test_any_listing_can_be_walked(session: Session, sandbox: Sandbox) -> None:
    path = f"/12/accounts/{sandbox.account_id}/line_item_curated_categories"
    plain = await session.iterate(path, params={"count": 1}).collect()
    typed = await session.account(sandbox.account_id).line_item_curated_categories.list().collect()

    assert [each["id"] for each in plain] == [each.id for each in typed]
    assert (await session.iterate("/12/accounts", into=Account).first()) is not None


async def test_a_json_body_is_sent_as_json(session: Session, sandbox: Sandbox) -> None:
    path = f"/12/accounts/{sandbox.account_id}/custom_audiences/{sandbox.audience_id}/users"
    operation = {"operation_type": "Update", "params": {"users": [{"email": ["a" * 64]}], "expires_at": None}}
    body = await session.request("POST", path, json=[operation])

    assert body["data"] == {"success_count": 1, "total_count": 1}


async def test_an_empty_json_body_is_a_body(session: Session, sandbox: Sandbox) -> None:
    path = f"/12/accounts/{sandbox.account_id}/custom_audiences/{sandbox.audience_id}/users"
    with pytest.raises(BadRequest):
        await session.request("POST", path, json=[])

    assert sandbox.requests[-1].size == len("[]")
    assert sandbox.requests[-1].headers["content-type"] == "application/json"


async def test_any_call_counts_towards_the_limits_of_its_kind(session: Session, sandbox: Sandbox) -> None:
    service = session.account(sandbox.account_id).line_item_curated_categories
    await service.list().first()
    before = {bucket.name: bucket.used for bucket in session.governor.snapshot()}
    await session.request("GET", f"/12/accounts/{sandbox.account_id}/line_item_curated_categories")
    after = {bucket.name: bucket.used for bucket in session.governor.snapshot()}

    assert after == {name: used + 1 for name, used in before.items()}


@pytest.mark.rule("GEN-01", "VER-01")
@pytest.mark.parametrize(
    ("path", "host"), [("/12/x", "ads"), ("/5/x", "ads"), ("/2/x", "base"), ("/1.1/x", "base"), ("/oauth/x", "base")]
)
async def test_the_version_in_the_path_chooses_the_host(
    session: Session, sandbox: Sandbox, path: str, host: str
) -> None:
    with pytest.raises(ApiError):
        await session.request("GET", path)

    assert sandbox.requests[-1].path == (f"/ads{path}" if host == "ads" else path)


@pytest.mark.parametrize(
    "path",
    [
        "12/accounts",
        "/12/accounts?count=1",
        "/12//x",
        "/12/accounts/",
        "/12/accounts/../x",
        "/12/./x",
        "/12/a#",
        "/12/\ud800",
        "",
    ],
)
async def test_a_path_that_is_none_is_refused(session: Session, path: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="path")):
        await session.request("GET", path)


@pytest.mark.parametrize("method", ["", "G ET", "GET\r\nX-A: b", "FETCH", "HEAD"])
async def test_a_method_that_is_none_is_refused(session: Session, method: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="method")):
        await session.request(method, "/12/accounts")


async def test_a_path_leads_nowhere_else(session: Session) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="path")):
        await session.request("GET", "/12/accounts/../x")


async def test_a_surface_that_is_none_is_refused(session: Session) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="surface")):
        await session.request("GET", "/12/accounts", surface="moon")


@pytest.mark.rule("GEN-09")
@pytest.mark.parametrize("name", ["cursor", "with_total_count"])
async def test_a_raw_listing_leaves_cursor_and_total_to_the_pager(session: Session, name: str) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="params")):
        session.iterate("/12/accounts", params={name: "1"})


@pytest.mark.parametrize("id_with", ["é", "a b", "100%", "a'b$c,d:e+f~g"])
async def test_ids_with_any_characters_are_signed_as_they_are_sent(session: Session, id_with: str) -> None:
    with pytest.raises(Forbidden):
        await session.accounts.get(id_with)


# --- faults on the way


async def test_unknown_fields_are_kept_when_they_are_wanted(sandbox: Sandbox) -> None:
    async with Session.sandbox(sandbox, keep_unknown=True) as session:
        account = await session.accounts.get(sandbox.account_id)
        assert account.extra == {}


READ = ("GET", "*/accounts/*")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.http(400), BadRequest),
        (Fault.html(404), NotFound),
        (Fault.empty(), UnexpectedAnswer),
        (Fault.malformed_json(), UnexpectedAnswer),
        (Fault.truncate(10), UnexpectedAnswer),
        (Fault.html(200), UnexpectedAnswer),
        (Fault.html(502), ServerError),
        (Fault.http(500), ServerError),
        (Fault.drop_connection(), TransportError),
        (Fault.reset_connection(), TransportError),
        (Fault.rate_limited(), RateLimited),
    ],
)
async def test_every_fault_is_one_typed_error(
    sandbox: Sandbox, session: Session, fault: Fault, error: type[Exception]
) -> None:
    sandbox.faults.on(*READ).once().do(fault)
    with pytest.raises(error):
        await session.but(retries=Retries.none()).accounts.get(sandbox.account_id)

    assert sandbox.requests.count("*/accounts/*") == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault.empty(),
        Fault.malformed_json(),
        pytest.param(Fault.truncate(10), marks=pytest.mark.long),
        Fault.html(502),
        pytest.param(Fault.http(500), marks=pytest.mark.long),
        Fault.http(503),
        Fault.http(503, retry_after=30),
        Fault.drop_connection(),
        pytest.param(Fault.reset_connection(), marks=pytest.mark.long),
        Fault.rate_limited(),
        pytest.param(Fault.rate_limited(headers=False), marks=pytest.mark.long),
        Fault.rate_limited(reset=30),
        pytest.param(Fault.rate_limited(reset=-30), marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("times", [2, pytest.param(1, marks=pytest.mark.long)])
async def test_a_read_survives_every_passing_fault(
    sandbox: Sandbox, session: Session, fault: Fault, times: int
) -> None:
    sandbox.faults.on(*READ).times(times).do(fault)

    assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id
    assert sandbox.requests.count("*/accounts/*") == times + 1


async def test_every_attempt_is_signed_anew(sandbox: Sandbox, session: Session) -> None:
    sandbox.faults.on(*READ).times(2).do(Fault.http(500), stage="after")
    await session.accounts.get(sandbox.account_id)  # a nonce used twice would be refused


@pytest.mark.parametrize(
    ("timeouts", "changes"),
    [
        (None, [{"timeout": 7}]),
        (None, [{"timeout": 7}, {"retries": Retries.none()}]),
        (Timeouts(total=7), []),
    ],
)
async def test_a_call_without_an_answer_ends_at_its_timeout(timeouts: Timeouts | None, changes: list[Any]) -> None:
    clock = VirtualClock()
    async with (
        Sandbox(clock=clock) as sandbox,
        Session.sandbox(sandbox, retries=Retries.none(), timeouts=timeouts) as opened,
    ):
        session = opened
        for change in changes:
            session = session.but(**change)
        sandbox.faults.on("*").do(Fault.hang())
        call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
        await sandbox.requests.wait(count=1)
        await clock.advance(seconds=6.9)
        assert not call.done()
        await clock.advance(seconds=0.2)
        with pytest.raises(TimedOut, check=has(sent=Sent.MAYBE)):
            await call


async def test_a_timeout_that_makes_no_sense_is_refused(session: Session) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter="timeout")):
        session.but(timeout=0)


async def test_a_limit_that_opens_too_late_is_told_at_once(clock: VirtualClock) -> None:
    async with Sandbox(clock=clock) as sandbox, Session.sandbox(sandbox) as session:
        for _ in range(5):
            await session.accounts.list().first()
        with pytest.raises(WouldWaitTooLong) as caught:
            await session.accounts.list().first()
        assert caught.value.until > clock.now()
        assert sandbox.requests.count("*/accounts") == 5


@pytest.mark.long("few requests do not reach the limit")
async def test_no_request_is_ever_refused_for_going_too_fast(clock: VirtualClock) -> None:
    async with Sandbox(clock=clock, config=SandboxConfig()) as sandbox, Session.sandbox(sandbox) as session:
        service = session.account(sandbox.account_id).line_item_curated_categories
        await asyncio.gather(*(service.list().total_count() for _ in range(150)))
        assert all(entry.status == 200 for entry in sandbox.requests)


async def test_every_attempt_is_told(sandbox: Sandbox) -> None:
    received: list[CallEvent] = []
    async with Session.sandbox(sandbox, on_event=received.append) as session:
        sandbox.faults.on(*READ).once().do(Fault.http(500))
        await session.accounts.get(sandbox.account_id)
        await session.request("GET", f"/12/accounts/{sandbox.account_id}")

    assert [(event.method, event.path, event.status) for event in received] == [
        ("GET", "/12/accounts/{account_id}", 500),
        ("GET", "/12/accounts/{account_id}", 200),
        ("GET", "/12/accounts/{account_id}", 200),
    ]
    assert isinstance(received[0].error, ServerError)
    assert received[1].error is None
    assert [event.attempt for event in received] == [1, 2, 1]
    assert {event.account for event in received} == {sandbox.account_id}
    assert {(event.host, event.port) for event in received} == {("127.0.0.1", int(sandbox.base_url.rpartition(":")[2]))}


async def test_an_answer_that_breaks_off_still_tells_the_limits(sandbox: Sandbox, session: Session) -> None:
    sandbox.faults.on(*READ).once().do(Fault.truncate(10), stage="after")
    with pytest.raises(UnexpectedAnswer):
        await session.but(retries=Retries.none()).accounts.get(sandbox.account_id)

    assert any(bucket.remaining is not None for bucket in session.governor.snapshot())


async def test_cancelled_calls_leave_the_session_usable(sandbox: Sandbox, session: Session) -> None:
    sandbox.faults.on("*").once().do(Fault.hang())
    call = asyncio.ensure_future(session.accounts.get(sandbox.account_id))
    await sandbox.requests.wait(count=1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert (await session.accounts.get(sandbox.account_id)).id == sandbox.account_id


def test_the_same_record_is_equal_and_hashable() -> None:
    fields: Mapping[str, Any] = dict.fromkeys(list_field_names(Account))
    assert len({Account(**fields), Account(**fields)}) == 1
