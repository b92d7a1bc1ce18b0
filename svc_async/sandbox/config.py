"""The settings of the sandbox: limits of the specification, and choices where it is silent."""

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Literal

import attrs

from svc_async.sandbox.kinds import WrongArgument, check_bounds, check_kind
from svc_async.wire.dialect import Dialect

__all__ = ["Gate", "RateRule", "SandboxConfig"]

Gate = Literal["early_access", "beta", "allowlist", "enterprise", "advertiser_user"]
"""What only certain apps may use: programs, filtered-stream webhooks (FS-06), `advertiser_user_id` (LI-04)."""


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
        "ads.do_not_reach_users": "do_not_reach_users",
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


@attrs.frozen(kw_only=True)
class SandboxConfig:
    """The settings of a sandbox.

    Attributes:
        dialect: the words of the service, if they are not those of the contract; `Sandbox(dialect=)` sets it.
        hosts: names of this server in `Host`, besides `localhost`, its own `host` and the address of the connection.
        rate_limits: False disables rate limits and their headers.
        rate_rules: replaces rate rules by name; see the table of rules.
        rate_windows: where windows begin: on multiples of their length, at the first request, or everywhere.
        unknown_parameters: refuse a request with a parameter or a field of the body that the call lacks, or ignore it.
        booleans: the spellings of `true` and `false` in a query: lowercase, or `True` and `TRUE` too.
        empty_page_before_last: insert an empty page before the last page of every list with several.
        expiry_months: months after which an audience user without `expires_at` expires.
        catalogs_per_user: PC-01b reads as one; None allows any number.
        product_messages: the type of the items of `errors` and `warnings` in a product's result.
        subscription_answers: where an answer about an activity subscription has it: it is `data`, the only entry of
            `data`, or `subscription` in it; lists have them in `data`.
        closed_gates: what the app was not admitted to; by default it was admitted to all.
        account_countries: countries of accounts by their ids, for what is available by country.
        require_https: refuse plain http on the main API.
        allow_egress: send requests to URLs without a target over the internet, to public addresses only.
        ack_timeout: seconds until a delivery times out; WH-42 states it, a test may shorten it.
        scoped_activity: accept scoped tokens of OAuth 2.0 for activity operations, besides the app's bearer token.
        stream_rules_max: maximum rules of an app.
        stream_recovery: whether the app may use `backfill_minutes`, `start_time` and `end_time`.
        requests_kept: maximum entries of the request log; older ones are dropped.
        events_kept: maximum deliveries, and events of a stream, that are kept; older ones cannot be replayed.
        keep_bodies: keep request bodies in the request log.
        bodies_kept: bytes of the latest bodies of requests and answers that the inspector can show.
    """

    # Unspecified: all but those of the specification; the ids are those of assumptions.toml.
    dialect: Dialect | None = None
    hosts: frozenset[str] = frozenset()  # ASM-94
    rate_limits: bool = True
    rate_rules: Mapping[str, RateRule] = attrs.field(factory=dict[str, RateRule])  # ASM-11
    rate_windows: Literal["fixed", "first-request", "sliding"] = "fixed"  # ASM-103
    unknown_parameters: Literal["refuse", "ignore"] = "refuse"  # ASM-95
    booleans: Literal["lowercase", "any_case"] = "lowercase"  # ASM-95
    empty_page_before_last: bool = False  # ASM-98
    expiry_months: int = 13  # CAU-06c states it; a test may shorten it
    catalogs_per_user: int | None = 1
    product_messages: Literal["objects", "strings"] = "objects"  # ASM-142
    subscription_answers: Literal["flat", "array", "nested"] = "flat"  # ASM-51
    closed_gates: frozenset[Gate] = frozenset()  # ASM-22
    account_countries: Mapping[str, str] = attrs.field(factory=dict[str, str])  # CAT-02 names no parameter
    require_https: bool = False  # ASM-84
    allow_egress: bool = False
    ack_timeout: float = 10.0
    scoped_activity: bool = False  # ASM-62
    stream_rules_max: int = 25_000  # FS-03 says "or more"
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
                meant = [CLIENT_NAMES[name]] if name in CLIENT_NAMES else get_close_matches(name, RATE_RULES, n=1)
                hint = f"use {meant[0]}" if meant else f"there are {', '.join(RATE_RULES)}"
                raise WrongArgument("rate_rules", f"has a name that no rule has; {hint}")
            check_kind(f"rate_rules[{name!r}]", RateRule, rule)
