"""Classes of the caller's own: what an answer is read into, and what is sent."""

import re
import traceback
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Generic, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from svc_async import InvalidArgument, Session, UnexpectedAnswer
from svc_async.ads.accounts import Account
from svc_async.errors import Sent
from svc_async.sandbox import Sandbox
from svc_async.wire.reading import read_as
from tests.support.errors import has

T = TypeVar("T")


class Pydantic(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    account_id: str = pydantic.Field(alias="id")
    created_at: datetime
    deleted: bool


class Generics(pydantic.BaseModel, Generic[T]):
    id: T


@attrs.frozen
class Attrs:
    id: str
    deleted: bool = True


@dataclass(frozen=True)
class Data:
    id: str
    deleted: bool = True
    names: list[str] = field(default_factory=list)


class Struct(msgspec.Struct, frozen=True, rename={"account_id": "id"}):
    account_id: str
    deleted: bool = True


class Typed(TypedDict):
    id: str
    deleted: NotRequired[bool]


MODELS: tuple[type[Any], ...] = (Pydantic, Generics[str], Attrs, Data, Struct, Typed)


def find_id(record: Any) -> str:
    """Return the id, which some of the models have under another name."""
    if isinstance(record, Mapping):
        return str(record["id"])
    return str(getattr(record, "account_id", None) or record.id)


@pytest.fixture(params=[False, True], ids=["fast", "keep_unknown"])
async def either(request: pytest.FixtureRequest, sandbox: Sandbox) -> AsyncIterator[Session]:
    async with Session.sandbox(sandbox, keep_unknown=request.param) as session:
        yield session


@pytest.mark.parametrize("model", MODELS)
async def test_an_answer_is_read_into_a_class_of_the_caller(either: Session, sandbox: Sandbox, model: Any) -> None:
    one = await either.request("GET", f"/12/accounts/{sandbox.account_id}", into=model)
    several = await either.iterate("/12/accounts", into=model).collect()

    assert [type(one), *map(type, several)] == [dict if model is Typed else model] * (1 + len(several))
    assert find_id(one) == sandbox.account_id
    assert sandbox.account_id in map(find_id, several)


@pytest.mark.parametrize("model", [dict, dict[str, Any], Mapping[str, Any]])
async def test_an_answer_is_read_into_plain_values(session: Session, sandbox: Sandbox, model: Any) -> None:
    record: Any = await session.request("GET", f"/12/accounts/{sandbox.account_id}", into=model)

    assert record["id"] == sandbox.account_id


class LaterPydantic(pydantic.BaseModel):
    id: "Identifier"


Identifier = str


@attrs.frozen
class Holder:
    id: str
    name: "Shown"


class Shown(pydantic.RootModel[str]):
    pass


@pytest.mark.parametrize("model", [LaterPydantic, Holder])
async def test_a_class_may_name_what_is_defined_after_it(session: Session, sandbox: Sandbox, model: Any) -> None:
    found = await session.request("GET", f"/12/accounts/{sandbox.account_id}", into=model)

    assert found.id == sandbox.account_id


class LacksPydantic(pydantic.BaseModel):
    id: str
    lacking: str = pydantic.Field(validation_alias=pydantic.AliasChoices("lacking", "absent"))
    timezone: int


class NestedPydantic(pydantic.BaseModel):
    name: dict[str, int]

    @pydantic.field_validator("name", mode="before")
    @classmethod
    def refuse(cls, value: object) -> object:
        raise ValueError(f"{value} is wrong")


class StrictPydantic(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    id: str


@attrs.frozen
class LacksAttrs:
    id: str
    lacking: str
    timezone: int


@dataclass
class LacksData:
    id: str
    lacking: str
    timezone: int


class LacksStruct(msgspec.Struct):
    id: str
    lacking: str
    timezone: int


class LacksTyped(TypedDict):
    id: str
    lacking: str
    timezone: int


MISFITS: tuple[tuple[type[Any], str], ...] = (
    (LacksPydantic, "LacksPydantic.lacking is missing; LacksPydantic.timezone does not fit (int_parsing)"),
    (NestedPydantic, "NestedPydantic.name does not fit (value_error)"),
    (StrictPydantic, "StrictPydantic does not fit (extra_forbidden)"),
    *(
        (model, f"{model.__name__}.lacking is missing; {model.__name__}.timezone must be an integer")
        for model in (LacksAttrs, LacksData, LacksStruct, LacksTyped)
    ),
)


@pytest.mark.parametrize(("model", "problem"), MISFITS)
async def test_an_answer_that_does_not_fit_names_the_fields(session: Session, model: Any, problem: str) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.request("POST", "/12/accounts", surface="ads_sandbox", into=model)

    assert str(caught.value).startswith(f"the answer does not fit: {problem}")
    assert (caught.value.sent, caught.value.repeatable) == (Sent.YES, False)
    page = await session.iterate("/12/accounts", into=model)

    assert not page.items
    assert page.unreadable[0].problem.startswith(problem)


class RaisesPydantic(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name")
    @classmethod
    def look_up(cls, value: str) -> str:
        return {"": ""}[value]


def look_up(_: object, __: object, value: str) -> None:
    raise KeyError(value)


@attrs.frozen
class RaisesAttrs:
    name: str = attrs.field(validator=look_up)


@dataclass
class RaisesData:
    name: str

    def __post_init__(self) -> None:
        raise KeyError(self.name)


class RaisesStruct(msgspec.Struct):
    name: str

    def __post_init__(self) -> None:
        raise KeyError(self.name)


class RaisesTypeError(pydantic.BaseModel):
    name: Any

    @pydantic.field_validator("name")
    @classmethod
    def look_up(cls, value: Any) -> int:
        return value + 1  # type: ignore[no-any-return]  # it raises


@attrs.frozen
class RaisesInside:
    name: str
    inner: RaisesAttrs


RAISING = (
    (RaisesPydantic, "KeyError", "RaisesPydantic.look_up"),
    (RaisesAttrs, "KeyError", "look_up"),
    (RaisesData, "KeyError", "RaisesData.__post_init__"),
    (RaisesStruct, "KeyError", "RaisesStruct.__post_init__"),
    (RaisesTypeError, "TypeError", "RaisesTypeError.look_up"),
)


@pytest.mark.parametrize(("model", "kind", "function"), RAISING)
async def test_what_the_code_of_a_class_raises_is_named_without_the_value(
    session: Session, sandbox: Sandbox, model: Any, kind: str, function: str
) -> None:
    name = (await session.accounts.get(sandbox.account_id)).name
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.request("GET", f"/12/accounts/{sandbox.account_id}", into=model)

    error = caught.value
    assert re.match(rf"the answer does not fit: {kind} was raised in {__name__}\.{function}, line \d+ ", str(error))
    assert (error.sent, error.repeatable, name.encode() in error.body) == (Sent.YES, False, True)
    assert name not in "".join(traceback.format_exception(error))
    page = await session.iterate("/12/accounts", into=model)
    assert page.unreadable[0].problem.startswith(f"{kind} was raised in {__name__}.{function}, line ")


def test_what_the_code_of_a_nested_class_raises_is_named_with_its_field() -> None:
    with pytest.raises(UnexpectedAnswer, match=r"\bRaisesInside\.inner\b.*\bKeyError\b") as caught:
        read_as(RaisesInside, {"name": "outer", "inner": {"name": "Shop"}})
    assert "Shop" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (dict[str, int], "id must be an integer"),
        (dict[str, dict[str, int]], "id does not fit: must be an object"),
    ],
)
async def test_a_value_of_a_mapping_that_does_not_fit_is_named_by_its_key(
    session: Session, sandbox: Sandbox, model: Any, problem: str
) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        await session.request("GET", f"/12/accounts/{sandbox.account_id}", into=model)

    assert str(caught.value).startswith(f"the answer does not fit: {problem}")


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"a": {"b": 1, "c": "x"}}, "c"),
        ({"a": {"b": 1, "jo@example.org": "x"}}, r"\[key 1\]"),
        ({"a": {"18": "x"}}, r"\[key 0\]"),
        ({"a": {"k" * 60: "x"}}, "k" * 60),
        ({"a": {"k" * 61: "x"}}, r"\[key 0\]"),
    ],
)
def test_a_key_that_may_be_a_value_is_named_by_its_position(value: Any, named: str) -> None:
    with pytest.raises(UnexpectedAnswer, match=rf": a .*: {named} "):
        read_as(dict[str, dict[str, int]], value)


