"""The typed dictionaries have the keys of the models that they stand for, and pydantic takes them."""

import types
from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import ConfigDict, TypeAdapter, with_config

from svc_async.ads import custom_audiences, dicts, do_not_reach_lists
from svc_async.ads.products import Product
from svc_async.wire.records import list_field_names


@pytest.mark.parametrize(
    ("typed", "model", "without"),
    [
        (dicts.MemberDict, custom_audiences.AudienceUser, set()),
        (dicts.OperationDict, custom_audiences.AudienceUserOperation, set()),
        (dicts.OperationParamsDict, custom_audiences.AudienceUserOperationParams, set()),
        (dicts.DoNotReachMemberDict, do_not_reach_lists.DoNotReachUser, set()),
        (dicts.DoNotReachOperationDict, do_not_reach_lists.DoNotReachOperation, set()),
        (dicts.DoNotReachOperationParamsDict, do_not_reach_lists.DoNotReachOperationParams, set()),
        (dicts.ProductDict, Product, {"product_key"}),  # the service assigns it
    ],
)
def test_a_typed_dictionary_has_the_fields_of_its_model(typed: Any, model: Any, without: set[str]) -> None:
    assert typed.__required_keys__ | typed.__optional_keys__ == {*list_field_names(model)} - without
    assert typed.__required_keys__ == {each.name for each in attrs.fields(model) if each.default is attrs.NOTHING}


MEMBER = {"email": "ann@example.test"}
PRODUCT = {
    "id": "p1",
    "title": "Shoe",
    "description": "A shoe",
    "availability": "in stock",
    "condition": "new",
    "price": "10 USD",
    "link": "https://shop.example/p1",
    "image_link": "https://shop.example/p1.png",
}
PARAMS = {"users": [MEMBER], "expires_at": "2030-01-01T00:00:00Z"}
BODIES: Mapping[str, Mapping[str, Any]] = {
    "DoNotReachMemberDict": MEMBER,
    "DoNotReachOperationDict": {"operation_type": "Delete", "params": PARAMS},
    "DoNotReachOperationParamsDict": PARAMS,
    "MemberDict": {**MEMBER, "device_id": ["d1", "d2"], "handle": None},
    "OperationDict": {"operation_type": "Update", "params": PARAMS},
    "OperationParamsDict": PARAMS,
    "ProductDict": PRODUCT,
}


def serve(typed: Any) -> TestClient:
    """Return a client of an application that answers with the body of a request, of this type."""

    async def echo(body: Any) -> Any:
        return body

    echo.__annotations__["body"] = typed
    app = FastAPI()
    app.post("/")(echo)
    return TestClient(app)


@pytest.mark.parametrize("name", dicts.__all__)
def test_a_typed_dictionary_annotates_the_body_of_a_request(name: str) -> None:
    typed, body = getattr(dicts, name), BODIES[name]
    assert TypeAdapter(typed).validate_python(body) == body

    client = serve(typed)
    assert client.post("/", json=body).json() == body
    assert client.post("/", json={**body, "other": 1}).json() == body
    assert client.post("/", json=[body]).status_code == 422
    assert name in client.get("/openapi.json").json()["components"]["schemas"]
    assert serve(types.GenericAlias(list, typed)).post("/", json=[body]).json() == [body]


@pytest.mark.parametrize("name", dicts.__all__)
def test_a_typed_dictionary_may_forbid_other_keys(name: str) -> None:
    typed = with_config(ConfigDict(extra="forbid"))(types.new_class("Strict", (getattr(dicts, name),)))
    refused = serve(typed).post("/", json={**BODIES[name], "other": 1})
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["type"] == "extra_forbidden"
