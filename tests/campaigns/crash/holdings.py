"""What a service keeps of people and of products, and what requests do to it."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from tests.campaigns.crash.server import Exchange

__all__ = ["POISON", "PRODUCT", "Audience", "Catalog", "Identifier"]

POISON = "poison"
"""Begins the ids of people and products that the service refuses to add."""

PRODUCT: Mapping[str, str] = {
    "description": "d",
    "availability": "in stock",
    "condition": "new",
    "price": "1.00 EUR",
    "link": "https://shop.example/p",
    "image_link": "https://shop.example/p.jpg",
    "brand": "b",
}
"""What all products have in common."""

Identifier = tuple[str, str]
"""Kind and value."""


@attrs.define
class Audience:
    """People, each with identifiers.

    An Update replaces the identifiers of a person, so that the order of requests can be seen; or it adds to them, so
    that what was not taken out can be seen. A Delete removes whoever has an identifier.

    Attributes:
        adds: whether an Update adds identifiers.
        people: the identifiers of each person, by the first one.
        users: how many users were applied.
    """

    adds: bool = False
    people: dict[Identifier, frozenset[Identifier]] = attrs.field(factory=dict)
    users: int = 0

    def find_refused(self, exchange: Exchange) -> Mapping[int, str]:
        return {
            index: "this user is refused"
            for index, operation in enumerate(json.loads(exchange.body))
            if operation["operation_type"] == "Update"
            and any(name.startswith(POISON) for user in _users(operation) for _, name in _identify(user))
        }

    def apply(self, exchange: Exchange, *, partial: bool) -> bytes:
        work = [
            (operation["operation_type"], user) for operation in json.loads(exchange.body) for user in _users(operation)
        ]
        done = work[: len(work) // 2] if partial else work
        self.users += len(done)
        for operation_type, user in done:
            self._change(operation_type, _identify(user))
        counts = {"success_count": len(done), "total_count": len(work)}
        return json.dumps({"request": {"params": {}}, "data": counts}).encode()

    def _change(self, operation_type: str, identifiers: Iterable[Identifier]) -> None:
        found = frozenset(identifiers)
        if operation_type == "Delete":
            for first in [first for first, held in self.people.items() if held & found]:
                del self.people[first]
            return
        first = next(iter(identifiers))
        self.people[first] = found | (self.people.get(first, frozenset()) if self.adds else frozenset())


def _users(operation: Mapping[str, Any]) -> Iterable[Mapping[str, list[str]]]:
    users: list[Mapping[str, list[str]]] = operation["params"]["users"]
    return users


def _identify(user: Mapping[str, list[str]]) -> list[Identifier]:
    return [(kind, value) for kind, values in user.items() for value in values]


@attrs.define
class Catalog:
    """Products with a title.

    Attributes:
        titles: the title of each product.
    """

    titles: dict[str, str] = attrs.field(factory=dict)

    def find_refused(self, exchange: Exchange) -> Mapping[int, str]:
        del exchange
        return {}

    def apply(self, exchange: Exchange, *, partial: bool) -> bytes:
        if exchange.method == "GET":
            return self._list()
        body = json.loads(exchange.body)
        if exchange.method == "DELETE":
            keys = body["product_keys"]
            answers = [self._delete(key) for key in _half(keys, partial=partial)]
            return _write({"delete_products": answers})
        products = body["products"]
        return _write({"products_response": [self._upsert(each) for each in _half(products, partial=partial)]})

    def _upsert(self, product: Mapping[str, str]) -> Mapping[str, Any]:
        product_id = product["id"]
        if product_id.startswith(POISON):
            return {"id": product_id, "status": "ERROR", "errors": ["this product is refused"]}
        status = "UPDATE_SUCCESS" if product_id in self.titles else "CREATE_SUCCESS"
        self.titles[product_id] = product["title"]
        return {"id": product_id, "product_key": _key(product_id), "status": status}

    def _delete(self, key: str) -> Mapping[str, Any]:
        if self.titles.pop(key.removeprefix("key-"), None) is None:
            return {"product_key": key, "failed_product_key": key, "message": "not found"}
        return {"product_key": key}

    def _list(self) -> bytes:
        rows = [
            {**PRODUCT, "id": name, "title": title, "product_key": _key(name)} for name, title in self.titles.items()
        ]
        return json.dumps({"request": {}, "data": rows, "next_cursor": None}).encode()


def _key(product_id: str) -> str:
    return f"key-{product_id}"


def _half(items: list[Any], *, partial: bool) -> list[Any]:
    return items[: len(items) // 2] if partial else items


def _write(data: Mapping[str, Any]) -> bytes:
    return json.dumps({"request": {"params": {}}, "data": data}).encode()
