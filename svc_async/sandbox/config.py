"""The behaviour of the sandbox where the specification is silent: settings with their defaults."""

from collections.abc import Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

import attrs

from svc_async.sandbox.kinds import check_bounds, check_kind

__all__ = ["Gate", "RateRule", "SandboxConfig"]

Gate = Literal["early_access", "beta", "allowlist"]


@attrs.frozen
class RateRule:
    """A limit of `requests` in `seconds`, counted by ad account or by user.

    Attributes:
        scope: an `account` rule counts by account, a `user` rule by user's token, or by app where there is no user.

    Raises:
        ValueError: a field is of another type, or a number is less than 1.
    """

    requests: int
    seconds: int
    scope: Literal["account", "user"] = "account"

    def __attrs_post_init__(self) -> None:
        check_bounds("requests", int, self.requests, least=1)
        check_bounds("seconds", int, self.seconds, least=1)
        check_kind("scope", attrs.fields(RateRule).scope.type, self.scope)


RATE_RULES: Mapping[str, RateRule] = MappingProxyType(
    {
        "audience_users": RateRule(1500, 60),  # CAU-03, LIM-06
        "total_count": RateRule(200, 900, "user"),  # GEN-10, LIM-05
        "writes": RateRule(450, 60),  # Unspecified: this row and those below are ASM-11
        "core_reads": RateRule(10_000, 900),
        "account_reads": RateRule(2_000, 900),
        "global_reads": RateRule(5, 900, "user"),
        "catalog_reads": RateRule(1_000, 900, "user"),  # from here on ASM-104
        "catalog_writes": RateRule(20, 900, "user"),
        "product_reads": RateRule(1_000, 900, "user"),
        "product_upserts": RateRule(600, 900, "user"),
        "product_deletes": RateRule(150, 900, "user"),
        "product_set_reads": RateRule(2_000, 900, "user"),
        "product_set_creations": RateRule(100, 900, "user"),
        "product_set_updates": RateRule(500, 900, "user"),
        "do_not_reach_users": RateRule(1500, 60),  # ASM-114
        "keyword_insights": RateRule(500, 900, "user"),
        "audience_estimate": RateRule(400, 900),
        "request_tokens": RateRule(15, 900, "user"),  # from here on ASM-07; counted by app, or by the user's token
        "access_tokens": RateRule(15, 900, "user"),
        "invalidations": RateRule(15, 900, "user"),
        "scoped_tokens": RateRule(15, 900, "user"),
        "bearer_tokens": RateRule(10, 900, "user"),  # ASM-08
        "bearer_invalidations": RateRule(15, 900, "user"),
        "webhooks": RateRule(450, 900, "user"),  # from here on ASM-57, ASM-62
        "replays": RateRule(100, 900, "user"),
        "activity_subscriptions": RateRule(500, 900, "user"),
        "activity_connects": RateRule(450, 900, "user"),
        "filtered_connects": RateRule(50, 900, "user"),
        "stream_rules": RateRule(450, 900, "user"),
    }
)

CLIENT_NAMES: Mapping[str, str] = MappingProxyType(  # the rules by what messages of the client call the same limits
    {
        "ads.audience_users": "audience_users",
        "ads.total_count": "total_count",
        "ads.audience_estimate": "audience_estimate",
        "ads.keyword_insights": "keyword_insights",
        "ads.products.read": "product_reads",
        "ads.products.put": "product_upserts",
        "ads.products.delete": "product_deletes",
        "ads.product_sets.read": "product_set_reads",
        "ads.product_sets.post": "product_set_creations",
        "ads.product_sets.put": "product_set_updates",
        "ads.product_catalogs.read": "catalog_reads",
        "ads.product_catalogs.write": "catalog_writes",
        "ads.reads.core": "core_reads",
        "ads.reads.account": "account_reads",
        "ads.reads.global": "global_reads",
        "ads.writes": "writes",
        "webhooks": "webhooks",
        "webhooks.replay": "replays",
        "activity.subscriptions": "activity_subscriptions",
        "activity.stream": "activity_connects",
        "filtered_stream.stream": "filtered_connects",
    }
)


