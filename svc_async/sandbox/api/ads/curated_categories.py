"""Curated categories (CAT-02)."""

from svc_async.sandbox.api.ads.common import select_fields
from svc_async.sandbox.server.operations import Answer, Call, Operation, answer_row, not_found

__all__ = ["OPERATIONS"]

_FIELDS = (
    "id",
    "name",
    "description",
    "country_codes",
    "publisher_user_ids",
    "videos_monetized_in_last_thirty_days",
    "created_at",
    "updated_at",
)


def _get(call: Call) -> Answer:
    row = call.sandbox.store["curated_categories"].get(call.path["curated_category_id"])
    # Unspecified: the country of an account, and that the category does not exist elsewhere (CAT-02).
    country = call.sandbox.config.account_countries.get(call.account)
    if row is None or (country is not None and country not in row.fields["country_codes"]):
        raise not_found("CURATED_CATEGORY_NOT_FOUND", "curated_category_id")
    return answer_row(select_fields(row, _FIELDS))


OPERATIONS = (
    Operation(
        id="curated_categories.get",
        method="GET",
        path="/12/accounts/{account_id}/curated_categories/{curated_category_id}",
        handler=_get,
        limit="account_reads",
        rule="CAT-02",
    ),
)
