"""Product feeds take no more memory and time than their bytes are worth."""

import gzip
from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp

from svc_async.errors import UnusableFile
from svc_async.sources.detect import open_feed
from svc_async.sources.product_attributes import UnparsedRow
from tests.support.bounded_process import MIB, check_linear, measure_peaks


def read(path: str) -> str:
    """Read all products; return what is wrong with the file, or the reason of the last product."""
    try:
        (product,) = deque(open_feed(path).products(), 1)
    except UnusableFile as error:
        return error.problem
    return product.reason if isinstance(product, UnparsedRow) else ""


def build_feed(products: str) -> bytes:
    return f'<feed xmlns:g="urn:g">{products}</feed>'.encode()


LINK = f'<link href="{"l" * 100_000}"/>'
BOMBS: dict[str, tuple[Callable[[], bytes], str]] = {
    "links": (lambda: build_feed(f"<entry>{LINK * 1_000}</entry>"), "has a product longer than 4 MiB, on line 1"),
    "character references": (
        lambda: build_feed(f"<entry><title>{'&#65;' * 20_000_000}</title></entry>"),
        "has a product longer than 4 MiB, on line 1",
    ),
    "long product": (
        lambda: build_feed("<entry>" + "<title>&#65;&#66;</title>" * 40_000 + "</entry>"),
        "must have at most 65,536 characters in all its attributes",
    ),
    "elements of other names": (
        lambda: build_feed("<entry>" + "".join(f"<g:n{number}/>" for number in range(1_000_000)) + "</entry>"),
        "has more different names of elements than a feed has, on line 1",
    ),
    "attributes of other names": (
        lambda: build_feed("".join(f'<a n{number}=""/>' for number in range(1_000_000))),
        "has more different names of elements than a feed has, on line 1",
    ),
    "long names": (
        lambda: build_feed(f"<{'n' * 2_000_000}>" * 60),
        "has an element whose name is longer than 1,000 characters, on line 1",
    ),
    "many attributes": (
        lambda: build_feed(
            "<a " + " ".join(f'{number:x}_=""' for number in range(0xA00000, 0xA00000 + 360_000)) + "/>"
        ),
        "has more different names of elements than a feed has, on line 1",
    ),
    "table": (
        lambda: b"id,title\n" + b"1," + b"t" * 100_000 + b"\n",
        "must have at most 65,536 characters in all its attributes",
    ),
}


def test_hostile_feeds_are_read_in_bounded_memory(tmp_path: Path) -> None:
    for name, (create, _) in BOMBS.items():
        (tmp_path / name).write_bytes(gzip.compress(create(), 1))
    peaks = measure_peaks(read, {name: [str(tmp_path / name)] for name in BOMBS})
    assert {name: peak.value for name, peak in peaks.items()} == {name: problem for name, (_, problem) in BOMBS.items()}
    assert {name: peak.bytes for name, peak in peaks.items() if peak.bytes > 128 * MIB} == {}


def repeat_products(size: int) -> Callable[[], object]:
    path = Path(mkdtemp()) / "feed"
    path.write_bytes(build_feed("<entry><g:id>1</g:id><title>&#65;&amp;B</title></entry>" * size))
    return lambda: read(str(path))


def repeat_references(size: int) -> Callable[[], object]:
    path = Path(mkdtemp()) / "feed"
    path.write_bytes(build_feed(f"<entry><g:note>{'&#65;' * size}</g:note></entry>"))
    return lambda: read(str(path))


def test_a_feed_is_read_in_time_in_proportion_to_its_size() -> None:
    check_linear(repeat_products, repeat_references, size=1_000)
