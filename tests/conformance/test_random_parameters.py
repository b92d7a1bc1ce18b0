"""Any arguments: a typed answer or a typed error, and the sandbox never fails."""

from collections.abc import Mapping, Sequence
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from svc_async import Session, SvcError
from svc_async.engine.paging import Pager
from svc_async.sandbox import Sandbox, SandboxConfig, VirtualClock
from tests.support.client_calls import CALLS, bind, read_parameters
from tests.support.contract import OPERATIONS, find_value, list_parameters

SEEDED = {
    "account_id": "18ce54d4x5t",
    "account_media_id": "2wrdq",
    "card_id": "5rkb1",
    "curated_category_id": "9ddrgesiap6o",
    "custom_audience_id": "1nmth",
    "do_not_reach_list_id": "dnr7k1",
    "line_item_curated_category_id": "43853bhii885",
    "line_item_id": "9cqi0",
    "media_key": "3_880101",
    "tailored_audience_id": "tq4k1",
}
"""Ids of the seed, so that calls reach existing records."""

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["", " ", "\x00", "a,b", "%2F", "../..", "'; --", "é", "\U0001f600", "\ud800"]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, 1001])
MOMENTS = st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=45))]))
PLAIN = st.none() | st.booleans() | NUMBERS | TEXTS | MOMENTS | st.binary(max_size=4)
ANYTHING = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def generate_arguments(operation: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return valid arguments, some of them replaced by anything."""
    rows = list_parameters(OPERATIONS[operation])
    right = {row["name"]: SEEDED.get(row["name"], find_value(row)) for row in rows}
    wrong = st.dictionaries(st.sampled_from(sorted(right)), ANYTHING, max_size=3) if right else st.just({})
    required = {row["name"] for row in rows if row["required"]}
    given_names = st.sets(st.sampled_from(sorted(right))) if right else st.just(set[str]())
    return st.builds(lambda names, junk: {name: right[name] for name in names | required} | junk, given_names, wrong)


@pytest.mark.rule("GEN-12b")
@pytest.mark.parametrize(
    "operations",
    [
        pytest.param([*CALLS], id="any operation"),
        *(pytest.param([operation], marks=pytest.mark.long, id=operation) for operation in CALLS),
    ],
)
@given(data=st.data())
@settings(max_examples=15)
async def test_any_parameters_give_a_typed_answer_or_a_typed_error(
    operations: Sequence[str], data: st.DataObject
) -> None:
    operation = data.draw(st.sampled_from(operations))
    values = data.draw(generate_arguments(operation))
    validate = data.draw(st.booleans())

    async with Sandbox(clock=VirtualClock(mode="jump"), config=SandboxConfig(rate_limits=False)) as sandbox:
        async with Session.sandbox(sandbox, validate=validate) as session:
            catalog = await session.product_catalogs.create(name="Books")
            await make_call(session, operation, values, SEEDED | {"product_catalog_id": catalog.id})
        assert all(entry.status is not None and entry.status < 500 for entry in sandbox.requests)


async def make_call(session: Session, operation: str, values: Mapping[str, Any], ids: Mapping[str, Any]) -> None:
    accepted = read_parameters(operation, session)
    try:
        call = bind(operation, session, ids)(**{name: value for name, value in values.items() if name in accepted})
        await (call.first() if isinstance(call, Pager) else call)
    except SvcError as error:
        assert str(error)
