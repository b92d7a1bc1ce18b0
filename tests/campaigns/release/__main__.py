"""Checks a release before it is made: `nox -s release`.

Builds what would be uploaded, checks what it contains, and compares the public API with that of the last release.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from svc_async._version import __version__
from tests.campaigns.release import api
from tests.campaigns.release.packages import check_sdist, check_wheel

ROOT = Path(__file__).parents[3]
DIST = ROOT / "dist" / "packages"


def main() -> int:
    """Check a release; print what is wrong with it."""
    parser = argparse.ArgumentParser(prog="nox -s release --", description=__doc__)
    parser.add_argument("--tag", help="the tag of the release, such as v0.1.0")
    parser.add_argument("--write-api", action="store_true", help="make the present API the one to compare with")
    options = parser.parse_args()
    if options.write_api:
        api.FILE.write_text(api.dump(api.read_surface()), encoding="utf-8")
        return 0
    problems = [*check_version(options.tag), *check_api(), *build_and_check()]
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"release {__version__}: {len(problems)} problems\n")
    return int(bool(problems))


def check_version(tag: str | None) -> Iterator[str]:
    """Yield what is wrong with the version of a release that is tagged."""
    if tag is None:
        return
    if tag != f"v{__version__}":
        yield f"the tag is {tag}, the version {__version__}"
    if not re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", read_changelog(), re.MULTILINE):
        yield f"CHANGELOG.md has no section for {__version__} with a date"


def check_api() -> Iterator[str]:
    """Print what is new in the API, and yield what breaks without an entry in the changelog."""
    old, new = api.load(api.FILE.read_text(encoding="utf-8")), api.read_surface()
    added = sorted(new.keys() - old.keys())
    sys.stdout.write(f"API: {len(new)} names, {len(added)} new: {', '.join(added[:20])}\n")
    notes = find_notes(read_changelog())
    for each in api.find_breaks(old, new):
        if each.is_in(notes):
            sys.stdout.write(f"API: {each.explanation} (in the changelog)\n")
        else:
            yield f"CHANGELOG.md does not mention this break: {each.explanation}"


def read_changelog() -> str:
    """Return the changelog."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def find_notes(changelog: str) -> str:
    """Return the first section: what is not released yet, or is being released."""
    return changelog.split("\n## [")[1]


def build_and_check() -> Iterator[str]:
    """Build both packages, check them with twine, and yield what is wrong with their contents."""
    shutil.rmtree(DIST, ignore_errors=True)
    commands = (
        [sys.executable, "-m", "build", "--outdir", str(DIST)],
        [sys.executable, "-m", "twine", "check", "--strict"],
    )
    for command in commands:
        packages = [str(path) for path in sorted(DIST.glob("svc_async-*"))] if "twine" in command else []
        if subprocess.run([*command, *packages], cwd=ROOT, check=False).returncode:
            yield f"{command[2]} failed"
            return
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    yield from check_wheel(wheel, ROOT / "svc_async")
    yield from check_sdist(sdist)


if __name__ == "__main__":
    sys.exit(main())
