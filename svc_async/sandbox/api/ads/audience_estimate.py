"""Estimates of the audience size of targeting criteria (EST-01); made up, the same for the same criteria."""

from zlib import crc32

import msgspec

from svc_async.sandbox.refusal import Basis, invalid, refuse
from svc_async.sandbox.server.decoding import json_field
from svc_async.sandbox.server.operations import Answer, Call, Operation
from svc_async.sandbox.server.reading import read_items

__all__ = ["OPERATIONS"]

_LARGEST = 4_000_000
# Unspecified: which targeting criteria are primary (UNS-primary-criteria).
_PRIMARY = frozenset(
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
_CRITERION = (
    json_field("targeting_type", "string", required=True, rule="EST-01"),
    json_field("operator_type", "string", rule="EST-01"),
)


def _create(call: Call) -> Answer:
    criteria = call.params["targeting_criteria"]
    # Unspecified: other fields of a criterion, which are ignored (UNS-primary-criteria).
    known = {param.name for param in _CRITERION}
    read = [{n: each[n] for n in each if n in known} if isinstance(each, dict) else each for each in criteria]
    refuse(*read_items(_CRITERION, read, at="targeting_criteria", rule="EST-01")[1])
    if not any(criterion["targeting_type"] in _PRIMARY for criterion in criteria):
        types = ", ".join(sorted(_PRIMARY))
        message = f"must contain a primary criterion, with a targeting_type of {types}"
        refuse(invalid("EST-01c", message, "targeting_criteria", code="MISSING_PARAMETER"))
    # Unspecified: the shape of the answer (ASM-16).
    drawn = crc32(msgspec.json.encode([call.params["operator_type"], criteria], order="sorted")) % _LARGEST
    return Answer({"audience_size": {"min": drawn, "max": drawn + drawn // 5}})


OPERATIONS = (
    Operation(
        id="audience_estimate.create",
        method="POST",
        path="/12/accounts/{account_id}/audience_estimate",
        handler=_create,
        query=(
            json_field("targeting_criteria", "array", required=True, rule="EST-01"),
            json_field("operator_type", "string", enum=("EQ", "NE"), default="EQ", rule="EST-01b"),
        ),
        limit="audience_estimate",
        reads=True,
        rule="ASM-16",
        basis=Basis.PUBLIC,
        body="object",
    ),
)
