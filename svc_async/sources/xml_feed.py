"""Merchant feeds in XML: RSS 2.0 and Atom, with the attributes that have the prefix `g:`.

The parser is the standard library's expat, fed block by block, so that memory stays flat. What makes XML dangerous is
declared in a document type declaration: entities that grow or that read files. A feed needs none, so it is refused
where it begins, before anything of it is used; that is what a library for the purpose would do as well.
"""

import asyncio
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.parsers import expat

import attrs

from svc_async.errors import InvalidArgument
from svc_async.sources.columns import IGNORED, Vocabulary, plain
from svc_async.sources.files import Bytes, Input, as_input, digest_of, refused
from svc_async.sources.product_attributes import PRODUCTS, joined
from svc_async.sources.source import Replay

__all__ = ["XmlFeed"]

_BLOCK = 65_536
_DEEPEST = 64
_LONGEST = 4_194_304
"""Bytes of one tag or comment, and characters of one product."""
_ITEMS: Mapping[tuple[str, ...], str] = MappingProxyType({("rss", "channel"): "item", ("feed",): "entry"})
"""Where products stand, and what they are called there."""
_PLAIN: Mapping[str, str] = MappingProxyType({"summary": "description"})
"""What elements of RSS and Atom are called that stand for an attribute."""
# Unspecified: the namespace of the attributes; feeds are known by the prefix `g:`, whatever namespace it stands for.
_PREFIX = "g:"


