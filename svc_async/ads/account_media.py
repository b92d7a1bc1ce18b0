"""The media that an ad account can show: pre-roll videos, banners and their like."""

from collections.abc import Sequence

import attrs

from svc_async.engine.paging import CountedPager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import at_most, between
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = ["AccountMedia", "AccountMediaCreativeType", "AccountMediaItems"]


class AccountMediaCreativeType(OpenEnum):
    """What a medium is shown as."""

    BANNER = "BANNER"
    BANNER_TABLET = "BANNER_TABLET"
    INTERSTITIAL = "INTERSTITIAL"
    INTERSTITIAL_LANDSCAPE = "INTERSTITIAL_LANDSCAPE"
    INTERSTITIAL_LANDSCAPE_TABLET = "INTERSTITIAL_LANDSCAPE_TABLET"
    INTERSTITIAL_TABLET = "INTERSTITIAL_TABLET"
    MEDIUM_RECTANGLE = "MEDIUM_RECTANGLE"
    PREROLL = "PREROLL"
    VAST_PREROLL = "VAST_PREROLL"


@attrs.frozen(kw_only=True)
class AccountMedia(Record):
    """A medium (contract record `AccountMedia`).

    A video of the category `PROMO_VIDEO` in the media library becomes one of the type `PREROLL` by itself (AM-02).
    """

    id: str
    creative_type: AccountMediaCreativeType
    video_id: str | None = None
    media_url: str | None = None
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ALL = "/12/accounts/{account_id}/account_media"
_ONE = "/12/accounts/{account_id}/account_media/{account_media_id}"

_LIST = Listing(_ALL, AccountMedia, checks=(at_most("account_media_ids", 200), between("count", 1, 1000)))
_GET = Route("GET", _ONE, AccountMedia)
_DELETE = Route("DELETE", _ONE, AccountMedia)


@attrs.frozen(eq=False)
class AccountMediaItems:
    """The media of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self,
        *,
        account_media_ids: Sequence[str] | None = None,
        count: int | None = None,
        creative_types: Sequence[AccountMediaCreativeType] | None = None,
        sort_by: str | None = None,
        with_deleted: bool | None = None,
    ) -> CountedPager[AccountMedia]:
        """List the media.

        Args:
            account_media_ids: only these, at most 200.
            count: records per page, from 1 to 1000; the service's default is 200.
            creative_types: only those of these types.
            sort_by: an attribute and a direction, such as `created_at-desc`.
            with_deleted: include deleted ones.

        Contract: AM-01, `account_media.list`.
        """
        request = _LIST(
            account_id=self.account_id,
            account_media_ids=account_media_ids,
            count=count,
            creative_types=creative_types,
            sort_by=sort_by,
            with_deleted=with_deleted,
        )
        return CountedPager(self._pipeline, request)

    async def get(self, account_media_id: str, *, with_deleted: bool | None = None) -> AccountMedia:
        """Return a medium; a deleted one only with `with_deleted`.

        Contract: `account_media.get`.
        """
        return await self._pipeline.send(
            _GET(account_id=self.account_id, account_media_id=account_media_id, with_deleted=with_deleted)
        )

    async def delete(self, account_media_id: str) -> AccountMedia:
        """Delete a medium and return its record, with `deleted` true.

        Contract: AM-01b, `account_media.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=self.account_id, account_media_id=account_media_id))
