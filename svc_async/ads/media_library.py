"""The media library of an ad account."""

import attrs

from svc_async.engine.paging import Pager
from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import between, length
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Listing, Route

__all__ = ["MediaCategory", "MediaLibrary", "MediaLibraryObject", "MediaStatus", "MediaType"]


class MediaType(OpenEnum):
    """What a medium is."""

    GIF = "GIF"
    IMAGE = "IMAGE"
    VIDEO = "VIDEO"


class MediaCategory(OpenEnum):
    """What a medium is for; more values exist than those that are documented."""

    POST_IMAGE = "POST_IMAGE"
    POST_GIF = "POST_GIF"
    POST_VIDEO = "POST_VIDEO"
    PROMO_VIDEO = "PROMO_VIDEO"


class MediaStatus(OpenEnum):
    """The state of processing; more values exist than the one that is documented."""

    TRANSCODE_COMPLETED = "TRANSCODE_COMPLETED"


@attrs.frozen(kw_only=True)
class MediaLibraryObject(Record):
    """A medium (contract record `MediaLibraryObject`).

    Attributes:
        duration: in milliseconds; None if it has none.
    """

    media_key: str
    name: str | None = None
    file_name: str | None = None
    title: str | None = None
    description: str | None = None
    media_url: str | None = None
    media_type: MediaType
    media_category: MediaCategory | None = None
    media_status: MediaStatus | None = None
    posted: bool | None = None
    duration: int | None = None
    aspect_ratio: str | None = None
    poster_media_url: str | None = None
    poster_media_key: str | None = None
    created_at: Timestamp
    updated_at: Timestamp
    deleted: bool


_ALL = "/12/accounts/{account_id}/media_library"
_ONE = "/12/accounts/{account_id}/media_library/{media_key}"

_TEXTS = (length("description", 200), length("file_name", 255), length("name", 100), length("title", 70))

_LIST = Listing(_ALL, MediaLibraryObject, checks=(between("count", 1, 50), length("q", 255, least=1)))
_GET = Route("GET", _ONE, MediaLibraryObject)
_CREATE = Route("POST", _ALL, MediaLibraryObject, checks=_TEXTS)
_UPDATE = Route("PUT", _ONE, MediaLibraryObject, checks=_TEXTS)
_DELETE = Route("DELETE", _ONE, MediaLibraryObject)


@attrs.frozen(eq=False)
class MediaLibrary:
    """The media of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    def list(
        self, *, count: int | None = None, media_type: MediaType | None = None, q: str | None = None
    ) -> Pager[MediaLibraryObject]:
        """List the media of the library.

        Args:
            count: records per page, from 1 to 50; the service's default is 20.
            media_type: only those of this type.
            q: terms of name, title, file name or description; from 1 to 255 characters.

        Contract: ML-01, `media_library.list`.
        """
        return Pager(self._pipeline, _LIST(account_id=self.account_id, count=count, media_type=media_type, q=q))

    async def get(self, media_key: str) -> MediaLibraryObject:
        """Return a medium.

        Contract: `media_library.get`.
        """
        return await self._pipeline.send(_GET(account_id=self.account_id, media_key=media_key))

    async def create(
        self,
        *,
        media_key: str,
        description: str | None = None,
        file_name: str | None = None,
        name: str | None = None,
        poster_media_key: str | None = None,
        title: str | None = None,
    ) -> MediaLibraryObject:
        """Add an uploaded medium.

        Args:
            media_key: from the answer of an upload with a category.
            description: of a video; at most 200 characters. Posts show it only on request (contract ML-07).
            file_name: at most 255 characters.
            name: at most 100 characters.
            poster_media_key: the poster of a video; the service's default is the first frame.
            title: of a video; at most 70 characters. Posts show it only on request.

        Contract: ML-02, `media_library.create`.
        """
        return await self._pipeline.send(
            _CREATE(
                account_id=self.account_id,
                media_key=media_key,
                description=description,
                file_name=file_name,
                name=name,
                poster_media_key=poster_media_key,
                title=title,
            )
        )

    async def update(
        self,
        media_key: str,
        *,
        description: str | None = None,
        file_name: str | None = None,
        name: str | None = None,
        poster_media_key: str | None = None,
        title: str | None = None,
    ) -> MediaLibraryObject:
        """Update the given fields, with the limits of `create`; None leaves a field as it is.

        Contract: ML-03, `media_library.update`.
        """
        return await self._pipeline.send(
            _UPDATE(
                account_id=self.account_id,
                media_key=media_key,
                description=description,
                file_name=file_name,
                name=name,
                poster_media_key=poster_media_key,
                title=title,
            )
        )

    async def delete(self, media_key: str) -> MediaLibraryObject:
        """Delete a medium and return its record, with `deleted` true.

        Contract: ML-04, `media_library.delete`.
        """
        return await self._pipeline.send(_DELETE(account_id=self.account_id, media_key=media_key))
