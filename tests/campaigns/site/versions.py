"""Several versions of the site beside each other, as the version selector of the theme reads them.

dist/site/versions.json      what the selector offers
dist/site/index.html         leads to the latest version
dist/site/404.html           what a server answers for a page that is missing: that of the latest version
dist/site/0.1/               the site of a version
"""

import json
import re
import shutil
from pathlib import Path

_REDIRECT = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>svc_async</title>
<meta http-equiv="refresh" content="0; url={latest}/">
<a href="{latest}/">{latest}</a>
</html>
"""
_MISSING = """\
<h1>There is no such page</h1>
<p>It may have another name in this version: search for it, or begin at the <a href="/">start page</a>.</p>"""


def add_version(built: Path, root: Path, version: str) -> Path:
    """Move a built site to its place among the versions, and return that place."""
    target = root / version
    shutil.rmtree(target, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    shutil.move(built, target)
    _complete_error_page(target / "404.html", version)
    versions = sorted((path.name for path in root.iterdir() if path.is_dir()), key=_sort_key, reverse=True)
    entries = [
        {"version": name, "title": name, "aliases": ["latest"] if name == versions[0] else []} for name in versions
    ]
    (root / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (root / "index.html").write_text(_REDIRECT.format(latest=versions[0]), encoding="utf-8")
    shutil.copyfile(root / versions[0] / "404.html", root / "404.html")
    return target


def _complete_error_page(page: Path, version: str) -> None:
    """Have its links begin at its version, since it is shown at any address; and say what to do."""
    text = page.read_text(encoding="utf-8").replace("<h1>404 - Not found</h1>", _MISSING)
    page.write_text(re.sub(r'([=:]\s*")/(?!/)', rf"\g<1>/{version}/", text), encoding="utf-8")


def _sort_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
