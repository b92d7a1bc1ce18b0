"""Builds and checks the documentation site: `nox -s site`."""

import subprocess
import sys
from pathlib import Path

from svc_async._version import __version__
from tests.campaigns.site.check import check_site, find_pages_without_entry
from tests.campaigns.site.versions import add_version

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "zensical.toml"
BUILT = ROOT / "dist" / "site" / "next"
"""Where the configuration lets it be built."""


def main() -> int:
    """Build the site of this version, and print what is wrong with it."""
    build = subprocess.run(["zensical", "build", "--clean", "--strict"], cwd=ROOT, check=False)  # noqa: S607 - of this environment
    if build.returncode:
        return build.returncode
    place = add_version(BUILT, BUILT.parent, ".".join(__version__.split(".")[:2]))
    problems = check_site(place)
    for each in problems:
        sys.stdout.write(f"{each.page}: {each.target} {each.reason}\n")
    missing = find_pages_without_entry(CONFIG, ROOT / "docs")
    for name in missing:
        sys.stdout.write(f"zensical.toml: docs/{name} has no entry in nav\n")
    count = sum(1 for _ in place.rglob("*.html"))
    sys.stdout.write(f"{count} pages in {place.relative_to(ROOT)}, {len(problems) + len(missing)} problems\n")
    return int(bool(problems or missing))


if __name__ == "__main__":
    sys.exit(main())