class XmlFeed:
    """A feed of products in RSS 2.0 or Atom.

    An attribute is an element with the prefix `g:`, such as `g:price`; where there is none, the plain elements of RSS
    and Atom (`title`, `link`, `description`, `summary`, `id`) stand for theirs. What stands within another element,
    such as the price in `g:shipping`, is no attribute of the product.

    Args:
        file: its path, or an input.
        mapping: from names of elements to attributes; `-` ignores an element.
        vocabulary: what elements may hold.

    Attributes:
        name: its path.
        size: bytes of the file.
        bytes_read: how far `products()` has come.
        exhausted: whether `products()` has given its last product.

    Raises:
        InvalidArgument: says why the file cannot be used.
    """

    def __init__(
        self, file: str | Path | Input, *, mapping: Mapping[str, str] | None = None, vocabulary: Vocabulary = PRODUCTS
    ) -> None:
        self._input = as_input(file)
        self.name = self._input.name
        self.size = self._input.size
        self.bytes_read = 0
        self.exhausted = False
        self._names = _Names.of(mapping or {}, vocabulary)
        self._reading: Generator[Mapping[str, Any], None, None] | None = None
        with closing(self._parts()) as parts:
            next(parts)
        self.bytes_read = 0

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the elements that the mapping leaves out."""
        return tuple(name for name, key in self._names.mapping.items() if key == IGNORED)

    async def check(self) -> None:
        """Look through the whole file for what would stop a job half-way, before anything is sent.

        Raises:
            InvalidArgument: names the line on which the file is no XML, or has a document type declaration.
        """
        with closing(self._parts()) as parts:
            for _ in parts:
                await asyncio.sleep(0)
        self.bytes_read = 0

    def products(self) -> Replay[Mapping[str, Any]]:
        """Give the products from the start, for an uploader; positions count them from 0."""
        return Replay(self._begin)

    def line(self, position: int) -> None:
        """Give none: products of XML are counted, since they may share a line."""

    async def fingerprint(self) -> str:
        """Give a digest of the file and of what its elements mean."""
        return await digest_of(self._input, "xml", sorted(self._names.mapping.items()))

    def close(self) -> None:
        """Let go of the file, if `products()` was not read to its end."""
        self._stop()
        self._input.close()

    def _begin(self) -> Iterator[Mapping[str, Any]]:
        self._stop()
        self.exhausted = False
        self._reading = self._given()
        return self._reading

    def _stop(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def _given(self) -> Generator[Mapping[str, Any], None, None]:
        with closing(self._parts()) as parts:
            yield from chain.from_iterable(parts)
        self.exhausted = True

    def _parts(self) -> Generator[Sequence[Mapping[str, Any]], None, None]:
        reading = _Reading(self.name, self._names)
        with Bytes(self._input) as file:
            while True:
                block = file.read(_BLOCK)
                reading.feed(block)
                self.bytes_read = file.stored
                yield reading.taken()
                if not block:
                    return


@attrs.frozen
class _Names:
    """Which attribute an element stands for."""

    mapping: Mapping[str, str]
    vocabulary: Vocabulary

    @classmethod
    def of(cls, mapping: Mapping[str, str], vocabulary: Vocabulary) -> "_Names":
        if not set(mapping.values()) <= {*vocabulary.keys, IGNORED}:
            raise InvalidArgument(
                "map",
                f"must give ELEMENT=ATTRIBUTE, where the attribute is one of {', '.join(vocabulary.keys)}, "
                "or - to ignore it",
            )
        return cls({plain(name.removeprefix(_PREFIX)): key for name, key in mapping.items()}, vocabulary)

    def attribute(self, element: str) -> str | None:
        """Give the attribute, None for an element that is none."""
        name = plain(element.removeprefix(_PREFIX))
        key = self.mapping.get(name) or self.vocabulary.key(_PLAIN.get(name, name))
        return None if key == IGNORED else key


@attrs.define
class _Item:
    """A product while it is read: values with the prefix, which win, and values without."""

    strong: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    weak: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])

    def add(self, element: str, attribute: str, value: str) -> None:
        if value := value.strip():
            (self.strong if element.startswith(_PREFIX) else self.weak).setdefault(attribute, []).append(value)

    def product(self) -> Mapping[str, Any]:
        return {name: joined(name, values) for name, values in {**self.weak, **self.strong}.items()}


class _Reading:
    """One pass over a feed: what the parser says becomes products."""

    def __init__(self, name: str, names: _Names) -> None:
        self._name = name
        self._names = names
        self._fed = 0
        self._path: list[str] = []
        self._item: _Item | None = None
        self._element = self._attribute = ""
        self._text: list[str] = []
        self._length = 0
        self._done: list[Mapping[str, Any]] = []
        self._parser = self._made()

    def feed(self, block: bytes) -> None:
        """Read on; an empty block is the end.

        Raises:
            InvalidArgument: names the line and what is wrong there.
        """
        try:
            self._parser.Parse(block, not block)
        except expat.ExpatError as error:
            raise refused(self._name, f"is no XML on line {error.lineno}: {expat.ErrorString(error.code)}") from None
        except InvalidArgument:  # raised by a handler
            raise
        except (LookupError, ValueError):
            raise refused(self._name, "is in an encoding that cannot be read: save it as UTF-8") from None
        self._fed += len(block)
        if self._fed - self._parser.CurrentByteIndex > _LONGEST:
            raise self._refused("has a tag or comment of several megabytes")

    def taken(self) -> list[Mapping[str, Any]]:
        """Give the products that are complete."""
        done, self._done = self._done, []
        return done

    def _made(self) -> expat.XMLParserType:
        parser = expat.ParserCreate()
        parser.StartDoctypeDeclHandler = self._doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        return parser

    def _doctype(self, *_: object) -> None:
        raise self._refused("has a document type declaration, which is refused: a feed needs none")

    def _refused(self, what: str) -> InvalidArgument:
        return refused(self._name, f"{what}, on line {self._parser.CurrentLineNumber}")

    def _start(self, element: str, attributes: Mapping[str, str]) -> None:
        if not self._path and _local(element) not in {"rss", "feed"}:
            raise self._refused("is no merchant feed: it must begin with rss or feed")
        if len(self._path) >= _DEEPEST:
            raise self._refused("has elements that are nested too deeply")
        if self._item is None:
            if _ITEMS.get(tuple(self._path)) == _local(element):
                self._item, self._length = _Item(), 0
        elif len(self._path) == self._depth + 1:
            self._begin(element, attributes)
        self._path.append(_local(element))

    @property
    def _depth(self) -> int:
        """How deep products stand."""
        return 2 if self._path[0] == "rss" else 1

    def _begin(self, element: str, attributes: Mapping[str, str]) -> None:
        """Begin with an element of a product."""
        self._element = element if element.startswith(_PREFIX) else _local(element)
        self._attribute = self._names.attribute(self._element) or ""
        # A link of Atom stands in `href`; other links than that to the page itself are for machines.
        self._text = (
            [attributes["href"]] if attributes.get("rel", "alternate") == "alternate" and "href" in attributes else []
        )

    def _characters(self, text: str) -> None:
        if self._item is None or not self._attribute:
            return
        self._length += len(text)
        if self._length > _LONGEST:
            raise self._refused("has a product of several megabytes")
        self._text.append(text)

    def _end(self, _: str) -> None:
        self._path.pop()
        if self._item is None:
            return
        if len(self._path) == self._depth + 1 and self._attribute:
            self._item.add(self._element, self._attribute, "".join(self._text))
            self._attribute = ""
        elif len(self._path) == self._depth:
            self._done.append(self._item.product())
            self._item = None


def _local(element: str) -> str:
    return element.rpartition(":")[2]