# Unspecified: which default an objective has (ASM-15).
LINE_ITEM_DEFAULTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "ENGAGEMENTS": {"bid_strategy": "AUTO", "goal": "ENGAGEMENT"},
        "APP_INSTALLS": {"bid_strategy": "AUTO", "goal": "APP_INSTALLS"},
        "APP_ENGAGEMENTS": {"bid_strategy": "AUTO", "goal": "APP_CLICKS"},
        "REACH": {"bid_strategy": "AUTO", "goal": "MAX_REACH"},
        "FOLLOWERS": {"bid_strategy": "AUTO", "goal": "FOLLOWERS"},
        "VIDEO_VIEWS": {"bid_strategy": "AUTO", "goal": "VIDEO_VIEW"},
        "PREROLL_VIEWS": {"bid_strategy": "AUTO", "goal": "PREROLL"},
        "WEBSITE_CLICKS": {"bid_strategy": "AUTO", "goal": "LINK_CLICKS"},
    }
)


# Unspecified: which targeting criteria are primary (UNS-primary-criteria).
PRIMARY_TARGETING_TYPES = frozenset(
    {
        "BROAD_KEYWORD",
        "CONVERSATION",
        "CUSTOM_AUDIENCE",
        "EVENT",
        "FOLLOWERS_OF_USER",
        "INTEREST",
        "SIMILAR_TO_FOLLOWERS_OF_USER",
        "TV_SHOW",
    }
)


# Unspecified: the literal names (EV-02).
PASCAL_CASE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "post.create": "PostCreate",
        "post.delete": "PostDelete",
        "dm.received": "DmReceived",
        "dm.sent": "DmSent",
        "dm.read": "DmRead",
        "dm.indicate_typing": "DmIndicateTyping",
        "spaces.start": "SpacesStart",
        "spaces.end": "SpacesEnd",
        "profile.update.bio": "ProfileBioUpdate",
        "profile.update.verified": "ProfileVerifiedUpdate",
        "profile.update.affiliate": "ProfileAffiliateUpdate",
        "profile.update.screenname": "ProfileScreennameUpdate",
        "profile.update.picture": "ProfilePictureUpdate",
        "profile.update.banner": "ProfileBannerUpdate",
        "profile.update.geo": "ProfileGeoUpdate",
        "profile.update.url": "ProfileUrlUpdate",
    }
)


# Unspecified: all but `follow.read` (AUTH-26).
SCOPES = frozenset(
    {
        "dm.read",
        "dm.write",
        "follow.read",
        "follow.write",
        "offline.access",
        "post.read",
        "post.write",
        "users.read",
    }
)


