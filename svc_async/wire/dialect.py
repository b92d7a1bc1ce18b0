"""The words of a user's own platform in place of the contract's: in paths, pages, headers, names and values.

The documents write `svc` and `post` for the words of a brand. A `Dialect` is the table of somebody who knows the real
ones. Requests are written in its words before they are signed, and answers are read in ours after they have arrived:

    Request → write → sign → send          answer, delivery, line → verify → read → models

A word is mapped as a whole or not at all. JSON is changed where it stands, as bytes: to decode and encode it again
would cost several times what the reading costs. A value under the name of what people write is left alone.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import sha256
from html import escape, unescape
from pathlib import Path
from typing import Any, Self, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

import attrs
from multidict import CIMultiDict

from svc_async.errors import InvalidArgument
from svc_async.open_enum import OpenEnum
from svc_async.wire.envelope import Answer
from svc_async.wire.params import query_string, quote
from svc_async.wire.route import FORM, Reply, Request

__all__ = ["FREE_TEXT", "Dialect"]

FREE_TEXT: frozenset[str] = frozenset(
    """
    brand business_name campaign_name cashtags color components custom_label_0 custom_label_1 custom_label_2
    custom_label_3 custom_label_4 description detail device_id disclaimer email error_description file_name
    first_choice first_cta fourth_choice fourth_cta full_text handle hashtags hook id keyword keywords location
    message name negative_keywords partner_user_id phone_number product_key product_keys purchase_order_number q
    reason related_keywords screen_name second_choice second_cta summary tag text thank_you_text third_choice
    third_cta title topics username video_description video_title
    """.split()  # noqa: SIM905 - a line for each would take a page
)
"""Names of what people write, and of ids: a value under them is never a word of the platform."""
_NAMES_OF_NAMES = frozenset({"parameter", "attribute"})
"""Names under which an answer names a field."""
_ENVELOPE = frozenset(
    """
    code data errors message meta next_cursor next_token parameter params request total_count
    """.split()  # noqa: SIM905 - a line for each would take a page
)
_OPEN = (Any, object, dict)
"""Types whose values may have any names."""
_MOST_BLANKS = 256
"""Blanks between two parts of JSON; a text behind more of them is left alone."""
_BACKSLASH = 0x5C
_LONGEST_NAME = 110
_MOST_ALIKE = 16
"""Names for which values are changed together, since each takes a pass over the JSON; others are changed one by one."""
_ALIKE = re.compile(rb'"([^"\\]*)"[ \t\r\n]{0,9}:[ \t\r\n]{0,9}\[?[ \t\r\n]{0,9}$')
"""A name directly before a value, or before the first one of an array."""
_MOST_FIELDS = 100
"""Fields of a form."""
_COLON = re.compile(rb"[ \t\r\n]*:")
_SCOPES = frozenset({"scope"})
"""The name of several words in one text, separated by blanks (contract AUTH-26)."""
_SCOPE = re.compile(rb'"(\w*scope)"[ \t\r\n]*:[ \t\r\n]*"([^" \\]* [^"\\]*)"')
_INPUT = re.compile(rb'name="([^"]*)"(?: value="([^"]*)")?')
_ID = re.compile(r"{(\w+)}")


_Mapping = Mapping[str, str]
_Pairs = Iterable[tuple[str, str]]
_Edit = tuple[int, int, str]
"""The places of the first letter of a word and of its end, and the other word."""


@attrs.frozen(slots=False)
class _Words:
    """Words that stand for others, and words that must not occur.

    Attributes:
        names: the names that are changed.
        values: the values that are changed.
        refused_names: the names that are refused, with the right ones.
        refused_values: the values that are refused, with the right ones.
    """

    _names: _Mapping
    _values: _Mapping
    _refused_names: _Mapping = attrs.field(factory=dict)
    _refused_values: _Mapping = attrs.field(factory=dict)

    @cached_property
    def _tokens(self) -> Sequence[bytes]:
        words = {*self._names, *self._values, *self._refused_names, *self._refused_values}
        return [f'"{word}"'.encode() for word in words]

    @cached_property
    def _free(self) -> frozenset[str]:
        return self._with_others(FREE_TEXT)

    @cached_property
    def _scopes(self) -> frozenset[str]:
        return self._with_others(_SCOPES)

    @cached_property
    def _names_of_names(self) -> frozenset[str]:
        return self._with_others(_NAMES_OF_NAMES)

    def _with_others(self, names: frozenset[str]) -> frozenset[str]:
        """Return names with the words that are changed to them, and those that they are changed to."""
        pairs = [pair for pair in self._names.items() if not names.isdisjoint(pair)]
        return names.union(*pairs)

    def list_tokens(self, names: Collection[str], values: Collection[str]) -> Sequence[bytes]:
        """Return what to look for in JSON that has no other names and values than these once it is changed."""
        words = ((token, token[1:-1].decode()) for token in self._tokens)
        return [token for token, word in words if self._names.get(word) in names or self._values.get(word) in values]

    def change(self, json: bytes, tokens: Sequence[bytes] | None = None) -> bytes:
        """Return JSON with the other words.

        Args:
            json: the JSON, or a part of it that has whole words.
            tokens: the words that may be in it, in quotes; by default all.

        Raises:
            InvalidArgument: a word is refused; it names the field.
        """
        found = [token for token in (self._tokens if tokens is None else tokens) if token in json]
        if not self._is_swap:
            escapes = bool(found) and b"\\" in json
            for token in found:
                json = self._change_alike(json, token, escapes=escapes)
            found = [token for token in found if token in json]
        edits = [edit for token in found for edit in self._find(json, token)]
        if tokens is None:  # no record has a scope
            edits += self._find_scopes(json)
        return _apply(json, edits)

    @cached_property
    def _is_swap(self) -> bool:
        """Whether a word is changed to one that is changed as well."""
        return not (
            self._names.keys().isdisjoint(self._names.values())
            and self._values.keys().isdisjoint(self._values.values())
        )

    def _change_alike(self, json: bytes, token: bytes, *, escapes: bool) -> bytes:
        """Change a word wherever it is a name, or is the value of the same name, written with the same blanks."""
        word, start, left = token[1:-1].decode(), -1, _MOST_ALIKE
        while word in self._values and left and (start := json.find(token, start + 1)) >= 0:
            if found := _ALIKE.search(json, max(0, start - _LONGEST_NAME), start):
                other, before = self._choose(found[1].decode("latin-1"), word), found[0]
                if other is not None and not (escapes and b"\\" + before + token in json):  # else it may be in a text
                    json = json.replace(before + token, before + f'"{other}"'.encode())
                    left -= 1
        if word in self._names and not (escapes and b"\\" + token in json):  # else it may end a text
            json = json.replace(token + b":", f'"{self._names[word]}":'.encode())
        return json

    def _find(self, json: bytes, token: bytes) -> Iterator[_Edit]:
        """Yield what changes a word wherever it stands."""
        word, size, start = token[1:-1].decode(), len(token), json.find(token)
        known = dict[int, str | None]()
        while start >= 0:
            end = start + size
            if not start or json[start - 1] != _BACKSLASH:  # else the quote belongs to a longer text
                if _COLON.match(json, end):
                    other = self._change_name(word)
                else:
                    known[start] = _find_name(json, start, known)
                    other = self._choose(known[start], word)
                if other is not None:
                    yield start + 1, end - 1, other
            start = json.find(token, end)

    def _choose(self, name: str | None, word: str) -> str | None:
        """Return the other word for a value under a name, if it has one."""
        if name in self._names_of_names:
            return self._names.get(word)
        return None if name is None else self._change_value(name, word)

    def _find_scopes(self, json: bytes) -> Iterator[_Edit]:
        """Yield what changes the words of scopes."""
        for found in _SCOPE.finditer(json) if self._values and b"scope" in json else ():
            if found[1].decode("latin-1") in self._scopes:
                yield *found.span(2), self._change_scope(found[2].decode("latin-1"))

    def _change_name(self, word: str) -> str | None:
        if (right := self._refused_names.get(word)) is not None:
            raise InvalidArgument(word, f"must be written {right}, for which the dialect has this word")
        return self._names.get(word)

    def _change_value(self, name: str, word: str) -> str | None:
        if name in self._free:
            return None
        if (right := self._refused_values.get(word)) is not None:
            raise InvalidArgument(name, f"must be {right}, for which the dialect has another word")
        return self._values.get(word)

    def _change_scope(self, text: str) -> str:
        return " ".join(self._change_value("scope", word) or word for word in text.split(" "))

    def change_pairs(self, pairs: _Pairs) -> Sequence[tuple[str, str]]:
        """Return names and values of a query or a form; a value may be several words, separated by commas.

        Raises:
            InvalidArgument: a word is refused.
        """
        changed = list[tuple[str, str]]()
        for name, value in pairs:
            if name in self._scopes:
                other = self._change_scope(value)
            else:
                other = ",".join(self._change_value(name, word) or word for word in value.split(","))
            changed.append((self._change_name(name) or name, other))
        return changed

    def change_quoted(self, pairs: _Pairs) -> tuple[tuple[str, str], ...]:
        """Do so with quoted names and values."""
        plain = [(unquote(name), unquote(value)) for name, value in pairs]
        return tuple((quote(name), quote(value)) for name, value in self.change_pairs(plain))

    def change_form(self, body: bytes) -> bytes:
        """Return a form-encoded body with the other words; one that is not ASCII as it is."""
        try:
            pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            return body
        changed = self.change_pairs(pairs)
        if changed == pairs:
            return body
        return query_string((quote(name), quote(value)) for name, value in changed).encode()


def _apply(json: bytes, edits: Sequence[_Edit]) -> bytes:
    if not edits:
        return json
    pieces, end = list[bytes](), 0
    for start, after, word in sorted(edits):
        pieces += json[end:start], word.encode("latin-1")
        end = after
    return b"".join((*pieces, json[end:]))


def _find_name(json: bytes, start: int, known: Mapping[int, str | None]) -> str | None:
    """Return the name under which a text stands, itself or as an element of an array of texts; else None.

    Args:
        json: the JSON.
        start: where the text begins.
        known: the names of texts before it, by where these begin.
    """
    mark = _skip_blanks(json, start)
    while json[mark : mark + 1] == b",":
        end = _skip_blanks(json, mark)
        if json[end : end + 1] != b'"':
            return None
        start = _find_opening(json, end)
        if start in known:
            return known[start]
        mark = _skip_blanks(json, start)
    if json[mark : mark + 1] == b"[":
        mark = _skip_blanks(json, mark)
    if json[mark : mark + 1] != b":":
        return None
    end = _skip_blanks(json, mark)
    return json[_find_opening(json, end) + 1 : end].decode("latin-1")


def _skip_blanks(json: bytes, end: int) -> int:
    """Return the place of the last character before another one that is not a blank."""
    first = max(0, end - _MOST_BLANKS)
    return first + len(json[first:end].rstrip(b" \t\r\n")) - 1


def _find_opening(json: bytes, end: int) -> int:
    """Return the place of the quote at the beginning of a text, given that at its end; -1 if there is none."""
    start = json.rfind(b'"', 0, max(0, end))
    while start > 0 and _is_escaped(json, start):
        start = json.rfind(b'"', 0, start)
    return start


def _is_escaped(json: bytes, place: int) -> bool:
    first = place
    while first and json[first - 1] == _BACKSLASH:
        first -= 1
    return (place - first) % 2 == 1


@lru_cache(maxsize=1024)  # a caller's own models come and go
def _list_words(model: Any) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the names and the values that the answer of a model may have; None if it may have any."""
    if not (isinstance(model, type) and model.__module__.startswith("svc_async.")):
        return None  # a class of the caller's, whose texts may be any words
    names, values, left, seen = {*_ENVELOPE}, set[str](), list[Any]([model]), set[Any]()
    while left:
        kind = left.pop()
        if kind in seen:
            continue
        seen.add(kind)
        if kind in _OPEN or getattr(kind, "keeps_unknown", False):
            return None
        if isinstance(kind, type) and attrs.has(kind):
            fields = [each for each in attrs.fields(attrs.resolve_types(kind)) if not each.name.startswith("_")]
            names.update(field.name for field in fields)
            left += (field.type for field in fields)
        elif isinstance(kind, type) and issubclass(kind, OpenEnum):
            values.update(kind)
        left += (each for each in get_args(kind) if isinstance(each, type) or get_args(each) or each is Any)
    return frozenset(names), frozenset(values)


