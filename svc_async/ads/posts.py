"""Posts for promotion."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from svc_async.engine.pipeline import Pipeline
from svc_async.open_enum import OpenEnum
from svc_async.wire.checks import any_of, at_most, length
from svc_async.wire.records import Record, Timestamp
from svc_async.wire.route import Route

__all__ = ["ConversationSettings", "Post", "PostMode", "PostPublicationType", "Posts", "VideoCta"]


class ConversationSettings(OpenEnum):
    """Who may reply (contract POST-04)."""

    EVERYONE = "EVERYONE"
    FOLLOWING = "FOLLOWING"
    MENTIONED_USERS = "MENTIONED_USERS"


class PostMode(OpenEnum):
    """The form of the answer (contract POST-08)."""

    COMPAT = "compat"
    EXTENDED = "extended"


class PostPublicationType(OpenEnum):
    """Whether a post is published; more values exist than the one that is documented."""

    PUBLISHED = "PUBLISHED"


class VideoCta(OpenEnum):
    """The call to action of a video (contract POST-09)."""

    VISIT_SITE = "VISIT_SITE"
    WATCH_NOW = "WATCH_NOW"


@attrs.frozen(kw_only=True)
class Post(Record):
    """A post (contract record `Post`); the counters, flags and other fields that are not documented are in `extra`.

    Attributes:
        text: the text, or `full_text`.
        entities: in the service's form, which is not documented.
        user: only its id with `trim_user`.
        conversation_settings: not in the answer of `create` (contract POST-04b).
    """

    keeps_unknown: ClassVar[bool] = True
    occasional: ClassVar[Collection[str]] = ("conversation_settings", "full_text")

    id: int
    id_str: str | None = None
    text: str | None = None
    full_text: str | None = None
    name: str | None = None
    created_at: Timestamp | None = None
    entities: Any = attrs.field(default=None, hash=False)
    user: Mapping[str, Any] | None = attrs.field(default=None, hash=False)
    nullcast: bool | None = None
    # Unspecified: the name of this field is not exact (UNS-post-type-field).
    tweet_type: PostPublicationType | None = None
    scheduled_at: Timestamp | None = None
    conversation_settings: ConversationSettings | None = None


_CREATE = Route(
    "POST",
    "/12/accounts/{account_id}/post",
    Post,
    checks=(
        any_of("text", "media_keys"),
        at_most("media_keys", 4, "images, or one GIF, or one video"),
        length("name", 80),
        length("video_description", 200),
        length("video_title", 70),
    ),
)
_UPDATE_NAME = Route("PUT", "/12/accounts/{account_id}/posts/{post_id}/name", Post, checks=(length("name", 80),))


@attrs.frozen(eq=False)
class Posts:
    """The posts of one account."""

    _pipeline: Pipeline = attrs.field(repr=False)
    account_id: str

    async def create(
        self,
        *,
        as_user_id: int,
        text: str | None = None,
        card_uri: str | None = None,
        conversation_settings: ConversationSettings | None = None,
        media_keys: Sequence[str] | None = None,
        name: str | None = None,
        nullcast: bool | None = None,
        trim_user: bool | None = None,
        post_mode: PostMode | None = None,
        video_cta: VideoCta | None = None,
        video_cta_value: str | None = None,
        video_description: str | None = None,
        video_title: str | None = None,
    ) -> Post:
        """Create a post.

        Args:
            as_user_id: the advertiser on whose behalf it is created.
            text: required without `media_keys`.
            card_uri: a card to attach.
            conversation_settings: who may reply; the service's default is everyone.
            media_keys: up to 4 images, or one GIF, or one video (contract POST-03).
            name: at most 80 characters.
            nullcast: promoted only, the service's default; False is for the authenticated user only (POST-06b).
            trim_user: return only the id of the user.
            post_mode: the form of the answer.
            video_cta: the call to action of the video.
            video_cta_value: where it leads.
            video_description: at most 200 characters.
            video_title: at most 70 characters.

        Contract: POST-01 to POST-12, `posts.create`.
        """
        return await self._pipeline.send(
            _CREATE(
                account_id=self.account_id,
                as_user_id=as_user_id,
                text=text,
                card_uri=card_uri,
                conversation_settings=conversation_settings,
                media_keys=media_keys,
                name=name,
                nullcast=nullcast,
                trim_user=trim_user,
                post_mode=post_mode,
                video_cta=video_cta,
                video_cta_value=video_cta_value,
                video_description=video_description,
                video_title=video_title,
            )
        )

    async def rename(self, post_id: str, *, name: str | None = None) -> Post:
        """Rename a post; the name has at most 80 characters.

        Contract: POST-11, `posts.update_name`.
        """
        return await self._pipeline.send(_UPDATE_NAME(account_id=self.account_id, post_id=post_id, name=name))