@attrs.frozen(kw_only=True)
class SandboxConfig:
    """The settings of a sandbox.

    Attributes:
        hosts: names of this server in `Host`, besides `localhost`, its own `host` and the address of the connection.
        rate_limits: False disables rate limits and their headers.
        rate_rules: replaces rate rules by name; see the table of rules.
        rate_windows: where windows begin: on multiples of their length, at the first request, or everywhere.
        account_rate_headers: also send the `x-account-rate-limit-*` headers on calls of one account.
        timestamp_skew: seconds that `oauth_timestamp` may differ from the clock.
        unknown_parameters: refuse a request with a parameter or a field of the body that the call lacks, or ignore it.
        booleans: the spellings of `true` and `false` in a query: lowercase, or `True` and `TRUE` too.
        repeated_names: refuse JSON in which an object has a name twice, or let the last value win.
        empty_page_before_last: insert an empty page before the last page of every list with several.
        targeted_page_size: entries on a page of targeted audiences, a list without `count`.
        default_sort: the order of a list without `sort_by`.
        batch_counts: the unit of `success_count` and `total_count`.
        batch_errors: `lists` by operation, or `objects` with an `index`.
        refuse_empty: refuse an empty group, an operation without users and a user without identifiers.
        expiry_months: months after which an audience user without `expires_at` expires.
        default_media_name: the name of a medium without one.
        media_processing: seconds until a medium that was added to the library is processed.
        card_writes_in_array: answer the creation and the update of a card with an array of one, like a read.
        later_choice_length: maximum length of the third and the fourth choice of a poll; None is unbounded.
        image_poll_type: the type of a poll with an image.
        ratio_tolerance: how far the aspect ratio of a medium may be from the required one.
        whole_cards_after_update: check an updated video conversation card against the rules of its creation.
        card_must_exist: refuse a post whose `card_uri` names no card of the account.
        post_mode: the mode of a post without `post_mode`: `compat` shows `text`, `extended` shows `full_text`.
        paid_partnership_since: when `paid_partnership` became a parameter of posts; None refuses it.
        catalogs_per_user: PC-01b reads as one; None allows any number.
        duplicate_products: the result of items with the same id: none, or an error.
        product_messages: the type of the items of `errors` and `warnings` in a product's result.
        whole_groups: return all products of a group for a list with `item_group_key`, not only the first.
        product_set_processing: seconds for which a product set is `PROCESSING` after its products were selected.
        product_set_outcome: the status of a product set after that.
        manual_products_max: maximum products of a `MANUAL` set.
        filters_max: maximum filters of a `FILTERED` set.
        closed_gates: programs that the app was not admitted to; by default it was admitted to all.
        account_countries: countries of accounts by their ids, for what is available by country.
        line_item_defaults: `bid_strategy` and `goal` of line items by objective.
        line_item_dates_ordered: refuse a line item that ends before it starts.
        categories_counted: the unit of the one or two categories of a line item: business categories, or IAB values.
        may_set_advertiser_user: whether the app may set `advertiser_user_id` of line items (LI-04).
        keyword_country: the country of keyword insights without `location`.
        primary_targeting_types: the types of targeting criteria of which an estimate needs one.
        dnr_expires_at_required: refuse an operation on a do-not-reach list that has no `expires_at`.
        dnr_expiry_bounded: refuse one whose `expires_at` is later than the default.
        audience_processing: seconds for which a do-not-reach list is processed after an upload.
        audience_minimum: the minimum size of such a list.
        request_token_minutes: lifetime of a request token.
        access_type_in: the place of `svc_auth_access_type`: the query, or the `Authorization` header.
        scopes: the scopes of OAuth 2.0 that exist; with `offline.access`, refresh tokens are issued.
        oauth2_state_required: refuse an authorize page without `state`.
        oauth2_reuse_revokes: let the second use of a code or a refresh token revoke the whole grant.
        authorization_code_seconds: lifetime of an authorization code.
        scoped_token_seconds: lifetime of an access token of OAuth 2.0.
        require_https: refuse plain http on the main API.
        webhooks_per_app: maximum URLs that an app may register.
        webhook_url_length: maximum length of such a URL.
        webhook_ip_literals: accept a URL whose host is an IP address.
        allow_egress: send requests to URLs without a target over the internet, to public addresses only.
        crc_timeout: seconds until a check times out.
        crc_needs_200: treat a right answer with another 2XX status as a temporary failure.
        crc_fresh_token: use a new token for each check.
        crc_nonce: send a parameter `nonce` after `crc_token`.
        crc_signed: sign the query of a check.
        invalid_webhooks_revive: keep checking an invalid webhook; a passed check makes it valid again, as PUT does.
        webhook_put_answer: the answer to PUT: whether the webhook is valid, or that the check was attempted.
        signature_style: which secrets sign: the consumer secret, the client secret, or both.
        signature_header: the header of the signature with the consumer secret.
        second_signature_header: the header of the signature with the client secret.
        ack_timeout: seconds until a delivery times out; WH-42 states it, a test may shorten it.
        delivery_delays: seconds from a failed attempt to the next; one for each attempt after the first.
        replay_max_age_hours: how long ago a replay may begin.
        replay_from_min_age_minutes: how long ago it must begin.
        replay_to_min_age_minutes: how long ago it must end.
        replay_to_date_inclusive: whether the minute of `to_date` belongs to the replay.
        replay_delay: seconds until a job starts to send.
        old_replay: what the deprecated replay operation does after its date.
        event_names: the former PascalCase names of event types.
        extra_event_types: event types accepted besides the documented ones.
        event_data_in_array: put `data` of an event into an array of one.
        older_names_after_change: accept PascalCase names after their date.
        direction_aliases: accept `inbound` and `outbound` too.
        scoped_activity: accept scoped tokens of OAuth 2.0 for activity operations, besides the app's bearer token.
        subscriptions_page: subscriptions on a page without `max_results`.
        subscriptions_per_app: maximum subscriptions of an app.
        duplicate_subscriptions: accept a subscription that exists already.
        posts_fire_events: fire `post.create` for posts of the advertising API that are not nullcast.
        filtered_webhooks: deliver matching posts to all webhooks of the app, not only to the stream.
        enterprise: whether the app may have filtered-stream webhooks (FS-06).
        stream_rules_max: maximum rules of an app.
        activity_connections: maximum open activity streams of an app.
        filtered_connections: maximum open filtered streams of an app.
        stream_heartbeat: seconds of silence on a stream until a blank line.
        stream_buffer: queued lines after which a slow reader is dropped.
        stream_recovery: whether the app may use `backfill_minutes`, `start_time` and `end_time`.
        requests_kept: maximum entries of the request log; older ones are dropped.
        events_kept: maximum deliveries, and events of a stream, that are kept; older ones cannot be replayed.
        keep_bodies: keep request bodies in the request log.
        bodies_kept: bytes of the latest bodies of requests and answers that the inspector can show.
    """

    # Unspecified: all of them; the ids are those of assumptions.toml.
    hosts: frozenset[str] = frozenset()  # ASM-94
    rate_limits: bool = True
    rate_rules: Mapping[str, RateRule] = attrs.field(factory=dict[str, RateRule])  # ASM-11
    rate_windows: Literal["fixed", "first-request", "sliding"] = "fixed"  # ASM-103
    account_rate_headers: bool = False  # ASM-103
    timestamp_skew: float = 300.0  # ASM-10
    unknown_parameters: Literal["refuse", "ignore"] = "refuse"  # ASM-95
    booleans: Literal["lowercase", "any_case"] = "lowercase"  # ASM-95
    repeated_names: Literal["refuse", "last_wins"] = "refuse"  # ASM-95
    empty_page_before_last: bool = False  # ASM-98
    targeted_page_size: int = 200
    default_sort: str = "created_at-asc"  # ASM-12
    batch_counts: Literal["users", "operations"] = "users"  # ASM-110
    batch_errors: Literal["lists", "objects"] = "lists"  # ASM-111
    refuse_empty: bool = True
    expiry_months: int = 13  # CAU-06c states it; a test may shorten it
    default_media_name: str = "Untitled media"  # ASM-135
    media_processing: float = 0.0  # ASM-134
    card_writes_in_array: bool = False  # ASM-131
    later_choice_length: int | None = 25  # ASM-133
    image_poll_type: str = "TEXT_POLLS"  # UNS-poll-image-type
    ratio_tolerance: float = 0.01
    whole_cards_after_update: bool = True  # CON-08
    card_must_exist: bool = True  # ASM-136
    post_mode: Literal["compat", "extended"] = "compat"  # UNS-post-mode-default
    paid_partnership_since: datetime | None = datetime(2026, 6, 3, tzinfo=UTC)  # CON-23
    catalogs_per_user: int | None = 1
    duplicate_products: Literal["left_out", "error"] = "left_out"  # UNS-product-duplicate-result
    product_messages: Literal["objects", "strings"] = "objects"  # ASM-142
    whole_groups: bool = True  # CON-20
    product_set_processing: float = 0.0  # ASM-140
    product_set_outcome: Literal["DONE", "FAILED"] = "DONE"  # ASM-140
    manual_products_max: int = 50  # ASM-139
    filters_max: int = 30  # ASM-139
    closed_gates: frozenset[Gate] = frozenset()  # ASM-22
    account_countries: Mapping[str, str] = attrs.field(factory=dict[str, str])  # CAT-02 names no parameter
    line_item_defaults: Mapping[str, Mapping[str, str]] = LINE_ITEM_DEFAULTS  # ASM-15
    line_item_dates_ordered: bool = True  # ASM-121
    categories_counted: Literal["business", "values"] = "business"  # UNS-categories-form
    may_set_advertiser_user: bool = True  # ASM-22
    keyword_country: str = "96683cc9126741d1"  # KW-07b names no default
    primary_targeting_types: frozenset[str] = PRIMARY_TARGETING_TYPES  # UNS-primary-criteria
    dnr_expires_at_required: bool = False  # ASM-17
    dnr_expiry_bounded: bool = True  # ASM-114
    audience_processing: float = 21_600.0  # ASM-116, ASM-118
    audience_minimum: int = 100  # ASM-116, ASM-118
    request_token_minutes: float = 15.0  # ASM-09
    access_type_in: Literal["query", "header"] = "query"  # ASM-82
    scopes: frozenset[str] = SCOPES  # AUTH-26 names one of them
    oauth2_state_required: bool = True  # AUTH-26 shows no parameters
    oauth2_reuse_revokes: bool = True  # AUTH-26
    authorization_code_seconds: float = 30.0  # UNS-token-lifetime
    scoped_token_seconds: int = 7200  # UNS-token-lifetime
    require_https: bool = False  # ASM-84
    webhooks_per_app: int = 5  # ASM-05
    webhook_url_length: int = 200  # ASM-42
    webhook_ip_literals: bool = False  # ASM-42
    allow_egress: bool = False
    crc_timeout: float = 10.0  # ASM-01
    crc_needs_200: bool = False  # ASM-32; WH-21 speaks of 2XX
    crc_fresh_token: bool = True  # ASM-35
    crc_nonce: bool = False  # ASM-30
    crc_signed: bool = False  # ASM-34
    invalid_webhooks_revive: bool = False  # ASM-41
    webhook_put_answer: Literal["valid", "attempted"] = "valid"  # ASM-44
    signature_style: Literal["consumer", "oauth2", "both"] = "consumer"  # ASM-25
    signature_header: str = "x-svc-webhooks-signature"
    second_signature_header: str = "x-svc-webhooks-signature-oauth2"  # ASM-38
    ack_timeout: float = 10.0
    delivery_delays: tuple[float, ...] = (60.0, 300.0)  # ASM-02
    replay_max_age_hours: int = 24  # ASM-45
    replay_from_min_age_minutes: int = 31  # ASM-45
    replay_to_min_age_minutes: int = 10  # ASM-45
    replay_to_date_inclusive: bool = True  # ASM-06
    replay_delay: float = 0.0
    old_replay: Literal["gone", "works"] = "gone"  # ASM-49
    event_names: Mapping[str, str] = PASCAL_CASE_NAMES  # ASM-50
    extra_event_types: frozenset[str] = frozenset()  # ASM-53
    event_data_in_array: bool = False  # ASM-24
    older_names_after_change: bool = False  # ASM-50
    direction_aliases: bool = False  # ASM-52
    scoped_activity: bool = False  # ASM-62
    subscriptions_page: int = 100  # ASM-51
    subscriptions_per_app: int = 1_000  # ASM-53
    duplicate_subscriptions: bool = False  # ASM-53
    posts_fire_events: bool = True  # ASM-136
    filtered_webhooks: bool = True  # FS-01 names no way to choose one
    enterprise: bool = True  # FS-06
    stream_rules_max: int = 25_000  # FS-03 says "or more"
    activity_connections: int = 2  # ASM-57
    filtered_connections: int = 1  # ASM-57
    stream_heartbeat: float = 20.0  # ASM-54
    stream_buffer: int = 1_000  # ASM-59
    stream_recovery: bool = True  # ASM-58
    requests_kept: int = 10_000
    events_kept: int = 5_000
    keep_bodies: bool = False
    bodies_kept: int = 16_777_216

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(SandboxConfig):
            check_kind(field.name, field.type, getattr(self, field.name))
        for name, rule in self.rate_rules.items():
            if name not in RATE_RULES:
                raise ValueError(f"rate_rules has a name that no rule has; {_propose_rule(name)}")
            if not isinstance(rule, RateRule):
                raise ValueError(  # noqa: TRY004 - wrong settings raise one kind of error
                    f"rate_rules[{name!r}] must be a RateRule, such as RateRule(100, 900)"
                )


def _propose_rule(name: str) -> str:
    meant = [CLIENT_NAMES[name]] if name in CLIENT_NAMES else get_close_matches(name, RATE_RULES, n=1)
    return f"use {meant[0]}" if meant else f"there are {', '.join(RATE_RULES)}"
