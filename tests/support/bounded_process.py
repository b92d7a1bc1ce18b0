"""Runs a function of a test file in a process of its own, and measures the memory and processor time that it takes.

A case is a function at the top of a test file. `measure_peak(case, ...)` returns by how much the resident memory grew
at most; `check_linear(case)` compares the processor time of two sizes. `RLIMIT_AS` is the backstop: a case that takes
the machine ends with `MemoryError` instead.

    def read(path: str) -> str: ...

    def test_a_file_is_read_in_bounded_memory(tmp_path: Path) -> None:
        assert measure_peak(read, str(tmp_path / "bomb")).bytes < 64 * MIB
"""

import asyncio
import gc
import importlib.util
import inspect
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs

__all__ = ["MIB", "Peak", "check_linear", "measure_peak", "measure_peaks"]

MIB = 1_048_576
ROOT = Path(__file__).parents[2]

_HEADROOM = 1024 * MIB
"""Bytes of address space that a case may take; the memory that it touches is measured apart from this."""
_SECONDS = 50
"""Processor time of one case after which the system ends its process; the runner ends one that only waits."""
_ENOUGH = 0.05
"""Seconds of processor time from which a measurement is more than noise."""
_ROUNDS = 20
_MIN_ROUNDS = 5
_GROWTH = 4
_RATIO = 6
"""How much the processor time may grow when the size grows fourfold: by 4 if the work is linear, by 16 if quadratic."""
_CLEAR_RATIOS = (5, 10)
"""Below the first and above the second, two rounds are enough."""


@attrs.frozen
class Peak:
    """What a case took and returned.

    Attributes:
        bytes: by how much the resident memory of its process grew at most.
        seconds: of processor time.
        value: what it returned, after JSON.
    """

    bytes: int
    seconds: float
    value: Any


def measure_peak(case: Callable[..., object], *arguments: object, address_space: int = _HEADROOM) -> Peak:
    """Run a case once and return its peak.

    Args:
        case: a function at the top of a test file, which may be a coroutine function; what it returns must fit JSON.
        arguments: of the case; they must fit JSON.
        address_space: bytes that the case may reserve before it fails with `MemoryError`.
    """
    (peak,) = measure_peaks(case, {"": arguments}, address_space=address_space).values()
    return peak


def measure_peaks(
    case: Callable[..., object], inputs: Mapping[str, Sequence[object]], *, address_space: int = _HEADROOM
) -> Mapping[str, Peak]:
    """Run a case with several inputs, one after the other in one process, and return the peak of each by its name.

    A peak counts from the start of the process: it includes what earlier inputs have left behind.
    """
    peaks = _run(_measure_peaks, [case], [list(inputs.values())], address_space)
    return {name: Peak(**peak) for name, peak in zip(inputs, peaks, strict=True)}


def check_linear(*cases: Callable[[int], Callable[[], object]], size: int = 64) -> None:
    """Check that the processor time of each case grows no faster than its size.

    Args:
        cases: functions at the top of a test file that prepare an input of a size and return the work on it, which
            may be a coroutine function and is called several times; only the work is measured.
        size: the first size tried; it is doubled until the work takes 50 milliseconds.
    """
    measured = _run(_measure_ratios, cases, [size], _HEADROOM)
    slow = {case.__name__: each for case, each in zip(cases, measured, strict=True) if each["ratio"] > _RATIO}
    assert not slow, f"the processor time is not linear: {slow}"


def _run(
    measure: Callable[..., object], cases: Sequence[Callable[..., object]], arguments: list[object], address_space: int
) -> list[dict[str, Any]]:
    names = [case.__name__ for case in cases]
    order = json.dumps([measure.__name__, inspect.getsourcefile(cases[0]), names, arguments, address_space])
    ended = subprocess.run(
        [sys.executable, "-m", "tests.support.bounded_process", order],
        cwd=ROOT,
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},  # others reserve gigabytes of address space
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise AssertionError(f"{', '.join(names)} ended with {ended.returncode}:\n{ended.stderr[-2_000:]}")
    return json.loads(ended.stdout.splitlines()[-1])  # type: ignore[no-any-return]  # what `_main` printed


def _main(order: str) -> None:
    measure, file, names, arguments, address_space = json.loads(order)
    module = _load(file)
    _limit_address_space(address_space)
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS * len(names), resource.RLIM_INFINITY))
    measured = globals()[measure]([getattr(module, name) for name in names], *arguments)
    print(json.dumps(measured))  # noqa: T201 - the answer to the parent


def _load(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("bounded_case", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _limit_address_space(headroom: int) -> None:
    used = _read_status().get("VmSize", 0)
    resource.setrlimit(resource.RLIMIT_AS, (used + headroom, resource.RLIM_INFINITY))


def _measure_peaks(cases: Sequence[Callable[..., object]], inputs: Sequence[Sequence[object]]) -> list[dict[str, Any]]:
    gc.collect()
    before = _read_peak()
    return [_measure_peak(case, arguments, before) for case in cases for arguments in inputs]


def _measure_peak(case: Callable[..., object], arguments: Sequence[object], before: int) -> dict[str, Any]:
    _reset_peak()
    with _time_work() as seconds:
        value = _call(case, *arguments)
    return {"bytes": max(0, _read_peak() - before), "seconds": seconds[0], "value": value}


def _reset_peak() -> None:
    """Have Linux count the most resident memory from now on, if it lets us; otherwise it is that of all inputs."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_bytes(b"5")


def _read_peak() -> int:
    """Return the most resident memory so far.

    `ru_maxrss` of a process that was started by a larger one may be that of its parent, so Linux is asked itself.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return _read_status().get("VmHWM", usage)


def _read_status() -> dict[str, int]:
    """Return the memory sizes that Linux reports of this process, in bytes."""
    if not os.path.exists("/proc/self/status"):  # noqa: PTH110 - no object is made before memory is measured
        return {}
    lines = [line.split() for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()]
    return {line[0].rstrip(":"): int(line[1]) * 1024 for line in lines if line[0].startswith("Vm")}


def _measure_ratios(cases: Sequence[Callable[[int], Callable[[], object]]], size: int) -> list[dict[str, Any]]:
    return [_measure_ratio(case, size) for case in cases]


def _measure_ratio(case: Callable[[int], Callable[[], object]], size: int) -> dict[str, Any]:
    work = case(size)
    while _time(work) < _ENOUGH:
        size *= 2
        work = case(size)
    larger = case(size * _GROWTH)
    small = large = float("inf")
    for number in range(_ROUNDS):
        small, large = min(small, _time(work)), min(large, _time(larger))
        if number + 1 >= _MIN_ROUNDS and large / small <= _RATIO:
            break  # the minimum of more rounds is needed only if others use the machine too
        if number and not _CLEAR_RATIOS[0] < large / small < _CLEAR_RATIOS[1]:
            break
    return {"size": size, "seconds": [small, large], "ratio": large / small}


def _time(work: Callable[[], object]) -> float:
    with _time_work() as seconds:
        _call(work)
    return seconds[0]


@contextmanager
def _time_work() -> Iterator[list[float]]:
    """Measure the processor time of the block, which is in the list afterwards."""
    seconds: list[float] = []
    start = time.process_time()
    yield seconds
    seconds.append(time.process_time() - start)


def _call(function: Callable[..., object], *arguments: object) -> object:
    result = function(*arguments)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


if __name__ == "__main__":
    _main(sys.argv[1])
