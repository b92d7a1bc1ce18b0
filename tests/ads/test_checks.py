"""Rules that need no service to decide: what breaks one is refused before a request is spent."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from aioresponses import aioresponses

from svc_async import BadRequest, InvalidArgument, Session
from svc_async.ads.cards import (
    AppDestination,
    CardButtonLabel,
    CardComponentButton,
    CardComponentDetails,
    CardComponentMedia,
    CardComponentSwipeableMedia,
    CardLabelValue,
    WebsiteDestination,
)
from svc_async.ads.line_items import BidStrategy, PayBy
from svc_async.ads.product_sets import ProductSetType
from svc_async.ads.products import Product, ProductAvailability, ProductCondition
from svc_async.engine.paging import Pager
from tests.support.fake_http import answer_any_method, make_session

Call = Callable[..., Any]

HOUR = datetime(2026, 1, 2, 3, tzinfo=UTC)
WEEK = timedelta(days=7)
SECOND = timedelta(seconds=1)

CALLS: Mapping[str, Callable[[Session], Call]] = {
    "cards.create": lambda session: session.account("a").cards.create,
    "cards.update": lambda session: session.account("a").cards.update,
    "estimate": lambda session: session.account("a").audience_estimate,
    "features.add": lambda session: session.account("a").features.add,
    "features.remove": lambda session: session.account("a").features.remove,
    "history": lambda session: session.account("a").history.list,
    "keywords": lambda session: session.keyword_insights.search,
    "line_items.update": lambda session: session.account("a").line_items.update,
    "poll_cards.create": lambda session: session.account("a").poll_cards.create,
    "posts.create": lambda session: session.account("a").posts.create,
    "product_sets.create": lambda session: session.product_catalog("c").product_sets.create,
    "products.send": lambda session: session.product_catalog("c").products.send,
    "vcc.create": lambda session: session.account("a").video_conversation_cards.create,
    "vcc.update": lambda session: session.account("a").video_conversation_cards.update,
}

MEDIA = CardComponentMedia(media_key="13_1")
DETAILS = CardComponentDetails(title="t", destination=WebsiteDestination(url="https://example.test"))
APP = AppDestination(country_code="AT", googleplay_app_id="com.example", ios_app_store_identifier="1")
BUTTON = CardComponentButton(label=CardButtonLabel(value=CardLabelValue.OPEN), destination=APP)


def build_button(**changes: Any) -> list[Any]:
    return [MEDIA, attrs.evolve(BUTTON, destination=attrs.evolve(APP, **changes))]


def build_swipeable(size: int) -> CardComponentSwipeableMedia:
    return CardComponentSwipeableMedia(media_keys=tuple(f"13_{number}" for number in range(size)))


PRODUCT = Product(
    id="sku",
    title="t",
    description="d",
    availability=ProductAvailability.IN_STOCK,
    condition=ProductCondition.NEW,
    price="9.90 EUR",
    link="https://example.test/p",
    image_link="https://example.test/p.png",
    brand="b",
    inventory=1,
)


def build_product(**changes: Any) -> dict[str, Any]:
    return {"products": [attrs.evolve(PRODUCT, **changes)]}


LINE_ITEM: dict[str, Any] = {"line_item_id": "l"}
CARD: dict[str, Any] = {"name": "n"}
HISTORY: dict[str, Any] = {"entity_type": "CAMPAIGN", "entity_id": "e", "start_time": HOUR, "end_time": HOUR}
KEYWORDS: dict[str, Any] = {"granularity": "DAY", "keywords": ["k"], "start_time": HOUR}
POLL: dict[str, Any] = {"duration_in_minutes": 5, "first_choice": "1", "second_choice": "2", "name": "n"}
POST: dict[str, Any] = {"as_user_id": 1}
SET: dict[str, Any] = {"name": "n"}
VCC: dict[str, Any] = {"first_cta": "#a", "first_cta_post": "p", "media_key": "m", "name": "n", "thank_you_text": "t"}
FILTER: dict[str, Any] = {"attribute": "price", "operator": "LESS_THAN", "value": "9"}

COMPONENTS = "must contain one media component and a DETAILS or BUTTON component"


@attrs.frozen
class Breach:
    """A call that breaks rules of the contract, and the parameter that is named with what is broken."""

    call: str
    parameter: str
    broken: str
    given: dict[str, Any]
    rules: tuple[str, ...]


def build_case(call: str, parameter: str, broken: str, given: dict[str, Any], *rules: str) -> Breach:
    return Breach(call, parameter, broken, given, rules)


BREACHES = [
    # cards
    build_case(
        "cards.create",
        "slides",
        "must not be given together with components",
        {**CARD, "components": [MEDIA, DETAILS], "slides": [[MEDIA, DETAILS]]},
        "CARD-03",
    ),
    build_case(
        "cards.update",
        "slides",
        "must not be given together with components",
        {"card_id": "c", "components": [MEDIA, DETAILS], "slides": [[MEDIA, DETAILS]]},
        "CARD-03",
    ),
    build_case("cards.create", "components", COMPONENTS, {**CARD, "components": [DETAILS]}, "CARD-04"),
    build_case("cards.create", "components", COMPONENTS, {**CARD, "components": [MEDIA]}, "CARD-04"),
    build_case(
        "cards.create",
        "components",
        COMPONENTS,
        {**CARD, "components": [MEDIA, build_swipeable(2), DETAILS]},
        "CARD-04",
    ),
    build_case("cards.update", "components", COMPONENTS, {"card_id": "c", "components": []}, "CARD-04"),
    build_case("cards.create", "components", "must be a sequence of objects", {**CARD, "components": MEDIA}, "CARD-03"),
    build_case("cards.create", "components[0]", "must be an object", {**CARD, "components": ["MEDIA"]}, "CARD-05"),
    build_case("cards.create", "components[0].type", "must be given", {**CARD, "components": [{}]}, "CARD-05"),
    build_case(
        "cards.create",
        "components[0].media_key",
        "must be given",
        {**CARD, "components": [{"type": "MEDIA"}, DETAILS]},
        "CARD-05",
    ),
    *(
        build_case(
            "cards.create",
            "components[0].media_keys",
            "must contain from 2 to 6 media keys",
            {**CARD, "components": [build_swipeable(size), DETAILS]},
            "CARD-05b",
        )
        for size in (1, 7)
    ),
    build_case(
        "cards.create",
        "components[1].title",
        "must be given",
        {**CARD, "components": [MEDIA, {"type": "DETAILS", "destination": {"type": "WEBSITE", "url": "u"}}]},
        "CARD-05c",
    ),
    build_case(
        "cards.create",
        "components[1].destination.url",
        "must be given",
        {**CARD, "components": [MEDIA, {"type": "DETAILS", "title": "t", "destination": {"type": "WEBSITE"}}]},
        "CARD-07",
    ),
    build_case(
        "cards.create",
        "components[1].destination.url",
        "must be given",
        {**CARD, "components": [MEDIA, {"type": "DETAILS", "title": "t", "destination": APP}]},
        "CARD-05c",
    ),
    build_case(
        "cards.create",
        "components[1].destination.type",
        "must be WEBSITE",
        {**CARD, "components": [MEDIA, {"type": "DETAILS", "title": "t", "destination": {"type": "APP", "url": "u"}}]},
        "CARD-05c",
    ),
    build_case(
        "cards.create",
        "components[1].label",
        "must be given",
        {**CARD, "components": [MEDIA, {"type": "BUTTON", "destination": APP}]},
        "CARD-05d",
    ),
    build_case(
        "cards.create",
        "components[1].label.type",
        "must be ENUM",
        {**CARD, "components": [MEDIA, {"type": "BUTTON", "label": {"type": "T", "value": "v"}, "destination": APP}]},
        "CARD-06",
    ),
    build_case(
        "cards.create",
        "components[1].destination.country_code",
        "must be an ISO 3166-1 alpha-2 code",
        {**CARD, "components": build_button(country_code="AUT")},
        "CARD-07b",
    ),
    build_case(
        "cards.create",
        "components[1].destination.googleplay_app_id",
        "must be given where ios_app_store_identifier is not",
        {**CARD, "components": build_button(googleplay_app_id=None, ios_app_store_identifier=None)},
        "CARD-07c",
    ),
    build_case(
        "cards.create",
        "components[1].destination.googleplay_app_id",
        "must be given with googleplay_deep_link",
        {**CARD, "components": build_button(googleplay_app_id=None, googleplay_deep_link="d")},
        "CARD-07d",
    ),
    build_case(
        "cards.create",
        "components[1].destination.ios_app_store_identifier",
        "must be given with ios_deep_link",
        {**CARD, "components": build_button(ios_app_store_identifier=None, ios_deep_link="d")},
        "CARD-07e",
    ),
    build_case(
        "cards.create",
        "components[0].media_keys",
        "must be given",
        {**CARD, "components": [{"type": "SWIPEABLE_MEDIA"}, DETAILS]},
        "CARD-05b",
    ),
    build_case(
        "cards.create",
        "components[1].label.value",
        "must be given",
        {**CARD, "components": [MEDIA, {"type": "BUTTON", "label": {"type": "ENUM"}, "destination": APP}]},
        "CARD-06",
    ),
    *(
        build_case(
            "cards.create",
            f"components[1].destination.{name}",
            broken,
            {**CARD, "components": [MEDIA, {"type": "BUTTON", "label": BUTTON.label, "destination": destination}]},
            "CARD-07b",
        )
        for name, broken, destination in (
            ("country_code", "must be given", {"type": "APP", "googleplay_app_id": "com.example"}),
            ("type", "must be given", {"country_code": "AT", "googleplay_app_id": "com.example"}),
            ("type", "must be APP", {"type": "WEBSITE", "country_code": "AT", "googleplay_app_id": "com.example"}),
        )
    ),
    build_case(
        "cards.create",
        "slides[1][0].media_keys",
        "must contain from 2 to 6 media keys",
        {**CARD, "slides": [[MEDIA, DETAILS], [build_swipeable(1), DETAILS]]},
        "CARD-05b",
    ),
    build_case("cards.create", "slides", "must be a sequence of sequences", {**CARD, "slides": 1}, "CARD-03"),
    build_case("cards.create", "slides[0]", "must be a sequence of objects", {**CARD, "slides": [MEDIA]}, "CARD-03"),
    *(
        build_case(
            "cards.update",
            f"{name}[0].media_keys",
            "must contain from 2 to 6 media keys",
            {"card_id": "c", name.split("[", maxsplit=1)[0]: content},
            "CARD-05b",
        )
        for name, content in (
            ("components", [build_swipeable(1), DETAILS]),
            ("slides[0]", [[build_swipeable(1), DETAILS]]),
        )
    ),
    # audience estimate, features
    build_case("estimate", "targeting_criteria", "must not be empty", {"targeting_criteria": []}, "EST-01c"),
    build_case("features.add", "feature_keys", "must not be empty", {"feature_keys": []}, "FEAT-02"),
    build_case("features.remove", "feature_keys", "must not be empty", {"feature_keys": []}, "FEAT-02"),
    # account history
    *(
        build_case("history", name, "must be a datetime with a time zone", {**HISTORY, name: "2026-01-02T03:00:00Z"})
        for name in ("start_time", "end_time")
    ),
    *(
        build_case("history", name, "must be a whole hour in UTC", {**HISTORY, name: HOUR + part}, "HIST-03")
        for name in ("start_time", "end_time")
        for part in (timedelta(minutes=1), SECOND, timedelta(microseconds=1))
    ),
    build_case(
        "history",
        "start_time",
        "must be a whole hour in UTC",
        {**HISTORY, "start_time": HOUR.astimezone(timezone(timedelta(hours=5, minutes=30))).replace(minute=0)},
        "HIST-03",
    ),
    # keyword insights
    *(
        build_case("keywords", name, "must be a datetime with a time zone", {**KEYWORDS, name: "2026-01-02T03:00:00Z"})
        for name in ("start_time", "end_time")
    ),
    build_case("keywords", "keywords", "must not be empty", {**KEYWORDS, "keywords": []}, "KW-02"),
    build_case(
        "keywords",
        "keywords",
        "must contain at most 10 keywords, negative_keywords counted as well",
        {**KEYWORDS, "keywords": list("abcdef"), "negative_keywords": list("ghijk")},
        "KW-03",
        "LIM-08",
    ),
    build_case("keywords", "keywords", "must be a sequence of keywords", {**KEYWORDS, "keywords": "coffee"}, "KW-02"),
    build_case(
        "keywords",
        "end_time",
        "must be at most 7 days after start_time",
        {**KEYWORDS, "end_time": HOUR + WEEK + SECOND},
        "KW-04",
    ),
    # line items
    build_case(
        "line_items.update",
        "advertiser_domain",
        "must be a domain without protocol",
        {**LINE_ITEM, "advertiser_domain": "https://example.test"},
        "LI-03",
    ),
    build_case(
        "line_items.update",
        "ios_app_store_identifier",
        "must be the numeric part only",
        {**LINE_ITEM, "ios_app_store_identifier": "id123"},
        "LI-05b",
    ),
    *(
        build_case(
            "line_items.update",
            "bid_amount_local_micro",
            "must be given when bid_strategy is MAX or TARGET",
            {**LINE_ITEM, "bid_strategy": strategy},
            "LI-07",
        )
        for strategy in ("MAX", BidStrategy.TARGET)
    ),
    *(
        build_case(
            "line_items.update",
            "bid_amount_local_micro",
            "must be a whole number greater than 0",
            {**LINE_ITEM, "bid_amount_local_micro": amount},
            "LI-07b",
        )
        for amount in (-1, True, "1")
    ),
    *(
        build_case(
            "line_items.update", "duration_in_days", "must be 1 or 7 or 30", {**LINE_ITEM, "duration_in_days": days}
        )
        for days in (0, 2, True)
    ),
    build_case(
        "line_items.update",
        "pay_by",
        "must not be IMPRESSION when bid_strategy is TARGET",
        {**LINE_ITEM, "pay_by": PayBy.IMPRESSION, "bid_strategy": "TARGET", "bid_amount_local_micro": 1},
        "LI-15c",
    ),
    build_case(
        "line_items.update",
        "daily_budget_amount_local_micro",
        "must be at most total_budget_amount_local_micro",
        {**LINE_ITEM, "daily_budget_amount_local_micro": 2, "total_budget_amount_local_micro": 1},
        "LI-16",
    ),
    # poll cards
    build_case("poll_cards.create", "duration_in_minutes", "from 5 to 10080", {**POLL, "duration_in_minutes": True}),
    build_case(
        "poll_cards.create", "second_choice", "must be given with", {**POLL, "second_choice": "", "third_choice": "3"}
    ),
    build_case("poll_cards.create", "third_choice", "must be given with fourth_choice", {**POLL, "fourth_choice": "4"}),
    # posts
    build_case("posts.create", "text", "must be given where media_keys is not", POST, "POST-02"),
    build_case("posts.create", "text", "must be given where media_keys is not", {**POST, "text": "", "media_keys": []}),
    build_case(
        "posts.create",
        "media_keys",
        "must contain at most 4 images, or one GIF, or one video",
        {**POST, "media_keys": list("12345")},
        "POST-03",
    ),
    # product sets
    build_case("product_sets.create", "product_keys", "must be given when type is MANUAL", {**SET, "type": "MANUAL"}),
    build_case(
        "product_sets.create",
        "filters",
        "must be given when type is FILTERED",
        {**SET, "type": ProductSetType.FILTERED, "filters": []},
        "PSET-01b",
    ),
    *(
        build_case(
            "product_sets.create",
            f"filters[1].{name}",
            "must be given",
            {**SET, "type": "FILTERED", "filters": [FILTER, {**FILTER, name: None}]},
            "PSET-02",
        )
        for name in FILTER
    ),
    # products
    *(
        build_case(
            "products.send",
            f"products[0].{name}",
            "must be given",
            {"products": [{**attrs.asdict(PRODUCT), name: None}]},
        )
        for name in ("id", "title", "description", "availability", "condition", "price", "link", "image_link")
    ),
    *(
        build_case("products.send", f"products[0].{name}", "must be ", build_product(**{name: "to come"}))
        for name in ("availability", "condition", "gender", "age_group")
    ),
    build_case("products.send", "products", "must be a sequence of products", {"products": PRODUCT}, "PROD-01"),
    build_case("products.send", "products[0].title", "must be text", build_product(title={"en": "Boots"})),
    build_case("products.send", "products[0].id", "must have all its digits", build_product(id="1E+5")),
    build_case("products.send", "products[0].title", "at most 150", build_product(title="x" * 151), "PROD-02b"),
    build_case(
        "products.send", "products[0].description", "at most 5000", build_product(description="x" * 5001), "PROD-02b"
    ),
    *(
        build_case("products.send", "products[0].price", "such as 9.90 EUR", build_product(price=price), "PROD-02c")
        for price in ("9.90", "9,90 EUR", "EUR 9.90", "9.90EUR", "9.90 euro", "9. EUR", "\u0669 EUR")
    ),
    build_case("products.send", "products[0].link", "must be an https URL", build_product(link="http://x"), "PROD-02d"),
    build_case(
        "products.send", "products[0].mobile_link", "must be an https URL", build_product(mobile_link="x"), "PROD-02d"
    ),
    build_case(
        "products.send",
        "products[0].brand",
        "must be given where gtin and mpn are not",
        build_product(brand=None),
        "PROD-03",
    ),
    build_case(
        "products.send",
        "products[0].additional_image_link",
        "must contain at most 10 URLs",
        build_product(additional_image_link=",".join("https://x" for _ in range(11))),
        "PROD-04",
    ),
    build_case("products.send", "products[0].inventory", "must be at least 1", build_product(inventory=0), "PROD-05"),
    build_case(
        "products.send", "products[0].sale_price", "such as 9.90 EUR", build_product(sale_price="8"), "PROD-06b"
    ),
    build_case(
        "products.send",
        "products[0].sale_price",
        "must be lower than price",
        build_product(sale_price="9.90 EUR"),
        "PROD-06",
    ),
    *(
        build_case(
            "products.send",
            "products[0].sale_price_effective_date",
            "must be two ISO 8601 timestamps",
            build_product(sale_price_effective_date=moments),
            "PROD-06c",
        )
        for moments in ("2026-01-01T00:00Z", "2026-01-01/", "soon/later", "2026-01-01/2026-01-02/2026-01-03")
    ),
    *(
        build_case(
            "products.send",
            f"products[0].{name}",
            "must have its levels separated by ' > '",
            build_product(**{name: levels}),
            "PROD-13",
        )
        for name in ("google_product_category", "product_type")
        for levels in ("a >", "a>b", "a >  b", "a > > b")
    ),
    build_case(
        "products.send",
        "products[0].description",
        "must be plain text, without tags",
        build_product(description="a <b>bold</b> word"),
    ),
    build_case("products.send", "products[0].color", "must be a word", build_product(color="#ff0000"), "PROD-12"),
    build_case("products.send", "products[1].id", "must not occur twice", {"products": [PRODUCT, PRODUCT]}, "PROD-07"),
    # video conversation cards
    build_case("vcc.create", "title", "must be given where second_cta is not", VCC, "VCC-01c", "VCC-01d"),
    *(
        build_case(
            "vcc.create",
            f"{cta}_post",
            f"must be given with {cta}",
            {**VCC, "title": "t", cta: "#b", f"{cta}_post": ""},
            "VCC-02",
            "VCC-02b",
            "VCC-02c",
        )
        for cta in ("first_cta", "second_cta", "third_cta", "fourth_cta")
    ),
    build_case("vcc.update", "first_cta", "# not counted", {"card_id": "c", "first_cta": "#" + "x" * 21}, "VCC-01"),
]


BROKEN = pytest.mark.rule(*sorted({rule for breach in BREACHES for rule in breach.rules}))


@BROKEN
async def test_a_breach_is_refused_before_a_request_is_spent(
    subtests: pytest.Subtests, service: aioresponses, session: Session
) -> None:
    for breach in BREACHES:
        with subtests.test(breach.call, parameter=breach.parameter, broken=breach.broken):
            with pytest.raises(InvalidArgument) as caught:
                await await_call(CALLS[breach.call](session)(**breach.given))
            assert caught.value.parameter == breach.parameter
            assert breach.broken in caught.value.rule
    assert not service.requests


async def test_without_validation_everything_passes_to_the_service(
    subtests: pytest.Subtests, service: aioresponses
) -> None:
    answer_any_method(service, status=400, repeat=True)
    for breach in BREACHES:
        async with make_session(validate=False) as session:  # one for all would keep to the limits of the service
            with (
                subtests.test(breach.call, parameter=breach.parameter, broken=breach.broken),
                pytest.raises(BadRequest),
            ):
                await await_call(CALLS[breach.call](session)(**breach.given))


KEPT = [
    ("cards.create", {**CARD, "components": [MEDIA, DETAILS]}),
    ("cards.create", {**CARD, "components": [build_swipeable(2), BUTTON]}),
    ("cards.create", {**CARD, "components": [build_swipeable(6), DETAILS, BUTTON]}),
    ("cards.create", {**CARD, "components": build_button(ios_app_store_identifier=None, googleplay_deep_link="d")}),
    ("cards.create", {**CARD, "components": [MEDIA, DETAILS, {"type": "TO_COME"}]}),
    ("cards.create", {**CARD, "slides": [[MEDIA, DETAILS], [MEDIA, DETAILS]]}),
    ("cards.update", {"card_id": "c", "name": "x" * 81}),
    ("history", HISTORY),
    ("history", {**HISTORY, "start_time": HOUR.astimezone(timezone(timedelta(hours=5, minutes=30)))}),
    ("keywords", {**KEYWORDS, "keywords": list("abcde"), "negative_keywords": list("ghijk")}),
    ("keywords", {**KEYWORDS, "end_time": HOUR + WEEK}),
    ("line_items.update", {**LINE_ITEM, "bid_strategy": "AUTO"}),
    ("line_items.update", {**LINE_ITEM, "bid_strategy": "MAX", "bid_amount_local_micro": 1, "pay_by": "IMPRESSION"}),
    ("line_items.update", {**LINE_ITEM, "daily_budget_amount_local_micro": 2, "total_budget_amount_local_micro": 2}),
    ("line_items.update", {**LINE_ITEM, "duration_in_days": 30, "ios_app_store_identifier": "123"}),
    ("poll_cards.create", {**POLL, "third_choice": "3", "fourth_choice": "4"}),
    ("posts.create", {**POST, "text": "t"}),
    ("posts.create", {**POST, "media_keys": list("1234")}),
    ("product_sets.create", {**SET, "type": "MANUAL", "product_keys": ["k"]}),
    ("product_sets.create", {**SET, "type": "FILTERED", "filters": [FILTER]}),
    (
        "products.send",
        build_product(
            sale_price="9.89 EUR", color="fade", additional_image_link=",".join(f"https://x/{n}" for n in range(10))
        ),
    ),
    (
        "products.send",
        build_product(sale_price="99 USD", sale_price_effective_date="2026-01-01T00:00Z/2026-01-02T00:00+01:00"),
    ),
    ("products.send", build_product(availability=ProductAvailability.OUT_OF_STOCK, inventory=0)),
    ("products.send", build_product(product_type="Home > Kitchen & Dining", google_product_category="632")),
    ("products.send", build_product(description="a < b > c")),
    ("products.send", {"products": [PRODUCT, attrs.evolve(PRODUCT, id="other", brand=None, mpn="m")]}),
    ("vcc.create", {**VCC, "title": "t", "first_cta": "#" + "x" * 20}),
    ("vcc.create", {**VCC, "second_cta": "#b", "second_cta_post": "p"}),
    ("vcc.update", {"card_id": "c", "second_cta": "#b"}),
]


@pytest.mark.rule(
    "CARD-03", "CARD-04", "HIST-03", "KW-03", "KW-04", "LI-07", "LI-16", "POLL-02b", "POLL-02c", "POST-03"
)
@pytest.mark.rule("PSET-01", "PSET-01b", "PROD-03", "PROD-05", "PROD-06", "PROD-12", "VCC-01", "VCC-02", "VCC-05")
async def test_what_keeps_the_rules_is_sent(subtests: pytest.Subtests, service: aioresponses) -> None:
    answer_any_method(service, status=400, repeat=True)
    for call, given in KEPT:
        async with make_session() as session:  # likewise
            with subtests.test(call, given=given), pytest.raises(BadRequest):
                await await_call(CALLS[call](session)(**given))


async def await_call(call: Any) -> Any:
    return await call.first() if isinstance(call, Pager) else await call
