"""Records that a program returns from FastAPI, which knows nothing of them."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel, TypeAdapter, ValidationError

from svc_async.ads.accounts import Account
from svc_async.ads.cards import Card
from svc_async.wire.reading import read_as

ACCOUNT = read_as(
    Account,
    {
        "id": "18ce54d4x5t",
        "name": "Shop",
        "timezone": "Europe/Lisbon",
        "approval_status": "ACCEPTED",
        "created_at": "2026-03-01T00:00:00Z",
        "updated_at": "2026-03-01T00:00:00Z",
        "deleted": False,
    },
)


class Owner(BaseModel):
    account: Account


async def read_any() -> Any:
    return ACCOUNT


async def read_some() -> Any:
    return {"accounts": [ACCOUNT]}


async def read_record() -> Account:
    return ACCOUNT


async def read_records() -> list[Account]:
    return [ACCOUNT]


async def read_model() -> Owner:
    return Owner(account=ACCOUNT)


@pytest.mark.parametrize(
    ("read", "settings", "shape"),
    [
        (read_any, {"response_model": None}, lambda account: account),
        (read_some, {"response_model": None}, lambda account: {"accounts": [account]}),
        (read_record, {}, lambda account: account),
        (read_records, {}, lambda account: [account]),
        (read_model, {}, lambda account: {"account": account}),
    ],
)
def test_a_record_is_answered_with_its_fields(read: Any, settings: dict[str, Any], shape: Any) -> None:
    app = FastAPI()
    app.get("/", **settings)(read)
    with TestClient(app) as client:
        assert client.get("/").json() == shape(ACCOUNT.to_dict())
        assert client.get("/openapi.json").status_code == 200


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"response_model_include": {"id", "name"}}, {"id", "name"}),
        ({"response_model_exclude": {"id", "name"}}, ACCOUNT.to_dict().keys() - {"id", "name"}),
        (
            {"response_model_exclude_none": True},
            {name for name, value in ACCOUNT.to_dict().items() if value is not None},
        ),
    ],
)
def test_fields_that_fastapi_leaves_out_are_not_answered(settings: dict[str, Any], left: set[str]) -> None:
    app = FastAPI()
    app.get("/", **settings)(read_record)
    app.get("/list", **settings)(read_records)
    with TestClient(app) as client:
        expected = {name: value for name, value in ACCOUNT.to_dict().items() if name in left}
        assert client.get("/").json() == expected
        if "response_model_exclude_none" in settings:
            assert client.get("/list").json() == [expected]


def test_fields_that_pydantic_leaves_out_are_not_written() -> None:
    owner = Owner(account=ACCOUNT)
    assert owner.model_dump(include={"account": {"id"}}) == {"account": {"id": ACCOUNT.id}}
    assert "name" not in owner.model_dump(mode="json", exclude={"account": {"name"}})["account"]
    assert TypeAdapter(list[Account]).dump_python([ACCOUNT], include={"__all__": {"id"}}) == [{"id": ACCOUNT.id}]


def test_openapi_has_the_fields_of_a_record_with_their_types() -> None:
    app = FastAPI()
    app.get("/record")(read_record)
    app.get("/records")(read_records)
    app.get("/model")(read_model)
    with TestClient(app) as client:
        described = client.get("/openapi.json").json()

    content = described["paths"]["/record"]["get"]["responses"]["200"]["content"]
    assert content["application/json"]["schema"] == {"$ref": "#/components/schemas/Account"}
    schemas = described["components"]["schemas"]
    account = schemas["Account"]
    assert (account["type"], account["title"]) == ("object", "Account")
    assert account["required"] == list(account["properties"]) == list(ACCOUNT.to_dict())
    kinds = {name: {key: kind[key] for key in kind if key != "title"} for name, kind in account["properties"].items()}
    assert kinds["id"] == {"type": "string"}
    assert kinds["deleted"] == {"type": "boolean"}
    assert kinds["created_at"] == {"type": "string", "format": "date-time"}
    assert kinds["business_id"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert kinds["approval_status"] == {"$ref": "#/components/schemas/ApprovalStatus"}
    assert "enum" not in schemas["ApprovalStatus"]  # the service may add values
    assert schemas["ApprovalStatus"]["examples"] == ["ACCEPTED"]
    assert schemas["Owner"]["properties"]["account"] == {"$ref": "#/components/schemas/Account"}


def test_openapi_has_the_records_inside_a_record() -> None:
    schema = TypeAdapter(Card).json_schema(mode="serialization")

    components = schema["properties"]["components"]
    parts = {kind.get("$ref", kind.get("type")) for kind in components["items"]["anyOf"]}
    assert components["type"] == "array"
    assert {"#/$defs/CardComponentButton", "object"} <= parts
    button = schema["$defs"]["CardComponentButton"]
    assert button["properties"]["label"] == {"$ref": "#/$defs/CardButtonLabel"}


def test_a_model_takes_records_only() -> None:
    assert Owner(account=ACCOUNT).account is ACCOUNT
    with pytest.raises(ValidationError):
        Owner.model_validate({"account": ACCOUNT.to_dict()})


def test_a_record_makes_a_dict() -> None:
    assert dict(ACCOUNT) == ACCOUNT.to_dict()  # type: ignore[call-overload]  # checkers take a record for no collection
