"""What an input may take: it is read or refused, within two seconds of processor time and 400 MiB of memory."""

import traceback
from collections.abc import Mapping
from pathlib import Path

from svc_async.errors import SvcError
from tests.campaigns.fuzz.targets import TARGETS
from tests.support.bounded_process import MIB, Peak, measure_peaks

__all__ = ["CORPUS", "MAX_BYTES", "MAX_INPUT", "MAX_SECONDS", "find_faults"]

CORPUS = Path(__file__).parent / "corpus"
"""Inputs in a folder for each target: ordinary ones, from which others are made, and those that were faults once."""
MAX_INPUT = 65_536
MAX_SECONDS = 2.0
MAX_BYTES = 400 * MIB


def read(target: str, path: str) -> str:
    """Read an input; return the end of the traceback if it raised another error than one of the library."""
    try:
        TARGETS[target](Path(path).read_bytes())
    except SvcError:
        pass
    except Exception:  # noqa: BLE001 - whatever it is, it is told
        return traceback.format_exc(limit=-2)
    return ""


def find_faults(target: str, inputs: list[Path]) -> Mapping[str, str]:
    """Read inputs in another process and return what was wrong with some of them, by their names."""
    try:
        peaks = measure_peaks(read, {path.name: [target, str(path)] for path in inputs})
    except AssertionError as error:  # the process was ended
        if len(inputs) == 1:
            return {inputs[0].name: str(error)}
        return {name: fault for path in inputs for name, fault in find_faults(target, [path]).items()}
    return {name: fault for name, peak in peaks.items() if (fault := _describe(peak))}


def _describe(peak: Peak) -> str:
    if peak.seconds > MAX_SECONDS:
        return f"took {peak.seconds:.1f} s"
    return f"took {peak.bytes / MIB:,.0f} MiB" if peak.bytes > MAX_BYTES else str(peak.value)
