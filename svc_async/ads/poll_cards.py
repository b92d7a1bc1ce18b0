"""Poll cards, which cannot be changed after their creation."""

from collections.abc import Collection, Sequence
from typing import ClassVar

import attrs

from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import at_most, between, length, requires
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Reply, Route

__all__ = ["PollCard", "PollCardType", "PollCards"]


class PollCardType(OpenEnum):
    """Whether a poll has media (contract POLL-07)."""

    TEXT_POLLS = "TEXT_POLLS"
    VIDEO_POLLS = "VIDEO_POLLS"


@attrs.frozen(kw_only=True)
class PollCard(Record):
    """A poll card (contract record `PollCard`); polls with media have the fields of a video too (POLL-08).

    Attributes:
        duration_in_minutes: a string here, but an int when a card is created (contract POLL-01b).
    """

    occasional: ClassVar[Collection[str]] = (
        "video_url",
        "video_hls_url",
        "video_height",
        "video_width",
        "video_poster_url",
        "video_poster_height",
        "video_poster_width",
        "content_duration_seconds",
    )

    id: str
    name: str | None = None
    card_uri: str | None = None
    card_type: PollCardType | None = None
    first_choice: str | None = None
    second_choice: str | None = None
    third_choice: str | None = None
    fourth_choice: str | None = None
    duration_in_minutes: str | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool
    video_url: str | None = None
    video_hls_url: str | None = None
    video_height: int | None = None
    video_width: int | None = None
    video_poster_url: str | None = None
    video_poster_height: int | None = None
    video_poster_width: int | None = None
    content_duration_seconds: float | None = None


_ALL = "/12/accounts/{account_id}/cards/poll"
_ONE = "/12/accounts/{account_id}/cards/poll/{card_id}"

_LIST = Listing(_ALL, PollCard, checks=(at_most("card_ids", 200), between("count", 1, 1000)))
_GET = Route("GET", _ONE, PollCard)
_CREATE = Route(
    "POST",
    _ALL,
    PollCard,
    checks=(
        between("duration_in_minutes", 5, 10080),
        length("first_choice", 25),
        length("second_choice", 25),
        requires("third_choice", "first_choice", "second_choice"),
        requires("fourth_choice", "first_choice", "second_choice", "third_choice"),
    ),
)
# Unspecified: the answer of the deletion (UNS-poll-delete-response).
_DELETE: Route[PollCard | None] = Route("DELETE", _ONE, PollCard, reply=Reply.UNSTATED)


@attrs.frozen(eq=False)
class PollCards:
    """The poll cards of one account."""

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
    ) -> CountedPager[PollCard]:
        """List the poll cards.

        Args:
            card_ids: only these, at most 200.
            count: records per page, from 1 to 1000; the service's default is 200.
            q: a search, whose meaning is not documented.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: POLL-09, `poll_cards.list`.
        """
        request = _LIST(
            account_id=self.account_id, card_ids=card_ids, count=count, q=q, sort_by=sort_by, with_deleted=with_deleted
        )
        return CountedPager(self._pipeline, request)

    async def get(self, card_id: str, *, with_deleted: bool | None = None) -> PollCard:
        """Return a poll card.

        Contract: `poll_cards.get`.
        """
        return await self._pipeline.send(_GET(account_id=self.account_id, card_id=card_id, with_deleted=with_deleted))

    async def create(
        self,
        *,
        duration_in_minutes: int,
        first_choice: str,
        second_choice: str,
        name: str,
        third_choice: str | None = None,
        fourth_choice: str | None = None,
        media_key: str | None = None,
    ) -> PollCard:
        """Create a poll.

        Args:
            duration_in_minutes: from 5 to 10080, counted from its creation.
            first_choice: at most 25 characters, like `second_choice`.
            second_choice: the second.
            name: its name.
            third_choice: the third, if there is one.
            fourth_choice: the fourth; it requires the third.
            media_key: an image or video of the media library, for accounts with a feature (contract POLL-04).

        Contract: POLL-01 to POLL-04, `poll_cards.create`.
        """
        return await self._pipeline.send(
            _CREATE(
                account_id=self.account_id,
                duration_in_minutes=duration_in_minutes,
                first_choice=first_choice,
                second_choice=second_choice,
                name=name,
                third_choice=third_choice,
                fourth_choice=fourth_choice,
                media_key=media_key,
            )
        )

    async def delete(self, card_id: str) -> PollCard | None:
        """Delete a poll card for good; afterwards it cannot be read. Return its record if the service sends it.

        Contract: POLL-06, `poll_cards.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=self.account_id, card_id=card_id))
