"""Several versions of the site beside each other, as the version selector of the theme reads them.

dist/site/versions.json      what the selector offers
dist/site/index.html         leads to the latest version
dist/site/0.1/               the site of a version
"""

import json
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


def add_version(built: Path, root: Path, version: str) -> Path:
    """Move a built site to its place among the versions, and return that place."""
    target = root / version
    shutil.rmtree(target, ignore_errors=True)
    root.mkdir(parents=True, exist_ok=True)
    shutil.move(built, target)
    versions = sorted((path.name for path in root.iterdir() if path.is_dir()), key=_sort_key, reverse=True)
    entries = [
        {"version": name, "title": name, "aliases": ["latest"] if name == versions[0] else []} for name in versions
    ]
    (root / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (root / "index.html").write_text(_REDIRECT.format(latest=versions[0]), encoding="utf-8")
    return target


def _sort_key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
