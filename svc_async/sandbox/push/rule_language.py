"""Rules of the filtered stream: parsed once, then matched against every post.

    rule   := part ("OR" part)*             alternatives
    part   := clause+                       all of them
    clause := "-" clause | "(" rule ")" | "phrase" | name:value | word

A word matches itself in any case; `#tag` and `@handle` are words too. `-` negates.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import attrs

__all__ = ["MalformedRule", "Post", "Rule", "contains", "parse_rule"]

# FS-05, ASM-61: not available between these two days; the new index supports them again (FS-07).
OPERATORS_GONE = datetime(2026, 1, 19, tzinfo=UTC)
OPERATORS_BACK = datetime(2026, 5, 4, tzinfo=UTC)

_DEEPEST = 50
_TOKEN = re.compile(r'\s*(?:(?P<phrase>-?"[^"]*")|(?P<mark>-?\(|\))|(?P<word>[^\s()"]+))')
_WORDS = re.compile(r"[#@$]?\w+")


class MalformedRule(ValueError):
    """A rule is malformed; the message names the problem and its character, counted from 1."""


@attrs.frozen
class Post:
    """The properties of a post that rules match."""

    fields: Mapping[str, Any] = attrs.field(repr=False)
    author: str
    time: datetime
    words: tuple[str, ...] = attrs.field(
        default=attrs.Factory(lambda post: _split_words(str(post.fields.get("text", ""))), takes_self=True),
        init=False,
        repr=False,
    )

    @property
    def is_repost(self) -> bool:
        """Whether it is a plain repost."""
        referenced = self.fields.get("referenced_posts")
        posts = referenced if isinstance(referenced, list) else ()
        return any(isinstance(post, dict) and post.get("type") == "retweeted" for post in posts)

    def count(self, metric: str) -> int:
        """Return one of its public counters."""
        metrics = self.fields.get("public_metrics")
        value = metrics.get(metric) if isinstance(metrics, dict) else None
        return value if isinstance(value, int) else 0


Clause = Callable[[Post], bool]


@attrs.frozen
class Rule:
    """A parsed rule.

    Attributes:
        text: its source.
    """

    text: str
    _clause: Clause = attrs.field(repr=False)

    def matches(self, post: Post) -> bool:
        """Return whether a post matches."""
        return self._clause(post)


def contains(text: str, keyword: str) -> bool:
    """Return whether a text contains these words in sequence, in any case."""
    return _contains_phrase(_split_words(text), _split_words(keyword))


_LONGEST = 2_048  # FS-02


def parse_rule(text: str, now: datetime) -> Rule:
    """Parse a rule.

    Raises:
        MalformedRule: it is too long, malformed, or uses an operator that is not available at present.
    """
    if len(text) > _LONGEST:
        raise MalformedRule(f"a rule takes up to {_LONGEST} characters")
    reader = _Reader(_tokenize(text), now)
    clause = reader.parse_alternatives(0)
    if (rest := reader.peek()) is not None:
        raise MalformedRule(f"unexpected {rest.text} at character {rest.at}")
    if not reader.positive:
        raise MalformedRule("a rule needs something that is not negated")
    return Rule(text, clause)


@attrs.frozen
class _Token:
    kind: str
    text: str
    at: int


def _tokenize(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise MalformedRule(f"a quote is not closed after character {at + 1}")
        tokens.append(_Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup) + 1))
        at = found.end()
    return tokens


@attrs.define
class _Reader:
    tokens: list[_Token]
    now: datetime
    position: int = 0
    positive: bool = False

    def peek(self) -> _Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def parse_alternatives(self, depth: int, *, negated: bool = False) -> Clause:
        if depth > _DEEPEST:
            raise MalformedRule(f"parentheses are more than {_DEEPEST} deep")
        parts = [self._parse_all(depth, negated=negated)]
        while (token := self.peek()) is not None and token.text == "OR":
            self.position += 1
            parts.append(self._parse_all(depth, negated=negated))
        return parts[0] if len(parts) == 1 else lambda post: any(part(post) for part in parts)

    def _parse_all(self, depth: int, *, negated: bool) -> Clause:
        clauses: list[Clause] = []
        while (token := self.peek()) is not None and token.text not in ("OR", ")"):
            self.position += 1
            clauses.append(self._parse_clause(token, depth, negated=negated))
        if not clauses:
            raise MalformedRule(_describe_missing(self.peek()))
        return clauses[0] if len(clauses) == 1 else lambda post: all(clause(post) for clause in clauses)

    def _parse_clause(self, token: _Token, depth: int, *, negated: bool) -> Clause:
        if token.text.startswith("--"):
            raise MalformedRule(f"negated twice at character {token.at}")
        if token.text.startswith("-"):
            return _negate(self._parse_clause(attrs.evolve(token, text=token.text[1:]), depth, negated=not negated))
        if token.text == "(":
            return self._parse_group(token, depth, negated=negated)
        self.positive = self.positive or not negated
        if token.kind == "phrase":
            return _match_keyword(token, token.text[1:-1])
        return self._parse_word(token)

    def _parse_group(self, opened: _Token, depth: int, *, negated: bool) -> Clause:
        clause = self.parse_alternatives(depth + 1, negated=negated)
        token = self.peek()
        if token is None or token.text != ")":
            raise MalformedRule(f"the parenthesis at character {opened.at} is not closed")
        self.position += 1
        return clause

    def _parse_word(self, token: _Token) -> Clause:
        name, colon, value = token.text.partition(":")
        if not colon:
            return _match_keyword(token, token.text)
        operator = _OPERATORS.get(name.casefold().replace("-", "_"))
        if operator is None:
            raise MalformedRule(f"unknown operator {name}: at character {token.at}")
        if operator in _METRIC_OPERATORS and OPERATORS_GONE <= self.now < OPERATORS_BACK:
            raise MalformedRule(f"the operator {name}: at character {token.at} is not available at present")
        return operator(token, value)


def _describe_missing(token: _Token | None) -> str:
    where = "at the end" if token is None else f"before {token.text} at character {token.at}"
    return f"something is missing {where}"


def _negate(clause: Clause) -> Clause:
    return lambda post: not clause(post)


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(_WORDS.findall(text.casefold()))


def _contains_phrase(words: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    size = len(wanted)
    return any(words[start : start + size] == wanted for start in range(len(words) - size + 1))


def _match_keyword(token: _Token, text: str) -> Clause:
    wanted = _split_words(text)
    if not wanted:
        raise MalformedRule(f"no word at character {token.at}")

    def matches(post: Post) -> bool:
        # FS-07: with the new index, keywords no longer match plain reposts.
        return _contains_phrase(post.words, wanted) and not (post.is_repost and post.time >= OPERATORS_BACK)

    return matches


def _match_author(token: _Token, value: str) -> Clause:
    wanted = _require_value(token, value).removeprefix("@").casefold()
    return lambda post: wanted in (str(post.fields.get("author_id", "")), post.author.casefold())


def _match_language(token: _Token, value: str) -> Clause:
    wanted = _require_value(token, value).casefold()
    return lambda post: post.fields.get("lang") == wanted


def _match_metric(metric: str) -> Callable[[_Token, str], Clause]:
    def operator(token: _Token, value: str) -> Clause:
        if not (value.isascii() and value.isdigit()):
            raise MalformedRule(f"a number is missing at character {token.at}")
        least = int(value)
        return lambda post: post.count(metric) >= least

    return operator


def _require_value(token: _Token, value: str) -> str:
    if not value:
        raise MalformedRule(f"a value is missing at character {token.at}")
    return value


_METRIC_OPERATORS = (_match_metric("like_count"), _match_metric("reply_count"), _match_metric("retweet_count"))

# Unspecified: which operators exist besides the three of FS-05, and the spelling of all of them.
_OPERATORS: Mapping[str, Callable[[_Token, str], Clause]] = MappingProxyType(
    {
        "from": _match_author,
        "lang": _match_language,
        **dict(zip(("min_likes", "min_replies", "min_reposts"), _METRIC_OPERATORS, strict=True)),
    }
)
