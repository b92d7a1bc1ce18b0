"""Answers requests from a recording, and notes what they have else than the recorded ones.

Values are compared by what has replaced them: a request fits if each of its values can be the one of that name, and no
other name has it. A name has the value with which the program sends it, whatever it was when it was recorded; until it
does, the value is one that the sandbox makes up.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple, Self
from urllib.parse import unquote, unquote_plus

import attrs
import msgspec

from svc_async.recording.exchanges import LARGE, Content, RecordedExchange, RecordedRequest
from svc_async.recording.file import read_recording
from svc_async.recording.hiding import find_name, hide_pairs, hide_path, is_moment, reveal_json, reveal_pairs

__all__ = ["Difference", "ReceivedRequest", "Replay", "ReplayedAnswer"]

_MOST_DIFFERENCES = 1_000
_TRIED = 64
"""Recorded requests that a request is compared with: requests that were sent at once come in any order."""
_MOST_LARGER = 4
"""Times the size of a recorded body that is read of one that comes instead."""
_NOTHING = "nothing"
_FEWEST_DIGITS, _MOST_DIGITS = 12, 30
"""Those of a number that is made up."""
_COMPARED = frozenset({"authorization", "content-type"})
_FRESH = frozenset({"oauth_nonce", "oauth_signature", "oauth_timestamp"})
"""What each request has anew."""
_SIGNED = frozenset({"authorization.oauth_consumer_key", "authorization.token"})
"""A field that all requests have that prove themselves in the same way."""
_NAMES: Mapping[str, str] = {"date": "Date", "server": "Server"}
"""Headers that the sandbox sends by itself, as it writes them."""


class Difference(NamedTuple):
    """What a program did differently.

    Attributes:
        position: that of the recorded request, from 0; of a request that is not in the recording, its own.
        method: of the request.
        path: of the request, with what has replaced its ids.
        field: what differs, such as `query.count` or `body[0].params.users[1].email[0]`; `request` for all of it.
        expected: what was recorded: a value that is kept, what has replaced one, or `nothing`.
        got: what came, likewise; the kind alone of a value that had not come before.
    """

    position: int
    method: str
    path: str
    field: str
    expected: str
    got: str


_Pattern = tuple[str, str, tuple[str | None, ...]]
"""Method, host and the segments of a path; None stands for an id."""


@attrs.frozen(kw_only=True)
class ReplayedAnswer:
    """The answer to a request.

    Attributes:
        status: None if there was no answer.
        is_late: whether there was none since nobody waited any longer.
        is_stream: whether the connection stays open.
        is_cut: whether the body is cut off.
    """

    status: int | None = None
    content_type: str = ""
    headers: Mapping[str, str] = attrs.field(factory=dict[str, str])
    body: bytes = b""
    is_late: bool = False
    is_stream: bool = False
    is_cut: bool = False


@attrs.define
class _Names:
    """The values of a program by their names, and their names.

    Attributes:
        made_up: the names whose values the program has not sent yet.
    """

    digits: Mapping[str, int]
    values: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    names: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    made_up: set[str] = attrs.field(factory=set[str], init=False)

    def find(self, name: str) -> str:
        """Return the value of a name, which is made up if there is none."""
        if name not in self.values:
            value = name
            if name in self.digits:
                length = min(max(self.digits[name], _FEWEST_DIGITS), _MOST_DIGITS)
                value = str(10 ** (length - 1) + len(self.values))
            self.values[name], self.names[value] = value, name
            self.made_up.add(name)
        return self.values[name]

    def may_be(self, name: str, value: str, match: "_Match") -> bool:
        """Return whether a value can be the one of a name, beside what else the request has."""
        if (owner := match.names.get(value) or self.names.get(value)) is not None:
            return owner == name
        return name not in match.values and (name not in self.values or name in self.made_up)

    def learn(self, match: "_Match") -> None:
        """Keep the names of the values of a request."""
        self.values |= match.values
        self.names |= match.names
        self.made_up -= match.values.keys()


@attrs.define
class _Match:
    """What a request has in place of the values of a recorded one.

    Attributes:
        values: the values by their names.
        names: the names by their values.
    """

    values: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    names: dict[str, str] = attrs.field(factory=dict[str, str], init=False)


@attrs.define(kw_only=True)
class ReceivedRequest:
    """A request that has come.

    Attributes:
        values: the values in it by what stands in their place, as far as it was looked at.
    """

    method: str
    surface: str
    path: str
    query: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)
    values: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _tokens: dict[str, str] = attrs.field(factory=dict[str, str], init=False)
    _hidden: dict[bool, Content] = attrs.field(factory=dict[bool, Content], init=False)

    def _replace(self, kind: str, value: str) -> str:
        if value not in self._tokens:
            token = self._tokens[value] = f"{kind}-{len(self._tokens) + 1}"
            self.values[token] = value
        return self._tokens[value]

    def list_head(self, recorded: RecordedRequest) -> Mapping[str, str]:
        """Return its values, except those of the body, by their fields; the ids of its path are those of a recorded."""
        words = zip(recorded.path.split("/"), self.path.split("/"), strict=True)
        path = [
            self._replace(word.rpartition("-")[0], unquote(part)) if find_name(word) else part for word, part in words
        ]
        request = RecordedRequest(
            method=self.method,
            surface=self.surface,
            path="/".join(path),
            query=hide_pairs(self.query, self._replace),
            content=self._hide(is_large=recorded.content.large is not None),
        )
        return _list_head(request)

    def list_body(self, *, is_large: bool) -> Mapping[str, str]:
        """Return the values of its body by their fields, as far as they are kept of a large one."""
        return _list_body(self._hide(is_large=is_large))

    def _hide(self, *, is_large: bool) -> Content:
        if is_large not in self._hidden:
            most = min(LARGE, len(self.body) - 1) if is_large else LARGE * _MOST_LARGER
            headers = {name: value for name, value in self.headers.items() if name.lower() in _COMPARED}
            self._hidden[is_large] = Content.hide(headers, self.body, self._replace, most=most)
        return self._hidden[is_large]


class Replay:
    """The exchanges of a recording, and what has come of them.

    Args:
        exchanges: those of the recording, in the order of their requests.
    """

    def __init__(self, exchanges: Sequence[RecordedExchange]) -> None:
        self._exchanges = exchanges
        self._names = _Names({name: digits for each in exchanges for name, digits in each.digits.items()})
        self._left: dict[_Pattern, list[RecordedExchange]] = {}
        for each in exchanges:
            if each.was_sent:
                self._left.setdefault(_find_pattern(each.request), []).append(each)
        self._differences: list[Difference] = []
        self._received = 0

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Return a replay of a file.

        Raises:
            UnusableFile: it is not a recording, or is damaged.
        """
        return cls(read_recording(path))

    def restart(self) -> "Replay":
        """Return a replay from the beginning."""
        return Replay(self._exchanges)

    @property
    def began(self) -> datetime:
        """When the first request was begun."""
        return self._exchanges[0].at if self._exchanges else datetime(2026, 1, 1, tzinfo=UTC)

    @property
    def differences(self) -> Sequence[Difference]:
        """What differed so far, and the recorded requests that have not come, 1,000 at most."""
        left = sorted((each for some in self._left.values() for each in some), key=lambda each: each.position)
        missing = (
            Difference(each.position, each.request.method, each.request.path, "request", "request", _NOTHING)
            for each in islice(left, _MOST_DIFFERENCES - len(self._differences))
        )
        return (*self._differences, *missing)

    def answer(self, got: ReceivedRequest) -> ReplayedAnswer | None:
        """Return the recorded answer to a request; None if no such request is left."""
        position, self._received = self._received, self._received + 1
        first = None
        for each in islice(self._list_candidates(got), _TRIED):
            first = each if first is None else first
            match = _Match()
            if next(self._compare(each.request, got, match), None) is None:
                return self._use(each, match)
        if first is None:
            path = hide_path(got.path, {}, lambda kind, value: self._names.names.get(value, kind))
            self._note(Difference(position, got.method, path, "request", _NOTHING, "request"))
            return None
        match = _Match()
        for field, expected, came in self._compare(first.request, got, match):
            self._note(Difference(first.position, got.method, first.request.path, field, expected, came))
        return self._use(first, match)

    def _note(self, difference: Difference) -> None:
        if len(self._differences) < _MOST_DIFFERENCES:
            self._differences.append(difference)

    def _list_candidates(self, got: ReceivedRequest) -> Iterator[RecordedExchange]:
        """Yield the recorded requests that are left of the same method and path; a word in it goes before an id."""
        parts = got.path.split("/")
        patterns = [
            (pattern.count(None), key)
            for key in self._left
            if key[:2] == (got.method, got.surface)
            and len(pattern := key[2]) == len(parts)
            and all(word is None or word == part for word, part in zip(pattern, parts, strict=True))
        ]
        for _, key in sorted(patterns, key=lambda pattern: pattern[0]):
            yield from self._left[key]

    def _compare(
        self, recorded: RecordedRequest, got: ReceivedRequest, match: _Match
    ) -> Iterator[tuple[str, str, str]]:
        """Yield the fields that differ, what was recorded and what came; `match` takes the values by their names."""
        expected, came = _list_head(recorded), got.list_head(recorded)
        if not {*expected} & {*came} & _SIGNED:  # the user of the sandbox has credentials of another kind
            expected, came = (
                {field: value for field, value in each.items() if not field.startswith("authorization.")}
                for each in (expected, came)
            )
        yield from self._compare_leaves(expected, came, got, match)
        expected, came = _list_body(recorded.content), got.list_body(is_large=recorded.content.large is not None)
        yield from self._compare_leaves(expected, came, got, match)

    def _compare_leaves(
        self, expected: Mapping[str, str], came: Mapping[str, str], got: ReceivedRequest, match: _Match
    ) -> Iterator[tuple[str, str, str]]:
        for field in {**expected, **came}:
            left, right = expected.get(field, _NOTHING), came.get(field, _NOTHING)
            name, token = find_name(left), find_name(right)
            if token is not None:
                value = got.values[token.removeprefix("#")]
                if name is not None and name.startswith("#") == token.startswith("#"):
                    name = name.removeprefix("#")
                    if self._names.may_be(name, value, match):
                        match.values[name], match.names[value] = value, name
                        continue
                right = match.names.get(value) or self._names.names.get(value) or token.rpartition("-")[0]
            elif left == right or _are_moments(field, left, right):
                continue
            yield field, left, right

    def _use(self, exchange: RecordedExchange, match: _Match) -> ReplayedAnswer:
        request = exchange.request
        self._left[_find_pattern(request)].remove(exchange)
        self._names.learn(match)
        if (answer := exchange.answer) is None:
            return ReplayedAnswer(is_late=exchange.failure in {"TimedOut", "CancelledError"})
        content = answer.content
        headers = {_NAMES.get(name, name): self._reveal_header(value) for name, value in content.headers.items()}
        return ReplayedAnswer(
            status=answer.status,
            content_type=headers.pop("content-type", ""),
            headers=headers,
            body=self._reveal_body(content),
            is_stream=answer.is_stream,
            is_cut=answer.is_cut,
        )

    def _reveal_header(self, value: str) -> str:
        if find_name(value) is None:
            return value
        revealed = self._names.find(value)
        return revealed if revealed.isascii() and revealed.isprintable() else value

    def _reveal_body(self, content: Content) -> bytes:
        if content.text:
            return reveal_pairs(content.text, self._names.find).encode()
        json = bytes(content.json if content.large is None else content.large.first)
        return reveal_json(json.decode("latin-1"), self._names.find).encode("latin-1")  # byte for byte