class Plain:
    id: str


class PlainDict(dict[str, str]):
    pass


@attrs.frozen
class Unresolved:
    id: "DefinedNowhere"  # type: ignore[name-defined]  # noqa: F821 - that is the point


@pytest.mark.parametrize(
    "model",
    [
        *(str, int, object, Plain, list, list[Data], Data | Attrs, Data | None, Annotated[Data, 1], Any),
        *(pydantic.BaseModel, PlainDict),
        *(Data(id="1"), Plain(), "Account", 5, {}, lambda: Data),
    ],
)
async def test_what_no_answer_can_be_read_into_is_refused_before_anything_is_sent(
    session: Session, sandbox: Sandbox, model: Any
) -> None:
    before = len(sandbox.requests)
    with pytest.raises(InvalidArgument, check=has(parameter="into")):
        await session.request("POST", "/12/accounts", surface="ads_sandbox", into=model)
    with pytest.raises(InvalidArgument, check=has(parameter="into")):
        session.iterate("/12/accounts", into=model)
    assert len(sandbox.requests) == before


class UnresolvedPydantic(pydantic.BaseModel):
    id: "DefinedNowhere"  # type: ignore[name-defined]  # noqa: F821 - likewise


class UnresolvedStruct(msgspec.Struct):
    id: "DefinedNowhere"  # type: ignore[name-defined]  # noqa: F821 - likewise


