"""Merchant feeds in XML: RSS 2.0 and Atom, with the attributes that have the prefix `g:`.

The parser is the standard library's expat, fed block by block, so that memory use stays constant. What makes XML
dangerous is declared in a document type declaration: entities that expand or that read files. A feed needs none, so a
declaration is refused where it begins, before any of it is used, as libraries for the purpose do.
"""

import re
from array import array
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any
from xml.parsers import expat

import attrs

from svc_async.ads.products import normalize_product
from svc_async.errors import Hint, InvalidArgument, UnusableFile
from svc_async.sources.blocks.files import ByteReader, Input, unusable
from svc_async.sources.columns import IGNORED, PREFIX, EmptyValues, find_missing, select_unmapped
from svc_async.sources.file_source import FileSource
from svc_async.sources.product_attributes import MAX_PRODUCT, PRODUCTS, refuse_long_product
from svc_async.users.names import Vocabulary, normalize_name

__all__ = ["XmlFeed"]

_BLOCK_SIZE = 65_536
_MAX_DEPTH = 64
_MAX_LENGTH = 4_194_304
"""Bytes of one tag or comment, characters of one product, and of all different names of elements and attributes."""
_MAX_NAMES = 10_000
"""Different names of elements and attributes, which the parser keeps to the end; feeds have some dozens."""
_MAX_LINES = 4_000_000
"""Products whose lines are kept, in 16 MB."""
_MAX_NAME = 1_000
"""Characters of the name of an element."""
_ITEMS: Mapping[tuple[str, ...], str] = MappingProxyType({("rss", "channel"): "item", ("feed",): "entry"})
"""The path of the products, and the name of their elements."""
_NAMESPACES = frozenset({"http://base.google.com/ns/1.0", "https://base.google.com/ns/1.0"})
"""What the prefix of attributes stands for in most feeds."""
_UNPREFIXED: Mapping[str, str] = MappingProxyType({"summary": "description"})
"""Elements of RSS and Atom that have another name than their attribute."""


_is_declaration = re.compile("xmlns(?::.*)?").fullmatch