def _find_pattern(request: RecordedRequest) -> _Pattern:
    parts = request.path.split("/")
    return request.method, request.surface, tuple(None if find_name(part) else part for part in parts)


def _are_moments(field: str, left: str, right: str) -> bool:
    """Return whether two values are times that are written in the same way: a program has others each time it runs."""
    return is_moment(field, left.strip('"')) and re.sub(r"\d", "0", left) == re.sub(r"\d", "0", right)


def _list_head(request: RecordedRequest) -> Mapping[str, str]:
    """Return the values of a request, except those of its body, by their fields."""
    headers = request.content.headers
    path = enumerate(request.path.split("/"))
    credentials = headers.get("authorization", "").partition(" ")[2]
    signed = dict(re.findall(r'(\w+)="([^"]*)"', credentials)) or {"token": credentials}
    return {
        **{f"path[{index}]": part for index, part in path if find_name(part)},
        **_list_pairs("query", request.query),
        **{f"authorization.{name}": value for name, value in signed.items() if value and name not in _FRESH},
    }


def _list_body(content: Content) -> Mapping[str, str]:
    """Return the values of a body, and its type, by their fields; aiohttp names a type without a body as well."""
    kind = content.headers.get("content-type", _NOTHING)
    if content.text:
        is_form = kind.startswith("application/x-www-form-urlencoded")
        return {"content-type": kind, **(_list_pairs("body", content.text) if is_form else {"body": content.text})}
    large = content.large
    if large is None and not bytes(content.json):
        return {}
    counts = {} if large is None else {f"number of body{place}": str(count) for place, count in large.counts.items()}
    json = content.json if large is None else large.first
    return {"content-type": kind, **counts, **dict(_list_leaves("body", bytes(json)))}


def _list_pairs(place: str, text: str) -> Mapping[str, str]:
    leaves: dict[str, str] = {}
    for pair in text.split("&") if text else ():
        name, _, value = pair.partition("=")
        parts = value.split("%2C")
        for index, part in enumerate(parts):
            leaves[f"{place}.{unquote_plus(name)}{f'[{index}]' if len(parts) > 1 else ''}"] = unquote_plus(part)
    return leaves


def _list_leaves(place: str, json: bytes) -> Iterator[tuple[str, str]]:
    """Yield the fields of a JSON text and what they have, as it is written there; replaced values without quotes."""
    waiting: list[tuple[str, Any]] = [(place, msgspec.json.decode(json))] if json else []
    while waiting:
        field, value = waiting.pop()
        if isinstance(value, dict) and value:
            names = [f"*{index}" if find_name(name) else name for index, name in enumerate(value)]
            waiting += reversed([(f"{field}.{name}", each) for name, each in zip(names, value.values(), strict=True)])
        elif isinstance(value, list) and value:
            waiting += ((f"{field}[{index}]", each) for index, each in reversed([*enumerate(value)]))
        else:
            yield field, find_name(value) or msgspec.json.encode(value).decode()
