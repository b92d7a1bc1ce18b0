"""Users and operations on lists."""

from hashlib import sha256
from typing import Any

__all__ = ["build_delete", "build_update", "hash_value", "make_emails"]


def hash_value(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def make_emails(count: int) -> list[dict[str, object]]:
    return [{"email": f"U{number}@Example.org"} for number in range(count)]


def build_update(*users: dict[str, list[str]], **times: object) -> dict[str, Any]:
    return {"operation_type": "Update", "params": {"users": list(users), **times}}


def build_delete(*users: dict[str, list[str]]) -> dict[str, Any]:
    return {"operation_type": "Delete", "params": {"users": list(users)}}
