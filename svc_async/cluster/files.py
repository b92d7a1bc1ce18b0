"""The files of a source, on this machine or on any storage that fsspec or pyarrow opens."""

import errno
import os
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from glob import has_magic, iglob
from io import BufferedReader, RawIOBase
from itertools import takewhile
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from urllib.request import url2pathname

import attrs

from svc_async.errors import InvalidArgument, SvcError
from svc_async.sources.blocks.files import Input, unusable

__all__ = ["SourceFile", "SourceUnavailable", "StoredFile", "list_files"]

_MAX_FILES = 100_000
_BLOCK = 4_194_304
"""Bytes that are fetched at once from a storage."""
_find_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://").match
_VERSIONS = ("ETag", "etag", "generation", "LastModified", "last_modified", "mtime")
"""What storages call that which changes with the content, the most certain first."""


class SourceUnavailable(SvcError):
    """A file of a source cannot be read now, or here; nothing is wrong with its content as far as it is known.

    Attributes:
        name: the file.
    """

    repeatable = True

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"file {name} {reason}")
        self.name = name


@attrs.frozen(kw_only=True)
class SourceFile:
    """A file of a source, as it was when it was found.

    Attributes:
        path: its absolute path, or its URL.
        size: its number of bytes.
        version: its ETag, or else when it was modified; empty if the storage has neither.
    """

    path: str
    size: int
    version: str


def list_files(path: str) -> Sequence[SourceFile]:
    """Return the files that a path, a URL, a pattern or a folder stands for, in the order of their paths.

    Of a pattern and of a folder, files of 0 bytes are left out, and so are names that begin with `_` or `.`.

    Raises:
        InvalidArgument: a package for the URL is missing, or the URL holds a password.
        UnusableFile: there is no such file, or there are too many.
        SourceUnavailable: the storage cannot be read.
    """
    name = _parse_local(path)
    found = _list_remote(path) if name is None else _list_local(name)
    if not found:
        raise unusable(path, "does not exist, or stands for no file with content")
    if len(found) > _MAX_FILES:
        raise unusable(path, f"stands for more than {_MAX_FILES:,} files; write larger ones")
    return sorted(found, key=lambda file: file.path)


