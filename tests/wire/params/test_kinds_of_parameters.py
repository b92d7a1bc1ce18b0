"""A value of another kind than the contract says is refused by its name, before a request is spent."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from inspect import isawaitable
from typing import Any

import pytest
from aioresponses import aioresponses

from svc_async import InvalidArgument, Session
from svc_async.engine.paging import Pager
from svc_async.platform.filtered_stream import Rule
from tests.support.client_calls import CALLS, bind, read_parameters
from tests.support.contract import OPERATIONS, build_answer, build_arguments, list_parameters
from tests.support.errors import has
from tests.support.fake_http import answer_any_method, answer_next, make_session

WRONG: Mapping[str, Sequence[Any]] = {
    "string": (["a", "b"], True, 5.0, b"x", {"a": "b"}, date(2026, 1, 2)),
    "boolean": ("false", "true", 0, 1, 1.0, [True]),
    "int": (True, 5.0, [5], b"5"),
    "long": (True, 5.0, [5], b"5"),
    "csv": (True, 5, {"a": "b"}, [True], [1.5], [None], b"a"),
    "timestamp": (True, "2026-01-02", date(2026, 1, 2), datetime(2026, 1, 2), [5]),  # noqa: DTZ001 - without a zone on purpose
    "date_hours": (True, "2026-01-02", date(2026, 1, 2), datetime(2026, 1, 2), [5]),  # noqa: DTZ001 - likewise
}
SEVERAL = {"categories": (True, 5, {"a": "b"}, [True])}
"""Parameters of the client that take several values, where the contract leaves that open."""


def list_wrong_values(operation: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the parameters of an operation, each with values of other kinds."""
    for row in list_parameters(OPERATIONS[operation]):
        if row["in"] != "path":
            for wrong in SEVERAL.get(row["name"], WRONG.get(row["type"], ())):
                yield row, wrong


async def test_a_value_of_another_kind_is_refused(
    subtests: pytest.Subtests, service: aioresponses, session: Session
) -> None:
    for operation in CALLS:
        taken = read_parameters(operation, session)
        with subtests.test(operation):
            for row, wrong in list_wrong_values(operation):
                if row["name"] in taken:
                    with pytest.raises(InvalidArgument, check=has(parameter=row["name"])):
                        await make_call(session, operation, {row["name"]: wrong})
    assert not service.requests


@pytest.mark.parametrize("kind", [int, pytest.param(str, marks=pytest.mark.long)])
async def test_an_id_is_a_string_or_a_whole_number(
    subtests: pytest.Subtests, service: aioresponses, session: Session, kind: type[int | str]
) -> None:
    for operation, row in CALLS.items():
        types = {each["name"]: each["type"] for each in list_parameters(row)}
        ids = [name for name, type_ in types.items() if name.endswith("_id") and type_ in {"string", "long"}]
        with subtests.test(operation):
            answer_next(service, build_answer(row)[0])
            await make_call(session, operation, {name: kind(7) for name in ids})


async def make_call(session: Session, operation: str, changes: Mapping[str, Any]) -> None:
    accepted = read_parameters(operation, session)
    values = {name: value for name, value in {**build_arguments(operation), **changes}.items() if name in accepted}
    call = bind(operation, session)(**values)
    await (call.collect() if isinstance(call, Pager) else call)


PLATFORM: Sequence[tuple[str, Callable[[Session, Any], Any], Sequence[Any]]] = (
    ("dry_run", lambda session, wrong: session.filtered_stream.rules.add(["a"], dry_run=wrong), ("false", 1)),
    ("dry_run", lambda session, wrong: session.filtered_stream.rules.delete(["1"], dry_run=wrong), ("false", 1)),
    ("rules[0].tag", lambda session, wrong: session.filtered_stream.rules.add([Rule("a", tag=wrong)]), (True, ["a"])),
    ("url", lambda session, wrong: session.webhooks.create(wrong), (True, ["a"], 5)),
    *(
        (name, lambda session, wrong, name=name: create_subscription(session, **{name: wrong}), wrongs)
        for name, wrongs in (
            ("event_type", (True, ["post.create"], 5)),
            ("user_id", (True, ["1"], 1.5)),
            ("keyword", (True, ["a"], 5)),
            ("direction", (True, ["a"], 5)),
            ("tag", (True, ["a"], 5)),
            ("webhook_id", (True, ["a"], 1.5)),
        )
    ),
    ("tag", lambda session, wrong: session.activity.subscriptions.update("1", tag=wrong), (True, ["a"], 5)),
    ("webhook_id", lambda session, wrong: session.activity.subscriptions.update("1", webhook_id=wrong), (True, ["a"])),
    ("force_login", lambda session, wrong: session.oauth1.authorize_url("t", force_login=wrong), ("false", 1)),
    ("screen_name", lambda session, wrong: session.oauth1.authorize_url("t", screen_name=wrong), (True, ["a"], 5)),
    ("token", lambda session, wrong: session.oauth1.authenticate_url(wrong), (True, ["a"], 5)),
)


async def create_subscription(session: Session, **changes: Any) -> None:
    given: dict[str, Any] = {"event_type": "dm.received", "user_id": "1", **changes}
    await session.activity.subscriptions.create(**given)


@pytest.mark.parametrize(
    ("operation", "name", "wrong"),
    [
        ("accounts.list", "count", 5.0),
        ("line_items.update", "start_time", date(2026, 1, 2)),
        ("line_items.update", "frequency_cap", 5.0),
        ("accounts.update", "name", ["a", "b"]),
        ("posts.create", "nullcast", "false"),
        ("posts.create", "as_user_id", True),
    ],
)
async def test_what_python_takes_for_another_kind_is_refused(
    operation: str, name: str, wrong: Any, *, session: Session
) -> None:
    with pytest.raises(InvalidArgument, check=has(parameter=name)):
        await make_call(session, operation, {name: wrong})


async def resolve(result: Any) -> None:
    if isawaitable(result):
        await result


async def test_the_main_api_has_the_same_rules(
    subtests: pytest.Subtests, service: aioresponses, session: Session
) -> None:
    for position, (name, call, wrongs) in enumerate(PLATFORM):
        for wrong in wrongs:
            with (
                subtests.test(name, position=position, wrong=wrong),
                pytest.raises(InvalidArgument, check=has(parameter=name)),
            ):
                await resolve(call(session, wrong))
    assert not service.requests


async def test_without_validation_a_value_is_sent_as_it_is(service: aioresponses) -> None:
    answer_any_method(service, build_answer(OPERATIONS["accounts.update"])[0])
    async with make_session(validate=False) as session:
        await make_call(session, "accounts.update", {"name": ["a", "b"]})
    ((_, url),) = service.requests

    assert url.query["name"] == "a,b"
