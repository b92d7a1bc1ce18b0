"""What a wheel and a source distribution contain: everything that belongs there, and nothing else."""

import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_DATA = {".py", ".css", ".html", ".js", ".json", ".sql", ".svg", ".toml", ".typed", ".png", ".ico"}
"""What a package folder holds."""
_SDIST_FOLDERS = {"svc_async", "tests", "docs", "benchmarks"}
_SDIST_FILES = {
    ".gitignore",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "noxfile.py",
    "pyproject.toml",
    "zensical.toml",
}
_LARGEST = 1_500_000
"""Bytes of one file."""
_RELATIVE_LINK = re.compile(r"\]\((?!https?:|#)([^)]*)\)")


def check_wheel(wheel: Path, package: Path) -> Iterator[str]:
    """Yield what is wrong with a wheel.

    Args:
        wheel: the file.
        package: the folder that it was built from.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = {each.filename for each in archive.infolist() if not each.is_dir()}
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    code = {name for name in names if name.startswith("svc_async/")}
    wanted = {f"svc_async/{path}" for path in list_package(package)}
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - code))
    yield from (f"the wheel has {name}, which is not in the package" for name in sorted(code - wanted))
    yield from (f"the wheel has {name}" for name in sorted(names - code) if ".dist-info/" not in name)
    yield from (f"the wheel lacks {name}" for name in ("licenses/LICENSE", "entry_points.txt") if not _has(names, name))
    yield from (f"a link of the README is relative: {link}" for link in _RELATIVE_LINK.findall(metadata))


def list_package(package: Path) -> Iterator[str]:
    """Yield the files of a package folder that belong into a wheel."""
    for path in package.rglob("*"):
        if path.is_file() and path.suffix in _DATA and "__pycache__" not in path.parts:
            yield path.relative_to(package).as_posix()


def check_sdist(sdist: Path) -> Iterator[str]:
    """Yield what is wrong with a source distribution."""
    with tarfile.open(sdist) as archive:
        members = [each for each in archive.getmembers() if each.isfile()]
    for each in members:
        path = PurePosixPath(*PurePosixPath(each.name).parts[1:])
        known = path.parts[0] in _SDIST_FOLDERS if len(path.parts) > 1 else path.name in _SDIST_FILES
        if not known or "__pycache__" in path.parts:
            yield f"the source distribution has {path}"
        if each.size > _LARGEST:
            yield f"{path} has {each.size:,} bytes"
    names = {each.name.partition("/")[2] for each in members}
    yield from (f"the source distribution lacks {name}" for name in sorted(_SDIST_FILES - {".gitignore"} - names))


def _has(names: set[str], end: str) -> bool:
    return any(name.endswith(f".dist-info/{end}") for name in names)
