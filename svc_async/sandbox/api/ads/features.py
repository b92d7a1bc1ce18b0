"""The features of an account (FEAT-01 to FEAT-04)."""

from collections.abc import Iterable

from svc_async.sandbox.kinds import check_kind
from svc_async.sandbox.refusal import invalid, refuse
from svc_async.sandbox.server.decoding import csv
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.state.store import Store

__all__ = ["ACCEPTED", "OPERATIONS", "get_features", "grant_feature", "set_features"]

ACCEPTED = (
    "AGE_TARGETING",
    "ALLOW_SKIPPABLE_VIDEOS_FOR_PREROLL_VIEWS_OBJECTIVE",
    "AWARENESS_OBJECTIVE",
    "BRAND_TPN",
    "CHARGE_FOR_GOOD_CLICK",
    "CONVERSATION_CARD",
    "CONVERSATION_CARD_FOUR_OPTIONS",
    "CONVERSATION_CARD_UNLOCK",
    "CPI_CHARGING",
    "DIRECT_MESSAGE_CARD",
    "DR_TAP",
    "ENGAGER_RETARGETING",
    "EVENT_TARGETING",
    "INSTALLED_APP_CATEGORY_TARGETING",
    "MOBILE_CONVERSION_TRANSACTION_VALUE",
    "OPTIMIZED_ACTION_BIDDING",
    "REACH_AND_FREQUENCY_ANALYTICS",
    "REACH_FREQUENCY_CAP",
    "VALIDATED_AGE_TARGETING",
    "VIDEO_VIEWS_MIDROLL_OBJECTIVE",
    "PREROLL_VIEWS_OBJECTIVE",
    "VIDEO_APP_DOWNLOAD_CARD",
)
_FILTER = ("REACH_AND_FREQUENCY_ANALYTICS", "REACH_FREQUENCY_CAP", "WEBSITE_CLICKS_CPM_BILLING")
_PATH = "/12/accounts/{account_id}/features"


def set_features(store: Store, account_id: str, keys: Iterable[str]) -> list[str]:
    """Set the features of an account."""
    held = list(dict.fromkeys(keys))
    row = store["features"].get(account_id)
    if row is None:
        store["features"].add(account_id, {"id": account_id, "keys": held})
    else:
        store["features"].change(row, keys=held)
    return held


def get_features(store: Store, account_id: str) -> list[str]:
    """Return the features of an account."""
    row = store["features"].get(account_id)
    return [] if row is None else list(row.fields["keys"])


def grant_feature(store: Store, account_id: str, key: str) -> None:
    """Grant an account a feature, whether the API can add it or not.

    Raises:
        ValueError: the key is not a string.
    """
    check_kind("key", str, key)
    set_features(store, account_id, [*get_features(store, account_id), key])


def _list(call: Call) -> Answer:
    wanted = call.params["feature_keys"]
    return Answer([key for key in get_features(call.sandbox.store, call.account) if wanted is None or key in wanted])


def _remove(call: Call) -> Answer:
    held, unwanted = get_features(call.sandbox.store, call.account), call.params["feature_keys"]
    # Unspecified: the keys that may be removed; here those that may be added and those that the account has.
    if not set(unwanted) <= {*ACCEPTED, *held}:
        refuse(invalid("ASM-95", "names a feature that does not exist", "feature_keys"))
    return Answer(set_features(call.sandbox.store, call.account, [key for key in held if key not in unwanted]))


OPERATIONS = (
    Operation(
        id="features.list",
        method="GET",
        path=_PATH,
        handler=_list,
        query=(csv("feature_keys", enum=_FILTER, rule="FEAT-01b"),),
        limit="account_reads",
        rule="FEAT-01",
    ),
    Operation(
        id="features.add",
        method="POST",
        path=_PATH,
        handler=lambda call: Answer(
            set_features(
                call.sandbox.store,
                call.account,
                [*get_features(call.sandbox.store, call.account), *call.params["feature_keys"]],
            )
        ),
        query=(csv("feature_keys", required=True, enum=ACCEPTED, rule="FEAT-02b"),),
        limit="writes",
        rule="FEAT-03",
        surface="ads_sandbox",
    ),
    Operation(
        id="features.remove",
        method="DELETE",
        path=_PATH,
        handler=_remove,
        query=(csv("feature_keys", required=True, rule="FEAT-02"),),
        limit="writes",
        rule="FEAT-03",
        surface="ads_sandbox",
    ),
)
