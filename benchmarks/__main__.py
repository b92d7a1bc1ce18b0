"""Run the benchmarks: `python -m benchmarks [--quick | --full] [--only NAME] [--json PATH] [--markdown]`."""

import argparse
import importlib
import json
import os
import platform
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs

from benchmarks.measure import HAS_FAST_HASH, Figure, Scale
from svc_async.users.identifiers import HASH_LIBRARY

_BENCHMARKS: Mapping[str, tuple[str, str]] = {
    "fullness": ("benchmarks.fullness", "measure"),
    "limit": ("benchmarks.limit_use", "measure"),
    "leases": ("benchmarks.leases", "measure"),
    "emails": ("benchmarks.encode_rows", "measure_emails"),
    "four": ("benchmarks.encode_rows", "measure_four"),
    "upload": ("benchmarks.upload", "measure"),
    "scripts": ("benchmarks.upload", "measure_scripts"),
    "journal": ("benchmarks.journaled", "measure"),
    "sync": ("benchmarks.sync", "measure"),
    "pace": ("benchmarks.cpu_at_pace", "measure"),
    "memory": ("benchmarks.memory", "measure"),
    "get": ("benchmarks.small_get", "measure"),
    "signing": ("benchmarks.signing", "measure"),
    "page": ("benchmarks.pages", "measure"),
    "import": ("benchmarks.imports", "measure"),
}
_PACKAGES = ("svc-async", "aiohttp", "attrs", "authlib", "cattrs", "msgspec")
_WIDTH = 160
_COLUMNS = ("job", "settings", "figure", "lowest - highest", "target", "with fast", "verdict", "floor")


def main() -> None:
    """Measure, print the table, and write JSON if requested."""
    options = _parse_options()
    started = time.perf_counter()
    figures: list[Figure] = []
    for name in options.only or _BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        module, function = _BENCHMARKS[name]
        figures += getattr(importlib.import_module(module), function)(options.scale)
    print(f"{_describe_machine()}; {options.scale.value} run, {time.perf_counter() - started:.0f} s")
    (_print_markdown if options.markdown else _print_table)([_format_cells(figure) for figure in figures])
    if options.scale is Scale.QUICK:
        print("A quick run shows that everything works; its figures mean nothing.")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(_to_plain(figures, options.scale), indent=2) + "\n", encoding="utf-8")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare the SDK with plain code.")
    scale = parser.add_mutually_exclusive_group()
    for each in (Scale.QUICK, Scale.FULL):
        scale.add_argument(f"--{each.value}", dest="scale", action="store_const", const=each, help=_HELP[each])
    parser.set_defaults(scale=Scale.NORMAL)
    parser.add_argument("--only", action="append", choices=_BENCHMARKS, metavar="NAME", help=", ".join(_BENCHMARKS))
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/performance.md")
    return parser.parse_args()


_HELP = {
    Scale.QUICK: "a smoke run of some seconds, whose figures mean nothing",
    Scale.FULL: "ten million rows for fullness, memory and the sync",
}


def _format_cells(figure: Figure) -> tuple[str, ...]:
    spread = f"{figure.spread[0]:.2f} - {figure.spread[1]:.2f}" if figure.spread else ""
    targets = (f"{bound} {figure.unit}".strip() if bound else "" for bound in (figure.target, figure.fast_target))
    return figure.job, figure.settings, _format_number(figure), spread, *targets, figure.verdict, figure.floor


def _format_number(figure: Figure) -> str:
    if figure.unit == "x":
        return f"{figure.value:.2f}x"
    return f"{figure.value:.4g} {figure.unit}".strip()


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    try:
        from rich.console import Console  # noqa: PLC0415 - optional
        from rich.table import Table  # noqa: PLC0415 - optional
    except ImportError:
        _print_plain(rows)
        return
    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(*row, style="red" if "MISSED" in row else None)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)


def _print_plain(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    for row in (_COLUMNS, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_markdown(rows: Sequence[tuple[str, ...]]) -> None:
    for row in (_COLUMNS, ("---",) * len(_COLUMNS), *rows):
        print(f"| {' | '.join(row)} |")


def _describe_machine() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{python}, {platform.system()}, {_count_cores()} cores; SHA-256 by {_describe_hash()}"


def _describe_hash() -> str:
    return HASH_LIBRARY if HAS_FAST_HASH else f"{HASH_LIBRARY} with {ssl.OPENSSL_VERSION}"


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _to_plain(figures: Sequence[Figure], scale: Scale) -> dict[str, Any]:
    return {
        "scale": scale.value,
        "machine": {
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": _count_cores(),
            "sha256": _describe_hash(),
        },
        "versions": {package: version(package) for package in _PACKAGES},
        "figures": [_figure_to_plain(figure) for figure in figures],
    }


def _figure_to_plain(figure: Figure) -> dict[str, Any]:
    plain = attrs.asdict(figure, recurse=False)
    targets = {name: str(plain[name]) if plain[name] else None for name in ("target", "fast_target")}
    return {**plain, **targets, "verdict": figure.verdict}


if __name__ == "__main__":
    main()
