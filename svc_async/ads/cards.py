"""Website and app cards, which consist of components."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.errors import InvalidArgument
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import (
    any_of,
    at_most,
    between,
    by_type,
    each,
    each_row,
    exclusive,
    inside,
    length,
    one_of,
    required,
    requires,
    satisfies,
    sized,
)
from svc_async.wire.params import IDS, Check
from svc_async.wire.records import READ_ONLY, Record, Timestamp, fields_of
from svc_async.wire.route import Listing, Route

__all__ = [
    "AppDestination",
    "Card",
    "CardButtonLabel",
    "CardComponent",
    "CardComponentButton",
    "CardComponentDetails",
    "CardComponentMedia",
    "CardComponentSwipeableMedia",
    "CardComponentType",
    "CardDestinationType",
    "CardLabelType",
    "CardLabelValue",
    "CardType",
    "Cards",
    "WebsiteDestination",
]


class CardType(OpenEnum):
    """The content of a card and its destination (contract CARD-01)."""

    IMAGE_APP = "IMAGE_APP"
    IMAGE_CAROUSEL_APP = "IMAGE_CAROUSEL_APP"
    IMAGE_CAROUSEL_WEBSITE = "IMAGE_CAROUSEL_WEBSITE"
    IMAGE_MULTI_DEST_CAROUSEL_WEBSITE = "IMAGE_MULTI_DEST_CAROUSEL_WEBSITE"
    IMAGE_WEBSITE = "IMAGE_WEBSITE"
    MIXED_MEDIA_MULTI_DEST_CAROUSEL_WEBSITE = "MIXED_MEDIA_MULTI_DEST_CAROUSEL_WEBSITE"
    MIXED_MEDIA_SINGLE_DEST_CAROUSEL_APP = "MIXED_MEDIA_SINGLE_DEST_CAROUSEL_APP"
    MIXED_MEDIA_SINGLE_DEST_CAROUSEL_WEBSITE = "MIXED_MEDIA_SINGLE_DEST_CAROUSEL_WEBSITE"
    VIDEO_APP = "VIDEO_APP"
    VIDEO_CAROUSEL_APP = "VIDEO_CAROUSEL_APP"
    VIDEO_CAROUSEL_WEBSITE = "VIDEO_CAROUSEL_WEBSITE"
    VIDEO_MULTI_DEST_CAROUSEL_WEBSITE = "VIDEO_MULTI_DEST_CAROUSEL_WEBSITE"
    VIDEO_WEBSITE = "VIDEO_WEBSITE"


class CardComponentType(OpenEnum):
    """The kinds of components."""

    MEDIA = "MEDIA"
    SWIPEABLE_MEDIA = "SWIPEABLE_MEDIA"
    DETAILS = "DETAILS"
    BUTTON = "BUTTON"


class CardLabelType(OpenEnum):
    """The form of a label (contract CARD-06)."""

    ENUM = "ENUM"


class CardLabelValue(OpenEnum):
    """The text of a button (contract CARD-06)."""

    BOOK = "BOOK"
    CONNECT = "CONNECT"
    INSTALL = "INSTALL"
    OPEN = "OPEN"
    ORDER = "ORDER"
    PLAY = "PLAY"
    SHOP = "SHOP"


class CardDestinationType(OpenEnum):
    """The kinds of destinations of a card."""

    WEBSITE = "WEBSITE"
    APP = "APP"


@attrs.frozen(kw_only=True)
class WebsiteDestination(Record):
    """A web page (contract CARD-07)."""

    type: CardDestinationType = CardDestinationType.WEBSITE
    url: str


@attrs.frozen(kw_only=True)
class AppDestination(Record):
    """An app in one store or both (contract CARD-07b to CARD-07e).

    Attributes:
        country_code: ISO 3166-1 alpha-2.
        googleplay_app_id: one of this and `ios_app_store_identifier` at least.
        googleplay_deep_link: only with `googleplay_app_id`.
        ios_deep_link: only with `ios_app_store_identifier`.
    """

    type: CardDestinationType = CardDestinationType.APP
    country_code: str
    googleplay_app_id: str | None = None
    ios_app_store_identifier: str | None = None
    googleplay_deep_link: str | None = None
    ios_deep_link: str | None = None


@attrs.frozen(kw_only=True)
class CardButtonLabel(Record):
    """The label of a button."""

    type: CardLabelType = CardLabelType.ENUM
    value: CardLabelValue


@attrs.frozen(kw_only=True)
class CardComponentMedia(Record):
    """One image or video (contract CARD-05).

    Attributes:
        media_metadata: the media by their keys, as the service describes them; a public fact beyond the reference.
    """

    occasional: ClassVar[Collection[str]] = ("media_metadata",)

    type: CardComponentType = CardComponentType.MEDIA
    media_key: str
    media_metadata: Mapping[str, Any] | None = attrs.field(default=None, hash=False, metadata=READ_ONLY)


@attrs.frozen(kw_only=True)
class CardComponentSwipeableMedia(Record):
    """Two to six images or videos (contract CARD-05b).

    Attributes:
        media_metadata: as in `CardComponentMedia`.
    """

    occasional: ClassVar[Collection[str]] = ("media_metadata",)

    type: CardComponentType = CardComponentType.SWIPEABLE_MEDIA
    media_keys: tuple[str, ...]
    media_metadata: Mapping[str, Any] | None = attrs.field(default=None, hash=False, metadata=READ_ONLY)


@attrs.frozen(kw_only=True)
class CardComponentDetails(Record):
    """A title that leads to a website (contract CARD-05c)."""

    type: CardComponentType = CardComponentType.DETAILS
    title: str
    destination: WebsiteDestination


@attrs.frozen(kw_only=True)
class CardComponentButton(Record):
    """A button that leads to an app (contract CARD-05d)."""

    type: CardComponentType = CardComponentType.BUTTON
    label: CardButtonLabel
    destination: AppDestination


CardComponent = (
    CardComponentMedia | CardComponentSwipeableMedia | CardComponentDetails | CardComponentButton | Mapping[str, Any]
)
"""A component; one of an unknown type is a mapping."""


@attrs.frozen(kw_only=True)
class Card(Record):
    """A card (contract record `Card`).

    Attributes:
        card_uri: attaches it to a post: `card://<id>` (contract CARD-13).
        components: in the order in which they render, from top to bottom (contract CARD-08).
    """

    id: str
    name: str | None = None
    card_uri: str | None = None
    card_type: CardType | None = None
    components: tuple[CardComponent, ...] = attrs.field(default=(), hash=False)
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ALPHA_2 = re.compile("[A-Za-z]{2}")

_WEBSITE = (required("type", "url"), one_of("type", "WEBSITE"))
_APP = (
    required("type", "country_code"),
    one_of("type", "APP"),
    satisfies("country_code", lambda code: bool(_ALPHA_2.fullmatch(str(code))), "must be an ISO 3166-1 alpha-2 code"),
    any_of("googleplay_app_id", "ios_app_store_identifier"),
    requires("googleplay_deep_link", "googleplay_app_id"),
    requires("ios_deep_link", "ios_app_store_identifier"),
)
_LABEL = (required("type", "value"), one_of("type", "ENUM"))

_COMPONENT = (
    required("type"),
    by_type(
        {
            "MEDIA": (required("media_key"),),
            "SWIPEABLE_MEDIA": (required("media_keys"), sized("media_keys", 2, 6, "media keys")),
            "DETAILS": (required("title", "destination"), inside("destination", *_WEBSITE)),
            "BUTTON": (required("label", "destination"), inside("label", *_LABEL), inside("destination", *_APP)),
        }
    ),
)


def _check_card(params: Mapping[str, Any]) -> InvalidArgument | None:
    """Require one media component and one with a destination (contract CARD-04)."""
    components = params.get("components")
    if components is None:
        return None
    kinds = Counter(str((fields_of(component) or {}).get("type")) for component in components)
    if kinds["MEDIA"] + kinds["SWIPEABLE_MEDIA"] == 1 and kinds["DETAILS"] + kinds["BUTTON"]:
        return None
    return InvalidArgument("components", "must contain one media component and a DETAILS or BUTTON component")


_CONTENT: tuple[Check, ...] = (
    exclusive("components", "slides"),
    each("components", *_COMPONENT),
    _check_card,
    # Unspecified: whether a slide must be a complete card (UNS-card-slides-rules); its components are checked.
    each_row("slides", *_COMPONENT),
)

_ALL = "/12/accounts/{account_id}/cards"
_ONE = "/12/accounts/{account_id}/cards/{card_id}"

_LIST = Listing(
    _ALL,
    Card,
    checks=(
        at_most("card_id", 200),
        satisfies("card_id", IDS.accepts, f"must be {IDS.words}"),  # elsewhere this is the name of one id
        at_most("card_uris", 200),
        between("count", 1, 200),
        length("q", 80),
    ),
)
_GET = Route("GET", _ONE, Card)
_CREATE = Route("POST", _ALL, Card, json=True, checks=(length("name", 80), *_CONTENT))
# Unspecified: the bound of the name is not restated for updates (UNS-card-update-bounds); the service decides.
_UPDATE = Route("PUT", _ONE, Card, json=True, checks=_CONTENT)
_DELETE_IMAGE_CONVERSATION = Route("DELETE", "/12/accounts/{account_id}/cards/image_conversation/{card_id}", Card)


@attrs.frozen(eq=False)
class Cards:
    """The cards of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self,
        *,
        card_types: Sequence[CardType] | None = None,
        card_id: Sequence[str] | None = None,
        card_uris: Sequence[str] | None = None,
        count: int | None = None,
        include_legacy_cards: bool | None = None,
        q: str | None = None,
        sort_by: str | None = None,
        with_deleted: bool | None = None,
    ) -> Pager[Card]:
        """List the cards that consist of components.

        Args:
            card_types: only those of these types.
            card_id: only these, at most 200.
            card_uris: only these, at most 200.
            count: records per page, from 1 to 200; the service's default is 100.
            include_legacy_cards: include cards of older kinds.
            q: a prefix of the name, in any case; at most 80 characters.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: CARD-10, `cards.list`.
        """
        request = _LIST(
            account_id=self.account_id,
            card_types=card_types,
            card_id=card_id,
            card_uris=card_uris,
            count=count,
            include_legacy_cards=include_legacy_cards,
            q=q,
            sort_by=sort_by,
            with_deleted=with_deleted,
        )
        return Pager(self._pipeline, request)

    async def get(self, card_id: str, *, with_deleted: bool | None = None) -> Card:
        """Return a card; a deleted one only with `with_deleted`.

        Contract: CARD-11, `cards.get`.
        """
        return await self._pipeline.send(_GET(account_id=self.account_id, card_id=card_id, with_deleted=with_deleted))

    async def create(
        self,
        *,
        name: str,
        components: Sequence[CardComponent] | None = None,
        slides: Sequence[Sequence[CardComponent]] | None = None,
    ) -> Card:
        """Create a card.

        Args:
            name: at most 80 characters.
            components: one media component and a DETAILS or BUTTON component, from top to bottom; never together
                with `slides` (contract CARD-03, CARD-04).
            slides: the components of each slide, for carousels with several destinations.

        Contract: `cards.create`.
        """
        return await self._pipeline.send(
            _CREATE(account_id=self.account_id, name=name, components=components, slides=slides)
        )

    async def update(
        self,
        card_id: str,
        *,
        name: str | None = None,
        components: Sequence[CardComponent] | None = None,
        slides: Sequence[Sequence[CardComponent]] | None = None,
    ) -> Card:
        """Replace the given fields; None leaves a field as it is (contract CARD-09, `cards.update`)."""
        return await self._pipeline.send(
            _UPDATE(account_id=self.account_id, card_id=card_id, name=name, components=components, slides=slides)
        )

    async def delete_image_conversation(self, card_id: str) -> Card:
        """Delete a legacy card and return its record, with `deleted` true.

        Contract: CARD-12, `image_conversation_cards.delete`.
        """
        return await self._pipeline.send(_DELETE_IMAGE_CONVERSATION(account_id=self.account_id, card_id=card_id))
