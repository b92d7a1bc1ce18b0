"""Video conversation cards: a video, up to four calls to action and a thank-you text."""

from collections.abc import Sequence

import attrs

from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import any_of, at_most, between, length, requires
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = ["VideoConversationCard", "VideoConversationCardType", "VideoConversationCards"]


class VideoConversationCardType(OpenEnum):
    """The one type that is documented (contract VCC-06)."""

    VIDEO_CONVERSATION = "VIDEO_CONVERSATION"


@attrs.frozen(kw_only=True)
class VideoConversationCard(Record):
    """A video conversation card (contract record `VideoConversationCard`)."""

    id: str
    name: str | None = None
    card_uri: str | None = None
    card_type: VideoConversationCardType | None = None
    title: str | None = None
    first_cta: str | None = None
    first_cta_post: str | None = None
    second_cta: str | None = None
    second_cta_post: str | None = None
    third_cta: str | None = None
    third_cta_post: str | None = None
    fourth_cta: str | None = None
    fourth_cta_post: str | None = None
    thank_you_text: str | None = None
    thank_you_url: str | None = None
    media_key: str | None = None
    media_url: str | None = None
    poster_media_url: str | None = None
    video_owner_id: str | None = None
    video_height: int | None = None
    video_width: int | None = None
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ALL = "/12/accounts/{account_id}/cards/video_conversation"
_ONE = "/12/accounts/{account_id}/cards/video_conversation/{card_id}"

_CTA = ("first_cta", "second_cta", "third_cta", "fourth_cta")
_TEXTS = (
    # Unspecified: that `#` is not counted is stated of the first only (UNS-cta-hash-sign).
    *(length(cta, 20, without="#") for cta in _CTA),
    length("thank_you_text", 23),
    length("title", 23),
)

_LIST = Listing(_ALL, VideoConversationCard, checks=(at_most("card_ids", 200), between("count", 1, 1000)))
_GET = Route("GET", _ONE, VideoConversationCard)
_CREATE = Route(
    "POST",
    _ALL,
    VideoConversationCard,
    checks=(*_TEXTS, any_of("title", "second_cta"), *(requires(cta, f"{cta}_post") for cta in _CTA)),
)
_UPDATE = Route("PUT", _ONE, VideoConversationCard, checks=_TEXTS)


@attrs.frozen(eq=False)
class VideoConversationCards:
    """The video conversation cards of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self,
        *,
        card_ids: Sequence[str] | None = None,
        count: int | None = None,
        q: str | None = None,
        sort_by: str | None = None,
        with_deleted: bool | None = None,
    ) -> CountedPager[VideoConversationCard]:
        """List the video conversation cards.

        Args:
            card_ids: only these, at most 200.
            count: records per page, from 1 to 1000; the service's default is 200.
            q: a search, whose meaning is not documented.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: VCC-07, `video_conversation_cards.list`.
        """
        request = _LIST(
            account_id=self.account_id, card_ids=card_ids, count=count, q=q, sort_by=sort_by, with_deleted=with_deleted
        )
        return CountedPager(self._pipeline, request)

    async def get(self, card_id: str, *, with_deleted: bool | None = None) -> VideoConversationCard:
        """Return a card; a deleted one only with `with_deleted`.

        Contract: `video_conversation_cards.get`.
        """
        return await self._pipeline.send(_GET(account_id=self.account_id, card_id=card_id, with_deleted=with_deleted))

    async def create(
        self,
        *,
        first_cta: str,
        first_cta_post: str,
        media_key: str,
        name: str,
        thank_you_text: str,
        title: str | None = None,
        second_cta: str | None = None,
        second_cta_post: str | None = None,
        poster_media_key: int | None = None,
        third_cta: str | None = None,
        fourth_cta: str | None = None,
        third_cta_post: str | None = None,
        fourth_cta_post: str | None = None,
        thank_you_url: str | None = None,
        unlocked_image_media_key: str | None = None,
        unlocked_video_media_key: str | None = None,
    ) -> VideoConversationCard:
        """Create a card.

        Args:
            first_cta: a hashtag of at most 20 characters, `#` not counted, like the other calls to action.
            first_cta_post: the text that a user then posts; each call to action requires its post.
            media_key: a video of the media library, 16:9.
            name: its name.
            thank_you_text: at most 23 characters.
            title: at most 23 characters; required without `second_cta`.
            second_cta: required without `title`.
            second_cta_post: its post.
            poster_media_key: the service's default is the first frame.
            third_cta: a third call to action.
            fourth_cta: a fourth.
            third_cta_post: its post.
            fourth_cta_post: its post.
            thank_you_url: the destination of the thank-you text.
            unlocked_image_media_key: an image that posting unlocks.
            unlocked_video_media_key: a video that posting unlocks.

        Contract: VCC-01, VCC-02, `video_conversation_cards.create`.
        """
        return await self._pipeline.send(
            _CREATE(
                account_id=self.account_id,
                first_cta=first_cta,
                first_cta_post=first_cta_post,
                media_key=media_key,
                name=name,
                thank_you_text=thank_you_text,
                title=title,
                second_cta=second_cta,
                second_cta_post=second_cta_post,
                poster_media_key=poster_media_key,
                third_cta=third_cta,
                fourth_cta=fourth_cta,
                third_cta_post=third_cta_post,
                fourth_cta_post=fourth_cta_post,
                thank_you_url=thank_you_url,
                unlocked_image_media_key=unlocked_image_media_key,
                unlocked_video_media_key=unlocked_video_media_key,
            )
        )

    async def update(
        self,
        card_id: str,
        *,
        first_cta: str | None = None,
        first_cta_post: str | None = None,
        media_key: str | None = None,
        name: str | None = None,
        thank_you_text: str | None = None,
        title: str | None = None,
        second_cta: str | None = None,
        second_cta_post: str | None = None,
        poster_media_key: int | None = None,
        third_cta: str | None = None,
        fourth_cta: str | None = None,
        third_cta_post: str | None = None,
        fourth_cta_post: str | None = None,
        thank_you_url: str | None = None,
        unlocked_image_media_key: str | None = None,
        unlocked_video_media_key: str | None = None,
    ) -> VideoConversationCard:
        """Update the given fields, with the limits of `create`; None leaves a field as it is.

        Contract: VCC-05, `video_conversation_cards.update`.
        """
        return await self._pipeline.send(
            _UPDATE(
                account_id=self.account_id,
                card_id=card_id,
                first_cta=first_cta,
                first_cta_post=first_cta_post,
                media_key=media_key,
                name=name,
                thank_you_text=thank_you_text,
                title=title,
                second_cta=second_cta,
                second_cta_post=second_cta_post,
                poster_media_key=poster_media_key,
                third_cta=third_cta,
                fourth_cta=fourth_cta,
                third_cta_post=third_cta_post,
                fourth_cta_post=fourth_cta_post,
                thank_you_url=thank_you_url,
                unlocked_image_media_key=unlocked_image_media_key,
                unlocked_video_media_key=unlocked_video_media_key,
            )
        )
