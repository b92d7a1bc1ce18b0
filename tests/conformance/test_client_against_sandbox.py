"""Client and sandbox, written independently, meet on a socket: every operation of the advertising API is called.

A walk uses one family on the seed; afterwards the sandbox must have answered each operation of the family.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from svc_async import Dialect, DriftReport, Session
from svc_async.ads.account_history import HistoryEntityType
from svc_async.ads.accounts import IndustryType
from svc_async.ads.cards import CardType
from svc_async.ads.features import FeatureKey
from svc_async.ads.keyword_insights import KeywordGranularity
from svc_async.ads.line_items import EntityStatus
from svc_async.ads.placements import AdProductType
from svc_async.ads.product_sets import ProductSetType
from svc_async.ads.tailored_audience_permissions import PermissionLevel
from svc_async.handles import AccountHandle
from svc_async.sandbox import Sandbox, VirtualClock
from tests.support.contract import OPERATIONS, PRODUCT
from tests.support.dialects import ACME, EVERY_WORD

OK = 200
NOW = datetime(2026, 6, 10, 12, tzinfo=UTC)
WEBSITE = {"type": "WEBSITE", "url": "https://harbour.example/autumn"}
COMPONENTS: Sequence[Mapping[str, Any]] = [
    {"type": "MEDIA", "media_key": "3_880102"},
    {"type": "DETAILS", "title": "Autumn", "destination": WEBSITE},
]

PEOPLE = [{"email": "ada@example.org"}, {"phone_number": "+351912345678"}]
Params = Mapping[str, int | str | bool]
Walk = Callable[[Session, AccountHandle], Awaitable[object]]
WALKS: dict[str, Walk] = {}
"""A walk for each family of operations."""


def covers(family: str) -> Callable[[Walk], Walk]:
    """Register the walk of a family."""

    def register(walk: Walk) -> Walk:
        WALKS[family] = walk
        return walk

    return register


@pytest.fixture
def dialect() -> Dialect | None:
    return None


@pytest.fixture
async def sandbox(dialect: Dialect | None) -> AsyncIterator[Sandbox]:
    async with Sandbox(clock=VirtualClock(NOW, mode="jump"), dialect=dialect) as sandbox:
        yield sandbox


@covers("account_apps")
async def use_account_apps(_: Session, account: AccountHandle) -> None:
    assert [app.id async for app in account.apps.list(sort_by="id-asc", with_deleted=True)] == [
        "sg7q1",
        "sg7q2",
        "sg7q3",
    ]
    assert await account.apps.list().total_count() == 2


@covers("account_history")
async def use_account_history(_: Session, account: AccountHandle) -> None:
    await account.line_items.update("9cqi0", name="Renamed")
    entries = account.history.list(
        entity_type=HistoryEntityType.LINE_ITEM,
        entity_id="9cqi0",
        start_time=NOW - timedelta(hours=1),
        end_time=NOW + timedelta(hours=1),
    )
    assert [entry.change_type for entry in await entries.collect()] == ["CREATE", "UPDATE"]


@covers("account_media")
async def use_account_media(_: Session, account: AccountHandle) -> None:
    listed = await account.account_media.list(account_media_ids=["2wrdq", "2wrer"]).collect()
    assert await account.account_media.get(listed[0].id) == listed[0]
    assert (await account.account_media.delete(listed[0].id)).deleted
    assert [left.id for left in await account.account_media.list().collect()] == [listed[1].id]


@covers("accounts")
async def use_accounts(session: Session, _: AccountHandle) -> None:
    created = await session.accounts.create()
    renamed = await session.accounts.update(created.id, name="Second shop", industry_type=IndustryType("RETAIL"))
    assert [each.id async for each in session.accounts.list(q="second")] == [renamed.id]
    assert (await session.accounts.delete(created.id)).deleted
    assert (await session.accounts.get(created.id, with_deleted=True)).name == "Second shop"


@covers("advertiser_business_categories")
async def use_business_categories(session: Session, _: AccountHandle) -> None:
    named = {str(each.name): each async for each in session.advertiser_business_categories.list()}
    assert [*(named["Retail"].iab_categories or ())] == ["IAB22"]


@covers("audience_estimate")
async def use_audience_estimate(_: Session, account: AccountHandle) -> None:
    criteria = [{"targeting_type": "BROAD_KEYWORD", "targeting_value": "novels"}]
    size = (await account.audience_estimate(targeting_criteria=criteria)).audience_size
    assert size is not None
    assert 0 <= (size.min or 0) <= (size.max or 0)


@covers("cards")
async def use_cards(_: Session, account: AccountHandle) -> None:
    created = await account.cards.create(name="Autumn list", components=COMPONENTS)
    changed = await account.cards.update(created.id, name="Autumn list 2")
    assert await account.cards.get(created.id) == changed
    found = await account.cards.list(card_types=[CardType.IMAGE_WEBSITE], q="Autumn").collect()
    assert [card.name for card in found] == ["Autumn list 2"]


@covers("image_conversation_cards")
async def use_image_conversation_cards(_: Session, account: AccountHandle) -> None:
    assert (await account.cards.delete_image_conversation("5rkc2")).deleted


@covers("curated_categories")
async def use_curated_categories(_: Session, account: AccountHandle) -> None:
    assert (await account.curated_categories.get("9ddrgesiap6o")).country_codes[0] == "PT"


@covers("targeted_audiences")
async def use_targeted_audiences(_: Session, account: AccountHandle) -> None:
    entries = await account.custom_audience("1nmth").targeted(with_active=False).collect()
    assert {entry.campaign_id for entry in entries} == {"8wku2"}


@covers("custom_audience_users")
async def use_custom_audience_users(_: Session, account: AccountHandle) -> None:
    report = await account.custom_audience("1nmth").users.upload(PEOPLE)
    assert (report.accepted, report.complete) == (2, True)


@covers("do_not_reach_users")
async def use_do_not_reach_users(_: Session, account: AccountHandle) -> None:
    users = account.do_not_reach_list("dnr7k1").users
    assert (await users.upload(PEOPLE)).accepted == 2
    assert (await users.remove(PEOPLE)).accepted == 2


@covers("custom_audiences")
async def use_custom_audiences(_: Session, account: AccountHandle) -> None:
    created = await account.custom_audiences.create(name="Readers", description="of the harbour")
    changed = await account.custom_audiences.update(created.id, name="All readers")
    assert [each.id async for each in account.custom_audiences.list(q="all r")] == [changed.id]
    assert (await account.custom_audiences.get(created.id)).name == "All readers"
    assert (await account.custom_audiences.delete(created.id)).deleted


@covers("custom_audience_permissions")
async def use_custom_audience_permissions(_: Session, account: AccountHandle) -> None:
    permissions = account.custom_audience("1nmth").permissions
    level = PermissionLevel.READ_ONLY
    created = await permissions.create(granted_account_id="18ce55hq7w1", permission_level=level)
    assert [each.id async for each in permissions.list()] == [created.id]
    assert (await permissions.delete(created.id)).deleted


@covers("do_not_reach_lists")
async def use_do_not_reach_lists(_: Session, account: AccountHandle) -> None:
    assert (await account.do_not_reach_list("dnr7k1").delete()).deleted
    created = await account.do_not_reach_lists.create(description="Not these")
    assert [each.id async for each in account.do_not_reach_lists.list()] == [created.id]


@covers("features")
async def use_features(_: Session, account: AccountHandle) -> None:
    key = FeatureKey("REACH_FREQUENCY_CAP")
    await account.features.add([key])
    assert await account.features.list(feature_keys=[key]).collect() == [key]
    await account.features.remove([key])
    assert await account.features.list(feature_keys=[key]).collect() == []


@covers("keyword_insights")
async def use_keyword_insights(session: Session, _: AccountHandle) -> None:
    insights = await session.keyword_insights.search(
        granularity=KeywordGranularity.HOUR, keywords=["novel"], start_time=NOW - timedelta(hours=6), end_time=NOW
    )
    assert len(insights.tweet_volume or ()) == 6


@covers("line_item_curated_categories")
async def use_line_item_curated_categories(_: Session, account: AccountHandle) -> None:
    service = account.line_item_curated_categories
    created = await service.create(line_item_id="9cqi2", curated_category_id="9ddrgesiap6o")
    changed = await service.update(created.id, curated_category_id="9ddrgesiap7p")
    assert await service.get(created.id) == changed
    assert (await service.delete(created.id)).deleted
    assert [each.id async for each in service.list()] == ["43853bhii885", "43853bhii886"]


@covers("line_items")
async def use_line_items(_: Session, account: AccountHandle) -> None:
    changed = await account.line_items.update(
        "9cqi4", bid_amount_local_micro=500_000, entity_status=EntityStatus.PAUSED
    )
    assert (changed.bid_amount_local_micro, changed.entity_status) == (500_000, "PAUSED")
    assert (await account.line_items.delete("9cqi4")).deleted


@covers("media_library")
async def use_media_library(_: Session, account: AccountHandle) -> None:
    library = account.media_library
    created = await library.create(media_key="3_880104", name="Counter")
    changed = await library.update(created.media_key, name="The counter")
    assert await library.get(created.media_key) == changed
    assert [each.media_key async for each in library.list(q="counter")] == [created.media_key]
    await library.delete(created.media_key)
    assert await library.list(q="counter").collect() == []


@covers("placements")
async def use_placements(session: Session, _: AccountHandle) -> None:
    (group,) = await session.placements.list(product_type=AdProductType.MEDIA).collect()
    assert group.product_type == "MEDIA"


@covers("poll_cards")
async def use_poll_cards(_: Session, account: AccountHandle) -> None:
    service = account.poll_cards
    created = await service.create(duration_in_minutes=60, first_choice="Tea", second_choice="Coffee", name="Drinks")
    assert await service.get(created.id) == created
    assert [card.id async for card in service.list(card_ids=[created.id])] == [created.id]
    await service.delete(created.id)
    assert await service.list().collect() == []


@covers("posts")
async def use_posts(_: Session, account: AccountHandle) -> None:
    post = await account.posts.create(as_user_id=756201191646691328, text="Read more", nullcast=True)
    assert (await account.posts.rename(str(post.id), name="Spring")).id == post.id


@covers("product_catalogs")
async def use_product_catalogs(session: Session, _: AccountHandle) -> None:
    service = session.product_catalogs
    created = await service.create(name="Harbour Books")
    assert (await service.update(created.id, name="Books")).name == "Books"
    assert [each.id async for each in service.list()] == [created.id]
    assert (await service.delete(created.id)).id == created.id


@covers("products")
async def use_products(session: Session, _: AccountHandle) -> None:
    catalog = session.product_catalog((await session.product_catalogs.create(name="Harbour Books")).id)
    (result,) = await catalog.products.send([PRODUCT])
    (product,) = await catalog.products.list().collect()
    assert (result.product_key, product.title) == (product.product_key, PRODUCT["title"])
    assert (await catalog.products.delete([str(product.product_key)])).accepted == 1
    assert await catalog.products.list().collect() == []


@covers("product_sets")
async def use_product_sets(session: Session, _: AccountHandle) -> None:
    catalog = session.product_catalog((await session.product_catalogs.create(name="Harbour Books")).id)
    await catalog.products.send([PRODUCT])
    key = (await catalog.products.list().collect())[0].product_key
    created = await catalog.product_sets.create(name="All", type=ProductSetType.MANUAL, product_keys=[str(key)])
    changed = await catalog.product_sets.update(created.id, name="All of them")
    assert await catalog.product_sets.get(created.id) == changed


@covers("tailored_audience_permissions")
async def use_tailored_audience_permissions(_: Session, account: AccountHandle) -> None:
    permissions = account.tailored_audience("tq4k1").permissions
    level = PermissionLevel.READ_ONLY
    created = await permissions.create(granted_account_id="18ce55hq7w1", permission_level=level)
    assert [each.id async for each in permissions.list()] == [created.id]
    assert (await permissions.delete(created.id)).deleted


@covers("video_conversation_cards")
async def use_video_conversation_cards(_: Session, account: AccountHandle) -> None:
    service = account.video_conversation_cards
    created = await service.create(
        first_cta="#Read",
        first_cta_post="I read",
        media_key="7_880301",
        name="Talk",
        title="Shop",
        thank_you_text="Thanks",
    )
    changed = await service.update(created.id, name="Talk 2")
    assert await service.get(created.id) == changed
    assert [card.id async for card in service.list()] == [created.id]


@pytest.mark.rule("GEN-01", "GEN-03", "GEN-04", "GEN-12", "GEN-14")
@pytest.mark.parametrize("dialect", [None, EVERY_WORD, ACME], ids=["plain", "every word", "acme"])
@pytest.mark.parametrize("family", WALKS)
async def test_every_operation_of_a_family_is_answered(family: str, sandbox: Sandbox) -> None:
    drift = DriftReport()
    async with Session.sandbox(sandbox, drift=drift) as session:
        await WALKS[family](session, session.account(sandbox.account_id))

    assert [each for each in drift.findings if each.operation.startswith("GET")] == []
    answered = {entry.operation for entry in sandbox.requests if entry.status == OK}

    assert {entry.status for entry in sandbox.requests} == {OK}
    assert answered >= {name for name in OPERATIONS if name.partition(".")[0] == family}


def test_no_operation_is_left_out() -> None:
    assert WALKS.keys() == {name.partition(".")[0] for name in OPERATIONS}


@pytest.mark.rule("VER-05")
async def test_an_unlisted_parameter_is_sent_by_a_plain_request(sandbox: Sandbox) -> None:
    path = f"/12/accounts/{sandbox.account_id}/post"
    params: Params = {"as_user_id": 756201191646691328, "text": "With a partner", "paid_partnership": True}

    async with Session.sandbox(sandbox) as session:
        answer = await session.request("POST", path, params=params)

    assert answer["request"]["params"]["paid_partnership"] is True
