"""Invented dialects, and what a dialect does to plain values, written independently of it."""

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

from svc_async.wire.dialect import FREE_TEXT, Dialect
from svc_async.wire.dialect_file import ContractWords

__all__ = ["ACME", "ACME_FILE", "EVERY_WORD", "translate"]

ACME_FILE = Path(__file__).with_name("acme.toml")
ACME = Dialect.load(ACME_FILE)
_WORDS = ContractWords.load()
EVERY_WORD = Dialect(
    name="every-word",
    paths={path: f"/v{path}" for path in _WORDS.paths},
    pages={page: f"/pages{page}" for page in _WORDS.pages},
    headers={header: header.replace("x-", "x-other-") for header in _WORDS.headers},
    names={name: f"its_{name}" for name in _WORDS.names if not name.startswith("oauth_")},
    values={value: f"its-{value}" for value in (_WORDS.values | _WORDS.other_values) - {"HMAC-SHA1", "1.0"}},
)
"""A dialect of which no word is that of the contract, but those of OAuth 1.0a."""


def translate(value: Any, names: Mapping[str, str], values: Mapping[str, str], name: str = "") -> Any:
    """Return a plain value with other names, and with other values but under free text and behind what is not text."""
    if isinstance(value, dict):
        return {names.get(key, key): translate(each, names, values, key) for key, each in value.items()}
    if isinstance(value, list):
        texts = [*takewhile(lambda each: isinstance(each, str), value)]
        return [translate(each, names, values, name if place < len(texts) else "") for place, each in enumerate(value)]
    either = {name, names.get(name, name)}
    if not isinstance(value, str) or not name or either & FREE_TEXT:
        return value
    if "scope" in either:
        return " ".join(values.get(word, word) for word in value.split(" "))
    return names.get(value, value) if either & {"parameter", "attribute"} else values.get(value, value)