class _Paths:
    """Paths with other words, by templates of both.

    Args:
        templates: the other template for each; of several that fit a path, the one with the fewest ids counts.
    """

    def __init__(self, templates: _Mapping) -> None:
        by_ids = sorted(templates, key=lambda template: template.count("{"))
        self._patterns = [(_compile(template), templates[template]) for template in by_ids]

    def change(self, path: str) -> str | None:
        """Return the other path, with the same ids; None if no template fits."""
        for pattern, other in self._patterns:
            if found := pattern.fullmatch(path):
                return _ID.sub(lambda name: found[name[1]], other)
        return None


def _compile(template: str) -> re.Pattern[str]:
    parts = _ID.split(template)  # texts and names in turn
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [f"(?P<{name}>[^/]+)" for name in parts[1::2]]
    return re.compile("".join(parts))


@attrs.frozen(kw_only=True)
class Dialect:
    """The words of a platform for those of the contract; `load` reads them from a file.

    Dialects with the same words are equal, whatever they are called.

    Attributes:
        name: what it is called.
        paths: the template of a path on the wire for a template of the contract, with the same ids.
        pages: the same for pages that a browser opens; a whole URL if one stands on another host.
        headers: names of headers, in lower case.
        names: names of query parameters and of fields of JSON.
        values: whole values; those under `FREE_TEXT` are left alone.

    Raises:
        InvalidArgument: a word breaks a rule, such as two words with the same one of the platform.
    """

    name: str = attrs.field(eq=False)
    paths: Mapping[str, str] = attrs.field(factory=dict)
    pages: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict)
    names: Mapping[str, str] = attrs.field(factory=dict)
    values: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        from svc_async.wire.dialect_file import check_words  # noqa: PLC0415 - few programs have one

        for (section, word), rule in check_words(attrs.asdict(self)):
            raise InvalidArgument(".".join(filter(None, ("dialect", section, word))), rule)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the words, in hexadecimal digits."""
        words = (self.paths, self.pages, self.headers, self.names, self.values)
        return sha256(repr([sorted(each.items()) for each in words]).encode()).hexdigest()

    @cached_property
    def _out(self) -> _Words:
        return _Words(self.names, self.values, _invert(self.names), _invert(self.values))

    @cached_property
    def _in(self) -> _Words:
        return _Words(_invert(self.names), _invert(self.values))

    @cached_property
    def _strictly_in(self) -> _Words:
        """The words of the platform in ours, and ours in those of the platform: on the wire they mean nothing."""
        return _Words({**self.names, **_invert(self.names)}, {**self.values, **_invert(self.values)})

    @cached_property
    def _paths(self) -> tuple[_Paths, _Paths]:
        """Those of the contract, and those of the platform."""
        from svc_async.wire.dialect_file import ContractWords  # noqa: PLC0415 - few programs have one

        # Those that stay, too: `/cards/poll` is not the card `poll` of `/cards/{card_id}`.
        same = {template: template for template in ContractWords.load().paths}
        local = {page: urlsplit(other).path for page, other in self.pages.items()}
        templates = {**same, **self.paths, **local}
        return _Paths(templates), _Paths(_invert(templates))

    @cached_property
    def _tokens(self) -> dict[tuple[frozenset[str], frozenset[str]], Sequence[bytes]]:
        return {}

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read the file of a dialect: TOML with `name` and the sections of the attributes.

        Raises:
            UnusableFile: the file cannot be read, or breaks a rule; the message says in which line.
        """
        from svc_async.wire.dialect_file import read_words  # noqa: PLC0415 - as above

        return cls(**read_words(path))

    def on_one_host(self) -> "Dialect":
        """Return the same words for a service whose pages stand on its own host, as those of a sandbox do."""
        paths = {page: urlsplit(other).path for page, other in self.pages.items()}
        return attrs.evolve(self, pages={page: path for page, path in paths.items() if path != page})

    def write_request(self, request: Request[Any]) -> Request[Any]:
        """Return a request in the words of the platform, ready to be signed.

        The body of a batch stays as it is: its rows are written in these words when they are packed.

        Raises:
            InvalidArgument: it has a word of the platform in place of ours; it names the field.
        """
        body = request.body
        if isinstance(body, bytes):
            body = self._out.change_form(body) if request.content_type == FORM else self._out.change(body)
        return attrs.evolve(
            request,
            path=self._paths[0].change(request.path) or request.path,
            query=self._out.change_quoted(request.query),
            oauth=request.oauth and dict(self._out.change_pairs(request.oauth.items())),
            body=body,
        )

    def read_answer(self, request: Request[Any], answer: Answer, *, keep_unknown: bool = False) -> Answer:
        """Return the answer to a request in our words; its `received` stays what came.

        Args:
            request: the request.
            answer: the answer.
            keep_unknown: whether fields are read that the model of the answer lacks.
        """
        if request.reply is Reply.FORM and not answer.body.lstrip().startswith(b"{"):
            body = self._in.change_form(answer.body)
        else:
            reads_all = keep_unknown or not answer.is_success or request.into is None
            body = self._in.change(answer.body, None if reads_all else self._list_tokens(request.into))
        headers = self.read_headers(answer.headers)
        if body is answer.body and headers is answer.headers:
            return answer
        return attrs.evolve(answer, body=body, headers=headers, came=answer.body)

    def _list_tokens(self, model: Any) -> Sequence[bytes] | None:
        """Return what to look for in the answer of a model; None if it may be anything."""
        words = _list_words(model)
        if words is None:
            return None
        if words not in self._tokens:
            from svc_async.wire.dialect_file import ContractWords  # noqa: PLC0415 - as above

            names, values = words
            # A field without an enumeration may have a value that none of the client's has.
            others = self.values.keys() - ContractWords.load().values
            self._tokens[words] = self._in.list_tokens(names, values | others)
        return self._tokens[words]

    def read_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return headers with our names."""
        ours = _invert(self.headers)
        if not any(name in headers for name in ours):
            return headers
        return CIMultiDict((ours.get(name.lower(), name), value) for name, value in headers.items())

    def read_form(self, body: bytes) -> bytes:
        """Return a form, or a query, of a platform in our words."""
        return self._in.change_form(body)

    def read_json(self, body: bytes) -> bytes:
        """Return what a platform has sent in our words."""
        return self._in.change(body)

    def write_json(self, body: bytes) -> bytes:
        """Return JSON of ours, or a part of it that has whole words, in the words of the platform."""
        return self._write.change(body)

    @cached_property
    def _write(self) -> _Words:
        return _Words(self.names, self.values)

    def write_url(self, url: str, base_url: str) -> str:
        """Return the URL of a page that a browser opens.

        Args:
            url: its path and query in our words.
            base_url: the host, unless the dialect names another one.
        """
        page, _, query = url.partition("?")
        other = self.pages.get(page, page)
        host = base_url if other.startswith("/") else ""
        return f"{host}{other}?{self._out.change_form(query.encode()).decode()}"

    # What a server of these words does; a sandbox is one.

    def serve_path(self, path: str) -> str | None:
        """Return our path for one on the wire; None if it is one of ours that the platform calls otherwise."""
        ours = self._paths[1].change(path) or path
        return ours if (self._paths[0].change(ours) or ours) == path else None

    def serve_pairs(self, pairs: _Pairs) -> Sequence[tuple[str, str]]:
        """Return names and values on the wire in our words; ours become words that mean nothing."""
        return self._strictly_in.change_pairs(pairs)

    def serve_json(self, body: bytes) -> bytes:
        """Return JSON on the wire in our words; ours become words that mean nothing."""
        return self._strictly_in.change(body)

    def write_form(self, body: bytes) -> bytes:
        """Return a form-encoded body in the words of the platform."""
        return self._write.change_form(body)

    def write_page(self, html: bytes) -> bytes:
        """Return a page whose form leads to the page of the platform, with names and values in its words."""
        for page, other in self.pages.items():
            html = html.replace(f'action="{page}"'.encode(), f'action="{urlsplit(other).path}"'.encode())
        return _INPUT.sub(self._write_input, html)

    def _write_input(self, found: re.Match[bytes]) -> bytes:
        ((name, value),) = self._write.change_pairs([(found[1].decode(), unescape((found[2] or b"").decode()))])
        shown = "" if found[2] is None else f' value="{escape(value)}"'
        return f'name="{name}"{shown}'.encode()

    def write_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return headers with the names of the platform."""
        return {self.headers.get(name.lower(), name): value for name, value in headers.items()}


def _invert(words: _Mapping) -> dict[str, str]:
    return {other: word for word, other in words.items()}
