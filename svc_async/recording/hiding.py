"""Which values of a request and its answer are kept, and what stands in place of all others: `kind-N`.

The rule is one of what is kept, so that what it does not know is hidden: documented words, words in capitals where
enumerations stand, times, booleans, and numbers that are no ids and not long enough to be one. The kind is the name
that the value stands under. The same value has the same `kind-N` everywhere; a number has `#kind-N`, as a string.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from secrets import token_bytes
from urllib.parse import quote, unquote, unquote_plus

__all__ = [
    "MOST_VALUES",
    "NotJson",
    "Numbering",
    "Replace",
    "find_name",
    "hide_authorization",
    "hide_headers",
    "hide_json",
    "hide_pairs",
    "hide_path",
    "hide_value",
    "is_field",
    "is_moment",
    "reveal_json",
    "reveal_pairs",
]

MOST_VALUES = 2**20
"""Values that are numbered; each takes about 200 bytes of memory."""

Replace = Callable[[str, str], str]
"""Takes a kind and a value, and returns what stands in its place."""


class NotJson(ValueError):
    """A text cannot be read as JSON."""


class Numbering:
    """Names values by their kind and the order of their first appearance; it keeps digests of them only."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()
        self._key = token_bytes(16)
        self._digits: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __call__(self, kind: str, value: str) -> str:
        """Return what stands in place of a value."""
        digest = blake2b(value.encode("utf-8", "surrogatepass"), digest_size=16, key=self._key).digest()
        if (name := self._names.get(digest)) is None:
            self._counts[kind] += 1
            name = self._names[digest] = f"{kind}-{self._counts[kind]}"
            if _NUMBER.fullmatch(value):
                self._digits[name] = len(value)
        return name

    def take_digits(self) -> Mapping[str, int]:
        """Return how long the numbers are that were named since the last call."""
        digits, self._digits = self._digits, {}
        return digits


# The words of the contract's enumerations that are not written in capitals.
_WORDS = frozenset(
    """
    true|false|bearer|read|write|client_credentials|authorization_code|refresh_token|HMAC-SHA1|1.0|valid|invalid
    |Update|Delete|sent|received|Android|iOS|compat|extended|in stock|available for order|preorder|out of stock
    |discontinued|new|used|refurbished|female|male|unisex|adult|all ages|teen|kids|toddler|infant|newborn
    |Consumer Packaged Goods|Health & Pharma|Alcohol|Dining|Financial Services|Retail|Travel|Gaming|Technology
    |Telecommunication|Auto|Media & Entertainment|Politics|Gambling|Dating|Non-Profit|price|product_type
    |google_product_category|sale_price|inventory|TooManyConnections|UsageCapExceeded|OperationalDisconnect
    |CrcValidationFailed|about:blank|Bad Request|Unauthorized|Forbidden|Not Found|Conflict|Too Many Requests
    |Internal Server Error|Service Unavailable|invalid_client|invalid_grant|invalid_request
    |BOOK|CONNECT|INSTALL|OPEN|ORDER|PLAY|SHOP
    """.replace("\n    ", "")
    .strip()
    .split("|")
)
_ENUMERATED = re.compile(
    r"(?:^|_)(?:types?|status|level|mode|goal|objective|strategy|source|category|categories|granularity|operator"
    r"|placements?|settings|expansion|method|pay_by|cta|direction|condition|feature_keys|data|reasons\w*|attribute"
    r"|currency|country|countries|country_codes?|issue|codes?|unit|errors?)$"
)
_CAPITALS = re.compile(r"(?=.{2,80}$)[A-Z]{1,24}\d{0,3}(?:_(?:[A-Z]{1,24}|\d{1,3}[A-Z]{0,3}))*")
_KEPT: Sequence[tuple[re.Pattern[str], re.Pattern[str]]] = (
    (_ENUMERATED, _CAPITALS),
    (re.compile(r"^attribute$"), re.compile(r"custom_label_\d")),
    (re.compile(r"^event_types?$"), re.compile(r"[a-z]{1,20}(?:\.[a-z_]{1,20}){1,3}")),
    (re.compile(r"^scopes?$"), re.compile(r"[a-z]{1,20}\.[a-z]{1,20}(?: [a-z]{1,20}\.[a-z]{1,20}){0,20}")),
    (re.compile(r"^sort_by$"), re.compile(r"[a-z_]{1,30}-(?:asc|desc)")),
    (re.compile(r"^parameters?$"), re.compile(r"[a-z_]{1,40}(?:\[\d{1,6}\]|\.[a-z_]{1,40}){0,8}")),
    (re.compile(r"^timezone$"), re.compile(r"[A-Z][a-z]{1,20}/[A-Z][A-Za-z_]{1,30}|UTC")),
    (re.compile(r"^type$"), re.compile(r"https?://[a-z.-]{1,80}(?:/(?:[a-z-]{1,40}|\d{1,2})){1,6}")),  # of a problem
    (re.compile(r"^content_type$"), re.compile(r"[a-z]{1,20}/[a-z.+-]{1,40}(?: ?; ?charset=[A-Za-z0-9-]{1,20})?")),
)
"""What is kept besides documented words: texts of these forms, under these names."""
_PERSONAL = re.compile(
    r"(?:^|_)(?:ids?|keys?|tokens?|secret|verifier|password|pin|challenge|nonce|signature|phone\w*|handles?|emails?"
    r"|device\w*|users?|names?|birth\w*|address\w*|ip|lat|long?|coordinates)$"
)
"""The names under which neither a number nor a time is kept."""
_AMOUNTS = re.compile(
    r"(?:^|_)(?:micros?|amount|count|size|bytes|length|limit|remaining|reset|budget|bid|price|min|max|seconds|minutes"
    r"|millis|ms|time|timestamp|date|at|expires(?:_in)?|volume|after)$"
)
"""The names under which long numbers are kept."""
_MOMENTS = re.compile(r"(?:^|_)(?:time|timestamp|reset|date|at|after|ms)$")
_SECRETS = frozenset({"code", "state", "assertion"})
"""The parameters of a query or a form that are secret whatever they look like; in JSON they name something else."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_CAPITAL_LETTER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where a word begins in a name such as `userId`."""
_SHORT, _LONG = 6, 19
"""The digits that a number may have if nothing is known about it, and if its name says that it is an amount."""
_TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d [+-]\d{4} \d{4}",
    re.ASCII,
)
_FIELD = re.compile(
    r"(?=.{1,64}$)(?!(?:.*\d){5})[_$]?[a-z]{1,24}\d{0,3}(?:(?:[_.-][a-z]|[A-Z][a-z])[a-z]{0,24}\d{0,3}|[_.-]\d{1,3}[a-z]{0,3})*"
    r"|Code|Message|Errors?",
    re.ASCII,
)
_REPLACED = re.compile(r"#?[a-z_][a-z0-9_]{0,63}-[1-9]\d{0,9}", re.ASCII)
_IN_JSON = re.compile(rf'"({_REPLACED.pattern})"', re.ASCII)
_SEGMENT = re.compile(r"[a-z][a-z_]{0,39}|oauth2|\d{1,2}(?:\.\d)?")
"""A segment of a path that is no id: a word, or the version."""
_TOKEN = re.compile(
    r'(?P<string>"[^"\\]*(?:\\.[^"\\]*)*")(?P<colon>[ \t\r\n]*:)?|(?P<open>[{\[])|(?P<close>[}\]])'
    r"|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<space>[ \t\r\n]+)|,|true|false|null|NaN|-?Infinity",
    re.ASCII | re.DOTALL,
)
_NOT_PASSED_ON = frozenset({"connection", "content-encoding", "content-length", "keep-alive", "transfer-encoding"})
"""Headers of one connection, or of how a body was written there."""


