"""The calls that a fault can strike, where it says something that only their answers have."""

import re

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
    wild = _SET.sub("?", pattern)
    reached = _skip_stars(wild, {0})
    for each in _ID.sub(_ID_PLACE, path):
        reached = (_advance_over_id if each == _ID_PLACE else _advance)(wild, reached, each)
    return len(wild) in reached


def _advance(wild: str, reached: set[int], each: str) -> set[int]:
    """Return the places in a pattern that are reached with one more character, or one of an id."""
    left = {place for place in reached if place < len(wild)}
    stars = {place for place in left if wild[place] == "*"}
    return _skip_stars(wild, stars | {place + 1 for place in left - stars if _accepts(wild[place], each)})


def _accepts(sign: str, each: str) -> bool:
    return sign in ("?", each) or (each == _ID_PLACE and sign != "/")


def _advance_over_id(wild: str, reached: set[int], each: str) -> set[int]:
    """Return the places that are reached with an id: one character or more, none of them a slash."""
    found: set[int] = set()
    frontier = _advance(wild, reached, each)
    while not frontier <= found:
        found |= frontier
        frontier = _advance(wild, frontier, each)
    return found


def _skip_stars(wild: str, reached: set[int]) -> set[int]:
    """Add the places that are reached because a star stands for nothing."""
    found = set(reached)
    while behind := {place + 1 for place in found if wild[place : place + 1] == "*"} - found:
        found |= behind
    return found


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
