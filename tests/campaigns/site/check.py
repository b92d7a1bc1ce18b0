"""What a built site refers to: nothing that is missing, and nothing from another host."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import attrs

_RESOURCES = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("object", "data")}
_FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "modulepreload", "manifest"}
_CSS_URL = re.compile(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"](https?:)?//")


@attrs.frozen
class Problem:
    """A reference that a reader cannot follow, or that leaves the machine."""

    page: str
    target: str
    reason: str


@attrs.define
class _Page(HTMLParser):
    """Collects the anchors and the references of a page."""

    anchors: set[str] = attrs.field(factory=set)
    links: set[str] = attrs.field(factory=set)
    resources: set[str] = attrs.field(factory=set)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag == "link" and _FETCHED_LINKS & set(values.get("rel", "").split()):
            self.resources.add(values.get("href", ""))
        self.resources.update(values[name] for kind, name in _RESOURCES if kind == tag and name in values)


def check_site(folder: Path) -> list[Problem]:
    """Return the problems of a site that was built into a folder."""
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html"))}
    return [
        *(problem for path in pages for problem in _check_page(folder, path, pages)),
        *_check_stylesheets(folder),
    ]


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def _check_page(folder: Path, path: Path, pages: Mapping[Path, _Page]) -> Iterator[Problem]:
    name = path.relative_to(folder).as_posix()
    for target in sorted(pages[path].resources):
        if urlsplit(target).netloc:
            yield Problem(name, target, "is fetched from another host")
    for target in sorted(pages[path].links | pages[path].resources):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            continue
        found = _find(folder.parent / "404.html" if parts.path.startswith("/") else path, parts.path.lstrip("/"))
        if found is None:
            yield Problem(name, target, "leads nowhere")
        elif parts.fragment and found in pages and unquote(parts.fragment) not in pages[found].anchors:
            yield Problem(name, target, "names no anchor of that page")


def _find(page: Path, target: str) -> Path | None:
    """Return the file that a link leads to."""
    if not target:
        return page
    path = (page.parent / unquote(target)).resolve()
    file = path / "index.html" if path.is_dir() else path
    return file if file.is_file() else None


def _check_stylesheets(folder: Path) -> Iterator[Problem]:
    for path in sorted(folder.rglob("*.css")):
        if _CSS_URL.search(path.read_text(encoding="utf-8")):
            yield Problem(path.relative_to(folder).as_posix(), "url()", "is fetched from another host")


def find_pages_without_entry(config: Path, docs: Path) -> list[str]:
    """Return the pages that the navigation leaves out."""
    project = tomllib.loads(config.read_text(encoding="utf-8"))["project"]
    listed = set(_list_pages(project["nav"]))
    return sorted(name for path in docs.rglob("*.md") if (name := path.relative_to(docs).as_posix()) not in listed)


def _list_pages(entries: object) -> Iterator[str]:
    match entries:
        case str():
            yield entries
        case list():
            for entry in entries:
                yield from _list_pages(entry)
        case dict():
            for entry in entries.values():
                yield from _list_pages(entry)
        case _:
            raise TypeError("an entry of the navigation is a page, a list or a table")