class XmlFeed(FileSource):
    """A feed of products in RSS 2.0 or Atom.

    An attribute is an element with the prefix `g:`, such as `g:price`, or with another one for its namespace; without
    it, the elements of RSS and Atom (`title`, `link`, `description`, `summary`, `id`) are used. Elements of other
    namespaces, such as `media:title`, and those inside another one, such as the price in `g:shipping`, are not
    attributes of the product.

    Args:
        file: its path, or an input.
        mapping: from names of elements to attributes, those of other namespaces with their prefix; `-` ignores one.
        vocabulary: what elements may contain.
        empty: texts that stand for no value, such as `n/a`, in any case.
        block_size: bytes that are parsed at a time.

    Raises:
        UnusableFile: the file cannot be used; the message says why.
        InvalidArgument: the mapping cannot be used.
    """

    def __init__(
        self,
        file: str | Path | Input,
        *,
        mapping: Mapping[str, str] | None = None,
        vocabulary: Vocabulary = PRODUCTS,
        empty: Collection[str] = (),
        block_size: int = _BLOCK_SIZE,
    ) -> None:
        super().__init__(file, empty)
        self._block_size = block_size
        self._names = _ElementNames.build(mapping or {}, vocabulary)
        self._places = array("I")
        with closing(self.parse()) as parts:
            next(parts)
        self.bytes_read = 0

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the elements that are left out, of those read so far; `check` reads all."""
        return self._names.ignored

    @property
    def meaning(self) -> Sequence[object]:
        """The format and the settings that decide what the bytes of the file mean."""
        return "xml", sorted(self._names.mapping.items()), self._empty.texts

    async def check(self) -> None:
        """Read the whole file to find what would stop a job midway, before anything is sent.

        Raises:
            UnusableFile: names the line on which the file is not XML, or has a document type declaration.
        """
        await super().check()
        if missing := self._names.find_missing():
            raise self.refuse(*missing)

    def find_line(self, position: int) -> int | None:
        """Return the line of the file, counted from 1, on which a product that was read begins.

        None after the first four million products, so that memory use stays within bounds.
        """
        return self._places[position] if position < len(self._places) else None

    def parse(self) -> Generator[Iterable[Mapping[str, Any]], None, None]:
        """Yield the products that each block completes."""
        self._places = places = array("I")
        parser = _FeedParser(self.name, self._names, self._empty)
        with ByteReader(self._input) as file:
            while True:
                block = file.read(self._block_size)
                parser.feed(block)
                self.bytes_read = file.stored
                products, lines = parser.take_products()
                places.extend(lines[: _MAX_LINES - len(places)])
                yield products
                if not block:
                    return


@attrs.frozen
class _ElementNames:
    """Which attribute an element stands for."""

    mapping: Mapping[str, str]
    vocabulary: Vocabulary
    _found: dict[str, str] = attrs.field(factory=dict[str, str], init=False, repr=False)

    @classmethod
    def build(cls, mapping: Mapping[str, str], vocabulary: Vocabulary) -> "_ElementNames":
        if not set(mapping.values()) <= {*vocabulary.keys, IGNORED}:
            raise InvalidArgument(
                "map",
                f"must be ELEMENT=ATTRIBUTE, where ATTRIBUTE is one of {', '.join(vocabulary.keys)}, "
                "or - to ignore the element",
            )
        return cls({normalize_name(name.removeprefix(PREFIX)): key for name, key in mapping.items()}, vocabulary)

    @property
    def ignored(self) -> Sequence[str]:
        """The names of the elements that are left out, of those read so far, once each."""
        left_out = (element.removeprefix(PREFIX) for element, attribute in self._found.items() if not attribute)
        return tuple(dict.fromkeys(left_out))

    def find_attribute(self, element: str) -> str:
        """Return the attribute that an element stands for, empty if it is ignored or not recognised."""
        attribute = self._found.get(element)
        if attribute is None:
            name = normalize_name(element.removeprefix(PREFIX))
            key = self.mapping.get(name) or self.vocabulary.find_key(_UNPREFIXED.get(name, name))
            attribute = self._found[element] = "" if key is None or key == IGNORED else key
        return attribute

    def find_missing(self) -> tuple[str, Hint] | None:
        """Return what is wrong if every product needs an attribute and none of those that were read has it."""
        unknown = select_unmapped(self.ignored, self.mapping)
        return find_missing(self.vocabulary, self._found.values(), unknown) if self._found else None


@attrs.define
class _Item:
    """A product while it is parsed: values of elements with the prefix, which take precedence, and of those without."""

    prefixed: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])
    unprefixed: dict[str, list[str]] = attrs.field(factory=dict[str, list[str]])

    def add(self, element: str, attribute: str, value: str) -> None:
        found = self.prefixed if element.startswith(PREFIX) else self.unprefixed
        values, value = found.setdefault(attribute, []), value.strip()
        if value or not values:  # any number of blank ones would be worth no bytes of the product
            values.append(value)

    def build_product(self) -> Mapping[str, Any]:
        """Return the product, with one value for each attribute; blank ones count only where there is no other."""
        written = {name: values for name, values in self.prefixed.items() if any(values)}
        found = {**self.prefixed, **self.unprefixed, **written}
        product: Mapping[str, Any] = normalize_product(
            {name: values[0] if len(values) == 1 else values for name, values in found.items()}
        )
        return product

    def find_id(self) -> object:
        """Return the id of a product of which the rest may not have been read; None if another one may count."""
        return self.prefixed.get("id")


class _FeedParser:
    """Turns the events of the XML parser into products, in one pass over a feed."""

    def __init__(self, name: str, names: _ElementNames, empty: EmptyValues) -> None:
        self._empty = empty
        self._name = name
        self._names = names
        self._fed = 0
        self._path: list[str] = []
        self._namespaces: list[tuple[int, Mapping[str, str]]] = []
        self._own_namespaces: Collection[str] = ()
        """Those of the elements of RSS or Atom in the product: that of its own element, and the default one there."""
        self._qualified: dict[str, str] = {}
        self._item: _Item | None = None
        self._element = self._attribute = ""
        self._text: list[str] = []
        self._length = 0
        self._line = 0
        self._done: list[Mapping[str, Any]] = []
        self._lines: list[int] = []
        self._known_names: dict[str, str] = {}
        self._name_count = 0
        parser = self._parser = expat.ParserCreate(intern=self._known_names)
        parser.buffer_text = True  # otherwise each character reference is a text of its own
        parser.StartDoctypeDeclHandler = self._on_doctype
        parser.StartElementHandler = self._on_start
        parser.EndElementHandler = self._on_end
        parser.CharacterDataHandler = self._on_text

    def feed(self, block: bytes) -> None:
        """Parse a block; an empty one is the end.

        Raises:
            UnusableFile: names the line and what is wrong there.
        """
        try:
            self._parser.Parse(block, not block)
        except expat.ExpatError as error:
            raise unusable(self._name, f"is not XML on line {error.lineno}: {expat.ErrorString(error.code)}") from None
        except (LookupError, ValueError):
            raise unusable(self._name, "has an unsupported encoding; save it as UTF-8") from None
        self._fed += len(block)
        if self._fed - self._parser.CurrentByteIndex > _MAX_LENGTH:
            raise self._refuse("has a tag or comment longer than 4 MiB")
        if len(self._known_names) > self._name_count:
            self._name_count = len(self._known_names)
            if self._name_count > _MAX_NAMES or sum(map(len, self._known_names)) > _MAX_LENGTH:
                raise self._refuse("has more different names of elements than a feed has")

    def take_products(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[int]]:
        """Return the products that were completed since the last call, and the line on which each begins."""
        taken = self._done, self._lines
        self._done, self._lines = [], []
        return taken

    def _on_doctype(self, *_: object) -> None:
        raise self._refuse("has a document type declaration, which is not allowed")

    def _refuse(self, problem: str) -> UnusableFile:
        return unusable(self._name, f"{problem}, on line {self._parser.CurrentLineNumber}")

    def _on_start(self, element: str, attributes: Mapping[str, str]) -> None:
        if attributes:
            declared = {name.partition(":")[2]: uri for name, uri in attributes.items() if _is_declaration(name)}
            if declared:
                self._namespaces.append((len(self._path), declared))
                self._qualified = {}
        local = element.rpartition(":")[2]
        if not self._path and local not in {"rss", "feed"}:
            raise self._refuse("is not a merchant feed: the first element must be rss or feed")
        if len(self._path) >= _MAX_DEPTH:
            raise self._refuse("has elements that are nested too deeply")
        if len(element) > _MAX_NAME:
            raise self._refuse(f"has an element whose name is longer than {_MAX_NAME:,} characters")
        if self._item is None:
            if _ITEMS.get(tuple(self._path)) == local:
                self._item, self._length, self._line = _Item(), 0, self._parser.CurrentLineNumber
                self._own_namespaces, self._qualified = {self._find_namespace(element), self._find_namespace("")}, {}
        elif len(self._path) == self._depth + 1:
            self._start_attribute(self._qualified.get(element) or self._qualify(element), attributes)
        self._path.append(local)

    def _find_namespace(self, element: str) -> str:
        """Return the namespace of an element; a prefix that is not declared stands for itself."""
        prefix = element.rpartition(":")[0]
        return next((uris[prefix] for _, uris in reversed(self._namespaces) if prefix in uris), prefix)

    def _qualify(self, element: str) -> str:
        """Return the name of an element: without a prefix if it is of RSS or Atom, with `g:` if it is of attributes."""
        prefix, _, name = element.rpartition(":")
        namespace = self._find_namespace(element)
        if namespace not in self._own_namespaces:
            name = f"{PREFIX if namespace in _NAMESPACES else f'{prefix}:'}{name}"
        self._qualified[element] = name
        return name

    @property
    def _depth(self) -> int:
        """The depth of the products."""
        return 2 if self._path[0] == "rss" else 1

    def _start_attribute(self, element: str, attributes: Mapping[str, str]) -> None:
        self._element = element
        self._attribute = self._names.find_attribute(element)
        # A link of Atom is in `href`; only the alternate one leads to the page of the product.
        self._text = []
        if attributes.get("rel", "alternate") == "alternate" and "href" in attributes:
            self._on_text(attributes["href"])

    def _on_text(self, text: str) -> None:
        if self._item is None or not self._attribute:
            return
        self._length += len(text)
        if self._length > _MAX_LENGTH:
            raise self._refuse("has a product longer than 4 MiB")
        if self._length <= MAX_PRODUCT:
            self._text.append(text)

    def _on_end(self, _: str) -> None:
        self._path.pop()
        if self._namespaces and self._namespaces[-1][0] == len(self._path):
            self._namespaces.pop()
            self._qualified = {}
        if self._item is None:
            return
        if len(self._path) == self._depth + 1 and self._attribute:
            if self._length <= MAX_PRODUCT:  # else the text is not all of it
                self._item.add(self._element, self._attribute, self._empty.clear("".join(self._text)))
            self._attribute = ""
        elif len(self._path) == self._depth:
            is_long = self._length > MAX_PRODUCT
            item = self._item
            self._done.append(refuse_long_product(item.find_id()) if is_long else item.build_product())
            self._lines.append(self._line)
            self._item = None
