"""A program that was recorded replays without differences, and what a changed one does else has a name."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from svc_async import ApiError, BearerToken, NotFound, Recording, Retries, Session, SvcError, UserCredentials
from svc_async.ads.keyword_insights import KeywordGranularity
from svc_async.ads.product_sets import ProductSetType
from svc_async.sandbox import Fault, Sandbox, VirtualClock
from tests.support.contract import PRODUCT
from tests.support.dialects import ACME
from tests.support.raw_client import hash_sha256

Program = Callable[[Session], Awaitable[Any]]
ACCOUNT, AUDIENCE = "18ce54d4x5t", "1nmth"
PEOPLE = [{"email": f"person-{number}@example.org"} for number in range(30)]
MANY = [{"email": f"person-{number}@example.org"} for number in range(4_000)]
A, B = hash_sha256("a@example.org"), hash_sha256("b@example.org")
CARD: Sequence[Mapping[str, Any]] = [
    {"type": "MEDIA", "media_key": "3_880102"},
    {"type": "DETAILS", "title": "Autumn", "destination": {"type": "WEBSITE", "url": "https://harbour.example/a"}},
]


async def record(sandbox: Sandbox, path: Path, program: Program, **options: Any) -> Any:
    async with Session.sandbox(sandbox, record=Recording(path), **options) as session:
        return await program(session)


async def replay(path: Path, program: Program, **options: Any) -> tuple[Any, Sequence[tuple[Any, ...]]]:
    async with Sandbox.replay(path) as sandbox:
        async with Session.sandbox(sandbox, **options) as session:
            result = await program(session)
        return result, [tuple(each) for each in sandbox.differences]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "defect.jsonl"


async def fail(call: Awaitable[object]) -> tuple[str, int | None, Any]:
    with pytest.raises(SvcError) as caught:
        await call
    codes = [each.code for each in caught.value.errors] if isinstance(caught.value, ApiError) else []
    return type(caught.value).__name__, getattr(caught.value, "status", None), codes


async def walk(session: Session) -> Any:
    account = session.account(ACCOUNT)
    names = ["First", "Second", "Third"]
    created = [(await account.cards.create(name=name, components=CARD)).name for name in names]
    pages = [len(page.items) async for page in account.cards.list(count=2).pages()]
    listed = await account.cards.list(count=2).collect()
    again = [(await account.cards.get(card.id)).id == card.id for card in listed]
    report = await account.custom_audience(AUDIENCE).users.upload(PEOPLE, concurrency=1)
    refused = await fail(account.cards.get("nobody"))
    catalog = session.product_catalog((await session.product_catalogs.create(name="Books")).id)
    upserted = await catalog.products.upsert([{**PRODUCT, "id": f"sku-{n}"} for n in range(30)])
    keys = [str(product.product_key) async for product in catalog.products.list(count=10)]
    product_set = await catalog.product_sets.create(name="All", type=ProductSetType.MANUAL, product_keys=keys)
    bearer = (await session.oauth2.token()).token_type
    post = await account.posts.create(as_user_id=756201191646691328, text="Read more", nullcast=True)
    return (
        created,
        pages,
        again,
        report.to_dict(),
        refused,
        (upserted.accepted, len(keys), product_set.name),
        bearer,
        (str(post.id) == post.id_str, post.text, post.created_at),
    )


@pytest.mark.long("records and replays a whole walk")
async def test_a_program_with_a_dialect_replays_in_the_words_of_the_wire(path: Path) -> None:
    async with Sandbox(clock=VirtualClock(mode="jump"), dialect=ACME) as sandbox:
        done = await record(sandbox, path, walk)
    assert await replay(path, walk, dialect=ACME) == (done, [])


@pytest.mark.long("makes some thirty calls, twice")
async def test_a_walk_replays_exactly(sandbox: Sandbox, path: Path) -> None:
    sandbox.faults.on("GET", "*/cards").once().do(Fault.rate_limited(reset=30))
    recorded = await record(sandbox, path, walk)
    began = sandbox.clock.now()

    replayed, differences = await replay(path, walk)

    assert differences == []
    assert recorded[3].pop("elapsed", None) == replayed[3].pop("elapsed", None)
    assert replayed == recorded
    assert began > VirtualClock().now()  # what the service asked to wait was waited


async def read_account(session: Session) -> str | None:
    return (await session.accounts.get(ACCOUNT)).timezone


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault.http(503, code="OVER_CAPACITY"), "ServerError"),
        (Fault.hang(), "TimedOut"),
        (Fault.drop_connection(), "TransportError"),
        (Fault.truncate(20), "UnexpectedAnswer"),
        (Fault.malformed_json(), "UnexpectedAnswer"),
        (Fault.html(502), "ServerError"),
        (Fault.empty(), "UnexpectedAnswer"),
    ],
)
async def test_what_has_failed_fails_again_in_the_same_way(
    sandbox: Sandbox, path: Path, fault: Fault, error: str
) -> None:
    sandbox.faults.on("GET", "*").once().do(fault)
    retries = Retries(attempts=1)

    async def program(session: Session) -> Any:
        return await fail(session.accounts.get(ACCOUNT)), await session.accounts.get(ACCOUNT)

    (recorded, _) = await record(sandbox, path, program, retries=retries)
    (replayed, account), differences = await replay(path, program, retries=retries)

    assert (replayed[0], differences) == (error, [])
    assert replayed == recorded
    assert account.id == ACCOUNT


async def test_a_repeated_call_is_repeated_again(sandbox: Sandbox, path: Path) -> None:
    sandbox.faults.on("GET", "*").times(2).do(Fault.http(503))

    assert await record(sandbox, path, read_account) == "Europe/Lisbon"
    assert await replay(path, read_account) == ("Europe/Lisbon", [])


async def test_values_that_the_program_has_sent_come_back_and_others_do_not(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session, name: str) -> Any:
        created = await session.account(ACCOUNT).cards.create(name=name, components=CARD)
        return created.name, created.id

    await record(sandbox, path, lambda session: program(session, "Spring"))

    assert await replay(path, lambda session: program(session, "Winter")) == (("Winter", "id-1"), [])


async def test_an_account_that_was_listed_first_may_be_named_by_the_program(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session) -> Any:
        listed = await session.accounts.list().first()
        assert listed is not None
        return await session.account(ACCOUNT).features.list().collect(), (await session.accounts.get(listed.id)).deleted

    recorded = await record(sandbox, path, program)

    assert await replay(path, program) == (recorded, [])


async def test_a_listed_id_that_was_used_once_is_used_again(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session, other: str = "") -> None:
        listed = await session.accounts.list().first()
        assert listed is not None
        await session.accounts.get(listed.id)
        await session.accounts.get(other or listed.id)

    await record(sandbox, path, program)

    assert (await replay(path, program))[1] == []
    _, differences = await replay(path, lambda session: program(session, ACCOUNT))
    assert [each[3:] for each in differences] == [("path[3]", "id-1", "id")]


async def test_times_may_be_others(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session, day: int) -> None:
        end = datetime(2026, 6, day, tzinfo=UTC)
        await session.keyword_insights.search(
            granularity=KeywordGranularity.HOUR, keywords=["novel"], start_time=end - timedelta(hours=6), end_time=end
        )

    await record(sandbox, path, lambda session: program(session, 9))

    assert await replay(path, lambda session: program(session, 8)) == (None, [])


async def test_requests_at_once_may_come_in_another_order(sandbox: Sandbox, path: Path) -> None:
    sizes = (3, 1, 2)

    async def program(session: Session, order: Sequence[int]) -> Any:
        users = session.account(ACCOUNT).custom_audience(AUDIENCE).users
        operations = {
            size: [
                {
                    "operation_type": "Update",
                    "params": {"users": [{"email": [hash_sha256(f"{size}-{n}")]} for n in range(size)]},
                }
            ]
            for size in order
        }
        answers = await asyncio.gather(*(users.send(each) for each in operations.values()))
        return {size: answer.success_count for size, answer in zip(operations, answers, strict=True)}

    recorded = await record(sandbox, path, lambda session: program(session, sizes))

    assert await replay(path, lambda session: program(session, sizes[::-1])) == (recorded, [])


@pytest.mark.long("sends 4,000 people three times")
async def test_a_large_body_is_compared_by_its_counts_and_its_first_operation(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session, people: Any) -> int:
        return (await session.account(ACCOUNT).custom_audience(AUDIENCE).users.upload(people)).accepted

    assert await record(sandbox, path, lambda session: program(session, MANY)) == len(MANY)
    assert path.stat().st_size < 10_000

    assert await replay(path, lambda session: program(session, MANY)) == (len(MANY), [])
    _, differences = await replay(path, lambda session: fail(program(session, MANY[:-5])))
    assert {each[3:] for each in differences} >= {("number of body[].params.users[]", "4000", "3995")}


async def change_order(session: Session) -> None:
    account = session.account(ACCOUNT)
    await account.cards.list(count=2, sort_by="created_at-asc").first()
    await account.custom_audience(AUDIENCE).users.send(
        [{"operation_type": "Update", "params": {"users": [{"email": [A]}, {"email": [B]}]}}]
    )


async def test_a_changed_program_has_exactly_these_differences(sandbox: Sandbox, path: Path) -> None:
    async def changed(session: Session) -> None:
        account = session.account(ACCOUNT)
        await account.cards.list(count=3, q="Autumn").first()
        await account.custom_audience(AUDIENCE).users.send(
            [
                {
                    "operation_type": "Delete",
                    "params": {"users": [{"email": [A]}, {"email": [A], "handle": [B]}]},
                }
            ]
        )
        await fail(account.poll_cards.get("5rkc1"))

    await record(sandbox, path, change_order)
    _, differences = await replay(path, changed)

    cards = (0, "GET", "/12/accounts/account_id-1/cards")
    users = (1, "POST", "/12/accounts/account_id-1/custom_audiences/custom_audience_id-1/users")
    place = "body[0].params.users[1]"
    assert differences == [
        (*cards, "query.count", "2", "3"),
        (*cards, "query.sort_by", "created_at-asc", "nothing"),
        (*cards, "query.q", "nothing", "q"),
        (*users, "body[0].operation_type", '"Update"', '"Delete"'),
        (*users, f"{place}.email[0]", "email-2", "email-1"),
        (*users, f"{place}.handle[0]", "nothing", "handle"),
        (2, "GET", "/12/accounts/account_id-1/cards/poll/poll", "request", "nothing", "request"),
    ]


async def test_a_request_that_has_not_come_is_a_difference_and_an_unknown_one_is_not_found(
    sandbox: Sandbox, path: Path
) -> None:
    await record(sandbox, path, read_account)

    async def other(session: Session) -> None:
        with pytest.raises(NotFound):
            await session.placements.list().collect()

    _, differences = await replay(path, other)

    assert differences == [
        (0, "GET", "/12/line_items/placements", "request", "nothing", "request"),
        (0, "GET", "/12/accounts/account_id-1", "request", "request", "nothing"),
    ]


async def test_another_user_is_told_apart(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session, users: Sequence[Any]) -> None:
        for credentials in users:
            await session.as_user(UserCredentials(**credentials)).accounts.list().collect()

    first, second = sandbox.credentials, sandbox.other_credentials
    await record(sandbox, path, lambda session: program(session, [first, second, first]))

    assert (await replay(path, lambda session: program(session, [first, second, first])))[1] == []
    _, differences = await replay(path, lambda session: program(session, [first, second, second]))
    assert [each[3:] for each in differences] == [("authorization.oauth_token", "oauth_token-1", "oauth_token-2")]


async def test_another_kind_of_credentials_is_no_difference(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session) -> Any:
        return await session.request("GET", "/2/webhooks")

    token = BearerToken(sandbox.bearer_token())
    recorded = await record(sandbox, path, lambda session: program(session.as_user(token)))

    assert await replay(path, program) == (recorded, [])


async def test_names_in_an_object_that_are_values_are_compared_by_their_place(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session, name: str) -> Any:
        with pytest.raises(ApiError):
            await session.request("POST", "/12/accounts", json={name: {"a": 1}})

    await record(sandbox, path, lambda session: program(session, "Ada Lovelace"))

    assert await replay(path, lambda session: program(session, "Grace Hopper")) == (None, [])


async def test_a_reset_begins_from_the_start(sandbox: Sandbox, path: Path) -> None:
    await record(sandbox, path, read_account)

    async with Sandbox.replay(path) as replaying:
        for _ in range(2):
            async with Session.sandbox(replaying) as session:
                await read_account(session)
            assert replaying.differences == ()
            await replaying.reset()
        assert [each.field for each in replaying.differences] == ["request"]


async def test_differences_are_bounded(sandbox: Sandbox, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svc_async.sandbox.replay._MOST_DIFFERENCES", 3)

    async def program(session: Session) -> None:
        for _ in range(5):
            await read_account(session)

    await record(sandbox, path, program)

    async with Sandbox.replay(path) as replaying:
        assert len(replaying.differences) == 3


@pytest.mark.long("opens two streams")
async def test_of_a_stream_its_opening_is_replayed(sandbox: Sandbox, path: Path) -> None:
    async def program(session: Session) -> None:
        await session.activity.subscriptions.create(event_type="post.create", user_id="756201191646691328")
        async with session.activity.stream():
            pass

    await record(sandbox, path, program)

    assert await replay(path, program) == (None, [])


def test_a_sandbox_without_a_recording_has_no_differences() -> None:
    assert Sandbox().differences == ()