@dataclass
class UnresolvedData:
    id: "DefinedNowhere"  # type: ignore[name-defined]  # noqa: F821 - likewise


@pytest.mark.parametrize("model", [Unresolved, UnresolvedPydantic, UnresolvedStruct, UnresolvedData])
async def test_a_class_whose_annotations_cannot_be_resolved_is_refused_before(
    session: Session, sandbox: Sandbox, model: Any
) -> None:
    before = len(sandbox.requests)
    with pytest.raises(InvalidArgument, check=has(parameter="into")):
        await session.request("POST", "/12/accounts", surface="ads_sandbox", into=model)
    assert len(sandbox.requests) == before


@pytest.mark.parametrize("record", [Account, Generics[str]])
async def test_a_class_of_this_sdk_and_a_generic_one_are_models(
    session: Session, sandbox: Sandbox, record: Any
) -> None:
    found = await session.request("GET", f"/12/accounts/{sandbox.account_id}", into=record)

    assert found.id == sandbox.account_id


MODEL = Generics(id="1")
CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@dataclass
class Amount:
    value: float


class AmountStruct(msgspec.Struct):
    value: float


@pytest.mark.parametrize(
    ("json", "place"),
    [
        (MODEL, "json"),
        ([MODEL], "json[0]"),
        ({"a": {"b": ["", MODEL]}}, "json.a.b[1]"),
        ({"a": float("nan")}, "json.a"),
        ([[float("inf")]], "json[0][0]"),
        (float("-inf"), "json"),
        ({float("nan")}, "json[0]"),
        (Amount(float("nan")), "json.value"),
        ([AmountStruct(float("nan"))], "json[0].value"),
        ({"start_at": datetime(2026, 1, 1)}, "json.start_at"),  # noqa: DTZ001 - the point
        ({"a": [Attrs(id=b"")]}, "json.a[0].id"),  # type: ignore[arg-type]  # likewise
        ({"a": object()}, "json.a"),
        ({"a": 1, "jo@example.org": object()}, "json[key 1]"),
        ({"a": "\ud800"}, "json.a"),
        ({"\ud800": 1}, "json"),
        (CYCLE, "json"),
    ],
)
async def test_a_body_that_has_no_form_in_json_is_refused(
    session: Session, sandbox: Sandbox, json: Any, place: str
) -> None:
    before = len(sandbox.requests)
    with pytest.raises(InvalidArgument, check=has(parameter=place)):
        await session.request("POST", "/12/accounts", surface="ads_sandbox", json=json)
    assert len(sandbox.requests) == before


async def test_a_time_without_a_zone_is_named_by_its_operation(session: Session, sandbox: Sandbox) -> None:
    users = session.account(sandbox.account_id).custom_audience(sandbox.audience_id).users
    params: Any = {"users": [{"email": ["a" * 64]}], "expires_at": datetime(2027, 1, 1)}  # noqa: DTZ001 - the point

    with pytest.raises(InvalidArgument, check=has(parameter="operations[0].params.expires_at")):
        await users.send([{"operation_type": "Update", "params": params}])