def find_name(text: object) -> str | None:
    """Return the text if it stands in place of a value."""
    return text if isinstance(text, str) and _REPLACED.fullmatch(text) else None


def is_moment(name: str, text: str) -> bool:
    """Return whether a value that is kept is a time, which is another one each time a program runs."""
    return bool(_TIME.fullmatch(text) or (_NUMBER.fullmatch(text) and len(text) > _SHORT and _MOMENTS.search(name)))


def hide_value(name: str, value: str, replace: Replace, *, is_number: bool = False) -> str:
    """Return a value that stands under a name, or what stands in its place; without a name, it is empty."""
    if _is_kept(name, value):
        return value
    if name == "detail" and (failure := value.partition(":")[0]) in _WORDS:
        return failure  # what an error is known by
    replaced = replace(_make_kind(name), value)
    return f"#{replaced}" if is_number else replaced


def _is_kept(name: str, value: str) -> bool:
    if not value or value in _WORDS:
        return True
    forms, longest_number = _find_rule(name)
    if any(form.fullmatch(value) for form in forms):
        return True
    if longest_number and _NUMBER.fullmatch(value):
        return len(value) <= longest_number
    return bool(longest_number) and _TIME.fullmatch(value) is not None


@lru_cache(maxsize=4096)
def _find_rule(name: str) -> tuple[Sequence[re.Pattern[str]], int]:
    """Return the forms of texts that are kept under a name, and how long numbers may be; 0 hides times as well."""
    name = _CAPITAL_LETTER.sub("_", name).lower().replace("-", "_")
    forms = [form for names, form in _KEPT if names.search(name)]
    return forms, 0 if _PERSONAL.search(name) else _LONG if _AMOUNTS.search(name) else _SHORT


def is_field(name: str) -> bool:
    """Return whether a name in an object looks like that of a field; another one is a value."""
    return bool(_FIELD.fullmatch(name)) and find_name(name) is None


@lru_cache(maxsize=4096)
def _make_kind(name: str) -> str:
    if not name:
        return "value"
    kind = re.sub(r"[^a-z0-9_]", "_", name.lower())
    return kind if kind[0].isalpha() else f"_{kind}"


