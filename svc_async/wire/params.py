"""The parameters of a call: what is wrong with them, and how they are written as a strictly quoted query.

The signature's base string and the request must agree byte for byte, so a value is quoted once, here, to the
unreserved characters of RFC 3986; transport and signer use the result unchanged.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from typing import Any
from urllib.parse import quote as _quote

from svc_async.errors import InvalidArgument
from svc_async.value_rules import FLAG, MOMENT, SEVERAL, TEXT, ValueRule, is_whole

__all__ = [
    "IDS",
    "Check",
    "Param",
    "fill_path",
    "find_wrong_number",
    "find_wrong_text",
    "first_problem",
    "query_string",
    "quote",
    "segment",
    "timestamp",
    "to_pairs",
    "to_utc",
]


def _is_id(value: object) -> bool:
    return isinstance(value, str) or is_whole(value)


def _are_ids(values: Any) -> bool:
    return SEVERAL.accepts(values) and (not isinstance(values, Collection) or all(map(_is_id, values)))


ID = ValueRule(_is_id, "an id: a string or a whole number")
IDS = ValueRule(_are_ids, "a sequence of strings")
MICROS = ValueRule(is_whole, "an int of micros, as svc_async.money.to_micro(amount) returns it", ("GEN-13",))
_WHOLE = ValueRule(is_whole, "a whole number")
# Unspecified: one category, or several (contract UNS-categories-form).
_ONE_OR_SEVERAL = ValueRule(lambda value: isinstance(value, str) or _are_ids(value), IDS.words)

_TEXTS: Mapping[ValueRule, str] = {
    TEXT: """
        advertiser_domain android_app_store_identifier audience_expansion bid_strategy card_uri conversation_settings
        description direction entity_status entity_type event_type file_name first_choice first_cta fourth_choice
        fourth_cta goal granularity industry_type keyword location media_type name operator_type pay_by
        permission_level permission_scope post_mode product_type q screen_name second_choice second_cta sort_by tag
        text thank_you_text thank_you_url third_choice third_cta title type url video_cta video_cta_value
        video_description video_title
    """,
    FLAG: """
        dry_run force_login include_legacy_cards nullcast trim_user with_active with_deleted with_total_count
    """,
    ID: """
        advertiser_user_id as_user_id curated_category_id entity_id first_cta_post fourth_cta_post granted_account_id
        ios_app_store_identifier item_group_key line_item_id media_key poster_media_key second_cta_post third_cta_post
        unlocked_image_media_key unlocked_video_media_key user_id webhook_id
    """,
}
_NUMBERS: Mapping[ValueRule, str] = {
    IDS: """
        account_ids account_media_ids card_ids card_types card_uris creative_types custom_audience_ids
        custom_audience_permission_ids feature_keys granted_account_ids keywords media_keys negative_keywords
        product_keys tailored_audience_permission_ids
    """,
    _ONE_OR_SEVERAL: "categories",
    _WHOLE: "duration_in_days frequency_cap",
    MICROS: "bid_amount_local_micro daily_budget_amount_local_micro total_budget_amount_local_micro",
}


def _by_name(names_by_rule: Mapping[ValueRule, str]) -> Mapping[str, ValueRule]:
    return {name: rule for rule, names in names_by_rule.items() for name in names.split()}


_TEXT_RULES, _NUMBER_RULES = _by_name(_TEXTS), _by_name(_NUMBERS)


Check = Callable[[Mapping[str, Any]], InvalidArgument | None]
"""Takes the parameters of a call and returns what is wrong with them."""


def first_problem(checks: Iterable[Check], params: Mapping[str, Any]) -> InvalidArgument | None:
    """Return the first rule that is broken."""
    return next(filter(None, (check(params) for check in checks)), None)


def find_wrong_text(params: Mapping[str, Any]) -> InvalidArgument | None:
    """Return what is wrong with the first string, boolean or id that is none."""
    return _find_breach(_TEXT_RULES, params)


def find_wrong_number(params: Mapping[str, Any]) -> InvalidArgument | None:
    """Return what is wrong with the first number or sequence that is none; the checks of an operation say more."""
    return _find_breach(_NUMBER_RULES, params)


def _find_breach(rules: Mapping[str, ValueRule], params: Mapping[str, Any]) -> InvalidArgument | None:
    for name, value in params.items():
        rule = None if value is None else rules.get(name)
        if rule is not None and not rule.accepts(value):
            return InvalidArgument(name, f"must be {rule.words}", rule_ids=rule.rule_ids)
    return None


_Scalar = str | int | bool | datetime | Enum
Param = _Scalar | Iterable[_Scalar] | None
"""Types of a query parameter: a scalar, or several, which are sent as a comma-separated list."""


def quote(text: str) -> str:
    """Percent-encode all characters except the unreserved ones of RFC 3986."""
    if text.isalnum() and text.isascii():
        return text  # most ids
    return _quote(text, safe="~")


def timestamp(moment: datetime, name: str = "timestamp") -> str:
    """Format a datetime as ISO 8601 in UTC, to the second (contract GEN-12).

    Raises:
        InvalidArgument: the datetime has no time zone, so it is ambiguous, or has no year of four digits in UTC.
    """
    # strftime does not pad the year.
    return to_utc(name, moment).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def to_utc(name: str, moment: datetime) -> datetime:
    """Return a datetime in UTC.

    Raises:
        InvalidArgument: it has no time zone, so it is ambiguous (contract GEN-12), or no year of four digits in UTC; or
            it is no datetime.
    """
    if not isinstance(moment, datetime):
        MOMENT.check(name, moment)
    if moment.tzinfo is None:
        raise InvalidArgument(name, "must have a time zone", rule_ids=("GEN-12",))
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise InvalidArgument(name, "must be in the years 1 to 9999 in UTC") from None


def to_pairs(params: Mapping[str, Param]) -> tuple[tuple[str, str], ...]:
    """Quote names and values of parameters; those that are None are left out."""
    return tuple(
        (_quote_value("params", name), _quote_value(name, _to_text(name, value)))
        for name, value in params.items()
        if value is not None
    )


def query_string(pairs: Iterable[tuple[str, str]]) -> str:
    """Join quoted names and values."""
    return "&".join(f"{name}={value}" for name, value in pairs)


def fill_path(template: str, segments: Mapping[str, object]) -> str:
    """Fill a path template with quoted ids."""
    return template.format_map({name: segment(name, value) for name, value in segments.items()})


def segment(name: str, value: object) -> str:
    """Quote an id as one segment of a path.

    Raises:
        InvalidArgument: the id is empty (a get would become a list call), contains a slash, or is `.` or `..`.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArgument(name, "must be an id: a string, or an int where the service says long")
    text = _write_int(name, value) if isinstance(value, int) else str(value)
    if not text.strip():
        raise InvalidArgument(name, "must not be empty", rule_ids=("GEN-02",))
    if "/" in text or text in {".", ".."}:
        raise InvalidArgument(name, "must be a single path segment: no slash, and neither `.` nor `..`")
    return _quote_value(name, text)


def _quote_value(name: str, text: str) -> str:
    try:
        return quote(text)
    except UnicodeEncodeError:
        raise InvalidArgument(name, "must be valid Unicode (contains a lone surrogate)") from None


def _to_text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return _write_int(name, value)
    if isinstance(value, datetime):
        return timestamp(value, name)
    if isinstance(value, Iterable) and not isinstance(value, bytes | Mapping | date):
        texts = [_to_text(name, element) for element in value]
        if any("," in text for text in texts):
            raise InvalidArgument(name, "must not contain a comma in an element: it is sent as a comma-separated list")
        return ",".join(texts)
    if name.endswith("_local_micro"):
        raise InvalidArgument(name, f"must be {MICROS.words}", rule_ids=MICROS.rule_ids)
    raise InvalidArgument(name, _SCALARS)


def _write_int(name: str, value: int) -> str:
    if value.bit_length() > _LONG:  # Python refuses to write very long ones
        raise InvalidArgument(name, f"must be an integer of at most {_LONG} bits")
    return str(value)


_LONG = 64
_SCALARS = "must be a string, a whole number, True or False, a datetime with a time zone, or a sequence of them"
