"""One process of the long run: it reads inputs until one of them seems to be a fault."""

import resource
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from random import Random

try:
    import atheris
except ImportError:  # there is none for some systems
    atheris = None

with atheris.instrument_imports(include=["svc_async"]) if atheris else nullcontext():
    from svc_async.errors import SvcError
    from tests.campaigns.fuzz.mutations import mutate
    from tests.campaigns.fuzz.oracle import CORPUS, MAX_BYTES, MAX_INPUT, MAX_SECONDS
    from tests.campaigns.fuzz.targets import TARGETS

_SLOWER = 3
"""Times that code takes longer while Atheris records what it executes; what is too slow is measured again without."""
_HANGS = 60
"""Seconds after which an input is given up."""


def _read_inputs(target: str, seed: int, seconds: int, found: Path, made: Path) -> None:
    """Read inputs that are chosen by what they execute; one that is a fault is in `found` when the process ends."""
    options: Mapping[str, object] = {
        "artifact_prefix": f"{found}/",
        "len_control": 0,
        "max_len": MAX_INPUT,
        "max_total_time": seconds,
        "rss_limit_mb": 4_096,
        "seed": seed,
        "timeout": _HANGS,
        "verbosity": 0,
    }

    def change(content: bytes, most: int, number: int) -> bytes:
        return mutate(content, Random(number), most, lambda each: atheris.Mutate(each, most))

    arguments = [f"-{name}={value}" for name, value in options.items()]
    test = _make_test(target, MAX_SECONDS * _SLOWER)
    atheris.Setup([sys.argv[0], *arguments, str(made), str(CORPUS / target)], test, custom_mutator=change)
    atheris.Fuzz()


def _read_inputs_by_chance(target: str, seed: int, seconds: int, found: Path) -> None:
    """Read inputs that are made by chance, as `_read_inputs` does."""
    test, random, end = _make_test(target, MAX_SECONDS), Random(seed), time.monotonic() + seconds
    inputs = [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]

    def change(content: bytes) -> bytes:
        at = random.randrange(len(content) + 1)
        return content[:at] + random.randbytes(random.randint(0, 4)) + content[at + random.randint(0, 4) :]

    while time.monotonic() < end:
        content = mutate(random.choice(inputs), random, MAX_INPUT, change)
        (found / "input").write_bytes(content)
        test(content)
    (found / "input").unlink(missing_ok=True)


def _make_test(target: str, most_seconds: float) -> Callable[[bytes], None]:
    """Return what reads an input and raises if that is a fault."""
    before = _read_memory()

    def test(content: bytes) -> None:
        start = time.process_time()
        with suppress(SvcError):
            TARGETS[target](content)
        assert time.process_time() - start < most_seconds
        assert _read_memory() - before < MAX_BYTES

    return test


def _read_memory() -> int:
    """Return the most resident memory so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024


if __name__ == "__main__":
    name, number, limit, *folders = sys.argv[1:]
    if atheris is None:
        _read_inputs_by_chance(name, int(number), int(limit), Path(folders[0]))
    else:
        _read_inputs(name, int(number), int(limit), *map(Path, folders))