def hide_json(text: str, replace: Replace) -> str:
    """Return a JSON text in which values are replaced; everything else stays as it is written, except white space.

    Raises:
        NotJson: it is something else.
    """
    return "".join(_hide_tokens(text, replace))


def _hide_tokens(text: str, replace: Replace) -> Iterator[str]:
    names, position = [""], 0
    while position < len(text):
        if (token := _TOKEN.match(text, position)) is None:
            raise NotJson
        position = token.end()
        match token.lastgroup:
            case "open":
                names.append(names[-1])
                yield token[0]
            case "close":
                names.pop()
                if not names:
                    raise NotJson
                yield token[0]
            case "colon":
                name = _read_string(token["string"])
                names[-1] = name if is_field(name) else ""
                yield f'"{names[-1] or replace("value", name)}":'
            case "string":
                value = _read_string(token[0])
                hidden = hide_value(names[-1], value, replace)
                yield token[0] if hidden == value else json.dumps(hidden)
            case "number":
                hidden = hide_value(names[-1], token[0], replace, is_number=True)
                yield hidden if hidden == token[0] else json.dumps(hidden)
            case "space":
                pass
            case _:
                yield token[0]


def _read_string(token: str) -> str:
    if "\\" not in token:
        return token[1:-1]
    try:
        return str(json.loads(token, strict=False))
    except ValueError:
        raise NotJson from None


def hide_pairs(text: str, replace: Replace) -> str:
    """Return a query or a form in which values are replaced, each of several that commas separate."""
    return "&".join(_hide_pair(pair, replace) for pair in text.split("&")) if text else ""


def _hide_pair(pair: str, replace: Replace) -> str:
    quoted, equals, value = pair.partition("=")
    name = unquote_plus(quoted)
    if not is_field(name):
        quoted, name = replace("value", name) if name else "", ""
    if name in _SECRETS:
        return f"{quoted}{equals}{replace(name, unquote_plus(value))}"
    parts = re.split(",|%2C", value, flags=re.IGNORECASE)
    return f"{quoted}{equals}{'%2C'.join(_hide_part(name, part, replace) for part in parts)}"


def _hide_part(name: str, part: str, replace: Replace) -> str:
    value = unquote_plus(part)
    hidden = hide_value(name, value, replace)
    return part if hidden == value else hidden


def hide_path(path: str, scope: Mapping[str, str], replace: Replace, *, hidden: int = 0) -> str:
    """Return a path in which ids are replaced.

    Args:
        path: the path, quoted.
        scope: the ids in it by their names; another segment is an id if it is no word.
        replace: returns what stands in place of a value.
        hidden: how many segments at the end are replaced, even if they are words.
    """
    kinds = {str(value): name for name, value in scope.items()}
    parts, segments, before = path.split("/"), list[str](), "path"
    for index, segment in enumerate(parts):
        value, may_be_word = unquote(segment), index < len(parts) - hidden
        if value in kinds:
            segments.append(replace(kinds[value], value))
        elif not segment or (may_be_word and _SEGMENT.fullmatch(segment)):
            segments.append(segment)
            before = _make_kind(segment or "path")
        else:
            segments.append(replace(before, value))
    return "/".join(segments)


def hide_authorization(header: str, replace: Replace) -> str:
    """Return an `Authorization` header whose credentials are replaced."""
    scheme, _, rest = header.partition(" ")
    if scheme == "OAuth":
        pairs = re.findall(r'(\w+)="([^"]*)"', rest)
        hidden = [(name, hide_value(name, unquote(value), replace)) for name, value in pairs]
        return "OAuth " + ", ".join(f'{name}="{value}"' for name, value in hidden)
    if scheme in {"Basic", "Bearer"}:
        return f"{scheme} {replace('authorization', rest)}"
    return replace("authorization", header)


def hide_headers(headers: Mapping[str, str], replace: Replace) -> dict[str, str]:
    """Return headers whose values are replaced, with names in lower case."""
    hidden: dict[str, str] = {}
    for name, value in headers.items():
        key = name.lower()
        if key == "authorization":
            hidden[key] = hide_authorization(value, replace)
        elif key not in _NOT_PASSED_ON:
            hidden[key] = hide_value(key if is_field(key) else "", value, replace)
    return hidden


def reveal_json(text: str, find_value: Callable[[str], str]) -> str:
    """Return a JSON text in which values stand in place of what has replaced them."""

    def reveal(token: re.Match[str]) -> str:
        value = find_value(token[1].removeprefix("#"))
        return value if token[1].startswith("#") and _NUMBER.fullmatch(value) else json.dumps(value)

    return _IN_JSON.sub(reveal, text)


def reveal_pairs(text: str, find_value: Callable[[str], str]) -> str:
    """Return a form in which values stand in place of what has replaced them; also a text that is only one of them."""
    return re.sub(
        r"[^&=,%]+", lambda part: quote(find_value(part[0]), safe="") if find_name(part[0]) else part[0], text
    )
