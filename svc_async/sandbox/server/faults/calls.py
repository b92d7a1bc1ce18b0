"""The calls that a fault can strike, where it says something that only their answers have."""

import re
from collections.abc import Sequence

import attrs

__all__ = ["BATCHES_OF_PRODUCTS", "BATCHES_OF_USERS", "Calls"]

_PREFIXES = ("/ads", "/ads-sandbox")
_ID = re.compile(r"{\w+}")
_SET = re.compile(r"\[!?\]?[^\]]*\]")
_ID_PLACE = "\0"
"""Stands for an id in the path of a call."""


@attrs.frozen
class Calls:
    """Calls of the advertising API.

    Attributes:
        name: what they are, in messages.
        example: a method and a pattern that select them.
        methods: their methods.
        paths: their paths, with the names of ids in braces.
    """

    name: str
    example: str
    methods: tuple[str, ...]
    paths: tuple[str, ...]

    def include(self, method: str, path: str) -> bool:
        """Return whether a request is one of them."""
        return method in self.methods and any(_match_path(path, known) for known in self.paths)

    def may_match(self, method: str, pattern: str) -> bool:
        """Return whether a method, or `*`, and a pattern of the path can select one of them."""
        paths = (f"{prefix}{path}" for prefix in _PREFIXES for path in self.paths)
        return method in ("*", *self.methods) and any(_may_match_path(pattern, path) for path in paths)


def _match_path(path: str, known: str) -> bool:
    prefixes = "|".join(map(re.escape, _PREFIXES))
    return re.fullmatch(f"(?:{prefixes}){_ID.sub('[^/]+', known)}", path) is not None


def _may_match_path(pattern: str, path: str) -> bool:
    """Return whether a pattern of `fnmatch` matches the path with any ids; a set such as `[ab]` is any character."""
    known = _ID.sub(_ID_PLACE, path)
    places = {0}  # how far in the path the pattern so far may reach
    for wanted in _SET.sub("?", pattern):
        if not places:
            return False
        if wanted == "*":
            places = set(range(min(places), len(known) + 1))
        else:
            places = {after for place in places for after in _list_next(known, place, wanted)}
    return len(known) in places


def _list_next(known: str, place: int, wanted: str) -> Sequence[int]:
    """Return the places behind one more character; an id has one or more, none of them a slash."""
    each = known[place : place + 1]
    if each == _ID_PLACE and wanted != "/":
        return place, place + 1
    return (place + 1,) if each and wanted in ("?", each) else ()


BATCHES_OF_USERS = Calls(
    "a batch of users",
    "POST */users",
    ("POST",),
    (
        "/12/accounts/{account_id}/custom_audiences/{custom_audience_id}/users",
        "/12/batch/accounts/{account_id}/do_not_reach_lists/{do_not_reach_list_id}/users",
    ),
)
BATCHES_OF_PRODUCTS = Calls(
    "an upsert or a deletion of products",
    "PUT */products",
    ("PUT", "DELETE"),
    ("/12/product_catalogs/{product_catalog_id}/products",),
)
