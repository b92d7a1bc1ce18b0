"""What the parameters of operations must be, by their names, which mean the same in all operations.

Encoding would write a list as `a,b` where a string belongs, and True as `true`. Numbers with bounds and datetimes have
checks of their own.
"""

from collections.abc import Collection, Mapping
from typing import Any

from svc_async.errors import InvalidArgument
from svc_async.value_rules import FLAG, SEVERAL, TEXT, ValueRule, is_whole

__all__ = ["IDS", "MICROS", "find_wrong_number", "find_wrong_text"]


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
        permission_level post_mode product_type q screen_name second_choice second_cta sort_by tag text thank_you_text
        thank_you_url third_choice third_cta title type url video_cta video_cta_value video_description video_title
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
        account_ids account_media_ids card_ids card_types card_uris creative_types feature_keys granted_account_ids
        keywords media_keys negative_keywords product_keys tailored_audience_permission_ids
    """,
    _ONE_OR_SEVERAL: "categories",
    _WHOLE: "duration_in_days frequency_cap",
    MICROS: "bid_amount_local_micro daily_budget_amount_local_micro total_budget_amount_local_micro",
}


def _by_name(names_by_rule: Mapping[ValueRule, str]) -> Mapping[str, ValueRule]:
    return {name: rule for rule, names in names_by_rule.items() for name in names.split()}


_TEXT_RULES, _NUMBER_RULES = _by_name(_TEXTS), _by_name(_NUMBERS)


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
