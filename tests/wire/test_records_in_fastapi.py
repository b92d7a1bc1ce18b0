"""Records that a program returns from FastAPI, which knows nothing of them."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import BaseModel, ValidationError

from svc_async.ads.accounts import Account
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


def test_a_model_takes_records_only() -> None:
    assert Owner(account=ACCOUNT).account is ACCOUNT
    with pytest.raises(ValidationError, match="instance of Account"):
        Owner.model_validate({"account": ACCOUNT.to_dict()})


def test_a_record_makes_a_dict() -> None:
    assert dict(ACCOUNT) == ACCOUNT.to_dict()  # type: ignore[call-overload]  # checkers take a record for no collection