class StoredFile(Input):
    """An input whose bytes are on this machine or on a storage, and that is the same as when it was found.

    Args:
        file: the file.
    """

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self.name = file.path
        self.size = file.size

    @property
    def is_local(self) -> bool:
        """Whether it is a file of this machine."""
        return _find_scheme(self.name) is None

    def open(self) -> BinaryIO:
        """Return the bytes from the start, seekable.

        Raises:
            SourceUnavailable: it cannot be read, or was changed.
        """
        self.check_unchanged()
        with _guard(self.name):
            if self.is_local:
                return Path(self.name).open("rb")
            system, path = _open_system(self.name)
            raw = system.open(path, "rb", block_size=_BLOCK, cache_type="readahead")
        return BufferedReader(_StorageReader(self.name, raw), 65_536)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from one place to another.

        Raises:
            SourceUnavailable: they cannot be read.
        """
        with _guard(self.name):
            if self.is_local:
                with Path(self.name).open("rb") as file:
                    file.seek(start)
                    content = file.read(end - start)
            else:
                system, path = _open_system(self.name)
                with system.open(path, "rb", cache_type="none") as file:
                    file.seek(start)
                    content = file.read(end - start)
        if len(content) != end - start:
            raise SourceUnavailable(self.name, "was changed while it was in use; run the job again, as another one")
        return bytes(content)

    def check_unchanged(self) -> None:
        """Check that it is the same as when it was found.

        Raises:
            SourceUnavailable: it is not, or cannot be reached.
        """
        with _guard(self.name):
            if self.is_local:
                found = _describe_local(self.name)
            else:
                system, path = _open_system(self.name)
                found = _describe_remote(self.name, system.info(path))
        if found != self.file:
            raise SourceUnavailable(self.name, "was changed while it was in use; run the job again, as another one")


class _StorageReader(RawIOBase):
    """Reads a file of a storage, whose errors may be of any kind."""

    def __init__(self, name: str, file: Any) -> None:
        self._name = name
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def readinto(self, buffer: Any) -> int:
        with _guard(self._name):
            block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


@contextmanager
def _guard(name: str) -> Generator[None]:
    """Turn the errors of storages into one, which the readers of formats let pass."""
    try:
        yield
    except SvcError:
        raise
    except FileNotFoundError:
        place = " on this machine: every worker must see it" if _find_scheme(name) is None else ""
        raise SourceUnavailable(name, f"does not exist{place}") from None
    except PermissionError:
        raise SourceUnavailable(name, "cannot be read: access denied") from None
    except Exception as error:  # noqa: BLE001 - whatever the library of a storage may raise
        number = getattr(error, "errno", None) or 0
        reason = os.strerror(number) if number in errno.errorcode else type(error).__name__
        raise SourceUnavailable(name, f"cannot be read ({reason})") from None


def _parse_local(path: str) -> str | None:
    """Return the absolute path of a file of this machine, None for another URL."""
    if _find_scheme(path) is None:
        return os.path.abspath(path)  # noqa: PTH100 - a pattern is no path
    url = urlsplit(path)
    if url.scheme == "file" and url.netloc in {"", "localhost"}:
        return url2pathname(url.path)
    if url.password or (url.scheme in {"http", "https"} and url.query):
        raise InvalidArgument(
            "source", "must be a URL without credentials: workers take them from their environment, as the session does"
        )
    return None


def _is_listed(name: str) -> bool:
    """Return whether a file of a folder counts: engines write others beside their tables, such as `_SUCCESS`."""
    return not any(part.startswith(("_", ".")) for part in PurePosixPath(name).parts)


def _list_local(path: str) -> Sequence[SourceFile]:
    if Path(path).is_file():
        return [_describe_local(path)]
    if Path(path).is_dir():
        walk = os.walk(path, onerror=partial(_refuse_folder, path))
        names: Iterator[str] = (os.path.join(folder, name) for folder, _, files in walk for name in files)  # noqa: PTH118 - strings, as `os.walk` yields them
        names = (name for name in names if _is_listed(os.path.relpath(name, path)))
    elif has_magic(path):
        _check_folders(path)
        found = iglob(path, recursive=True)  # noqa: PTH207 - of an absolute pattern
        root = _find_root(path)
        names = (name for name in found if _is_listed(name.removeprefix(root)) and Path(name).is_file())
    else:
        raise unusable(path, "does not exist")
    with _guard(path):
        return [file for file in map(_describe_local, names) if file.size]


def _check_folders(pattern: str) -> None:
    """Check that each folder that a pattern looks into can be read: `glob` passes over the others."""
    for parent in map(str, PurePath(pattern).parents):
        for folder in filter(os.path.isdir, iglob(parent, recursive=True)):  # noqa: PTH207 - of an absolute pattern
            try:
                os.scandir(folder).close()
            except OSError as error:
                _refuse_folder(_find_root(pattern), error)
        if not has_magic(parent):
            return


def _refuse_folder(root: str, error: OSError) -> None:
    """Refuse a folder that cannot be read, since nobody would notice that its files are missing."""
    folder = str(error.filename)
    if _is_listed(os.path.relpath(folder, root)):
        with _guard(folder):
            raise error


def _describe_local(path: str) -> SourceFile:
    stat = Path(path).stat()
    return SourceFile(path=path, size=stat.st_size, version=str(stat.st_mtime_ns))


def _list_remote(url: str) -> Sequence[SourceFile]:
    with _guard(url):
        system, path = _open_system(url)
        if has_magic(path):
            found, root = system.glob(path, detail=True), _find_root(path)
        elif system.isfile(path):
            return [_describe_remote(url, system.info(path))]
        else:
            root = f"{path.rstrip('/')}/"
            found = system.find(path, detail=True)
        scheme = url.partition("://")[0]
        files = (
            _describe_remote(name if "://" in name else f"{scheme}://{name}", about)
            for name, about in found.items()
            if about.get("type") == "file" and _is_listed(name.removeprefix(root))
        )
        return [file for file in files if file.size]


def _find_root(pattern: str) -> str:
    """Return the folder above the first part of a pattern that stands for several names."""
    return f"{'/'.join(takewhile(lambda part: not has_magic(part), pattern.split('/')))}/"


def _describe_remote(url: str, about: Mapping[str, Any]) -> SourceFile:
    version = next((about[name] for name in _VERSIONS if about.get(name) is not None), "")
    return SourceFile(path=url, size=int(about["size"] or 0), version=str(version))


def _open_system(url: str) -> tuple[Any, str]:
    """Return the filesystem of a URL, and its path there.

    Raises:
        InvalidArgument: no package is installed that opens it.
    """
    from fsspec.core import url_to_fs  # noqa: PLC0415 - of the extra `cluster`

    try:
        system, path = url_to_fs(url, use_listings_cache=False)
    except ImportError:
        return _open_with_arrow(url)
    except ValueError:
        raise InvalidArgument(
            "source", f"must not begin with {url.partition('://')[0]}://: no package opens it"
        ) from None
    return system, path


def _open_with_arrow(url: str) -> tuple[Any, str]:
    from fsspec.implementations.arrow import ArrowFSWrapper  # noqa: PLC0415 - of the extra `cluster`
    from pyarrow.fs import FileSystem  # noqa: PLC0415 - of the extra `cluster`

    scheme = url.partition("://")[0]
    open_: Callable[[str], tuple[Any, str]] = FileSystem.from_uri
    try:
        system, path = open_(url)
    except (ValueError, NotImplementedError):
        rule = f"needs the package of fsspec for {scheme}://, such as s3fs, gcsfs or adlfs, where it runs"
        raise InvalidArgument("source", rule) from None
    return ArrowFSWrapper(system), path
