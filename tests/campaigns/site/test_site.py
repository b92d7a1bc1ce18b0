"""The check of the site notices what a reader would run into."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.campaigns.site.check import check_site, find_pages_without_entry
from tests.campaigns.site.versions import add_version


def reasons(folder: Path) -> list[str]:
    return [f"{each.target} {each.reason}" for each in check_site(folder)]


def put(folder: Path, **pages: str) -> Path:
    for name, text in pages.items():
        page = folder / name / "index.html"
        page.parent.mkdir(parents=True)
        page.write_text(text, encoding="utf-8")
    (folder / "404.html").touch()
    return folder


def test_links_that_lead_somewhere_pass(tmp_path: Path) -> None:
    site = put(tmp_path, a='<h1 id="x">A</h1><a href="../b/#y">b</a><a href="#x">x</a>', b='<a name="y" href="../a/">')
    assert reasons(site) == []


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ('<a href="../c/">', "../c/ leads nowhere"),
        ('<a href="#no">', "#no names no anchor of that page"),
        ('<a href="../b/#no">', "../b/#no names no anchor of that page"),
        ('<img src="no.png">', "no.png leads nowhere"),
        ('<script src="https://cdn.example/x.js">', "https://cdn.example/x.js is fetched from another host"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "//fonts.example/x.css is fetched from another host"),
    ],
)
def test_a_reference_that_a_reader_cannot_follow_is_reported(tmp_path: Path, page: str, reason: str) -> None:
    assert reasons(put(tmp_path, a=page, b="")) == [reason]


def test_a_link_to_another_site_is_no_resource(tmp_path: Path) -> None:
    assert reasons(put(tmp_path, a='<a href="https://site.example/">')) == []


def test_a_stylesheet_that_imports_a_font_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x.css").write_text("@font-face { src: url('https://fonts.example/a.woff2') }", encoding="utf-8")
    assert reasons(tmp_path) == ["url() is fetched from another host"]


def test_a_page_that_the_navigation_leaves_out_is_reported(tmp_path: Path) -> None:
    config = tmp_path / "zensical.toml"
    config.write_text('[project]\nnav = ["index.md", { "Guides" = [{ "A" = "a/b.md" }] }]\n', encoding="utf-8")
    docs = tmp_path / "docs"
    for name in ("index.md", "a/b.md", "c.md"):
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        (docs / name).touch()
    assert find_pages_without_entry(config, docs) == ["c.md"]


@pytest.mark.parametrize("order", [("0.9", "0.10"), ("0.10", "0.9")])
def test_the_highest_version_is_the_latest(tmp_path: Path, order: Iterable[str]) -> None:
    root = tmp_path / "site"
    for version in order:
        add_version(put(tmp_path / "built", a=version), root, version)
    entries = json.loads((root / "versions.json").read_text(encoding="utf-8"))
    assert [(each["version"], each["aliases"]) for each in entries] == [("0.10", ["latest"]), ("0.9", [])]
    assert "url=0.10/" in (root / "index.html").read_text(encoding="utf-8")


def test_a_missing_page_is_shown_at_any_address_with_the_style_of_its_version(tmp_path: Path) -> None:
    root = tmp_path / "site"
    built = put(tmp_path / "built", a="")
    (built / "404.html").write_text('<img src="/x.png"><a href="/">Start</a><a href="/no/"><br id="x"/>', "utf-8")
    (built / "x.png").touch()
    (built / "index.html").touch()
    place = add_version(built, root, "0.1")
    expected = '<img src="/0.1/x.png"><a href="/0.1/">Start</a><a href="/0.1/no/"><br id="x"/>'
    assert (root / "404.html").read_text(encoding="utf-8") == expected
    assert reasons(place) == ["/0.1/no/ leads nowhere"]


def test_a_version_that_is_built_again_replaces_its_pages(tmp_path: Path) -> None:
    root = tmp_path / "site"
    add_version(put(tmp_path / "built", old=""), root, "0.1")
    add_version(put(tmp_path / "built", new=""), root, "0.1")
    assert {path.name for path in (root / "0.1").iterdir()} == {"new", "404.html"}
