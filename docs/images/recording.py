"""Writes recording.svg beside it: an upload that is killed and resumed, as a terminal shows it.

The run is real: a shell in a pseudo-terminal, the command, and a sandbox in this process. Only pauses are shortened.
The quarantine is five seconds, not two minutes as by default. Run it with
`PYTHONPATH=. uv run --no-project --with pyte --with-editable ".[cli]" docs/images/recording.py`.
"""

import html
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

import attrs
import pyte

from tests.support.sandbox_thread import run_sandbox

PICTURE = Path(__file__).with_suffix(".svg")
COLUMNS, LINES = 92, 24
ROWS = 500_000
LONGEST_PAUSE = 1.2
"""Seconds; longer ones are shortened to it."""
STEP = 0.15
"""Seconds between two pictures, at least."""
_UPLOAD = (
    "svc-async audience upload customers.csv --account $ACCOUNT --audience $AUDIENCE \\",
    "    --journal upload.journal --quarantine 5",
)


@attrs.define
class Terminal:
    """A shell in a pseudo-terminal, and what it wrote when."""

    shell: subprocess.Popen[bytes]
    end: int
    chunks: list[tuple[float, bytes]] = attrs.field(factory=list)

    def type(self, text: str) -> None:
        """Type a line as a person does, and press Enter."""
        for letter in text:
            os.write(self.end, letter.encode())
            self.read(0.01)
        os.write(self.end, b"\n")

    def read(self, seconds: float) -> None:
        """Record what is written within some seconds."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if select.select([self.end], [], [], left)[0]:
                self.chunks.append((time.monotonic(), os.read(self.end, 65536)))

    def read_until(self, has_come: Callable[[str], bool], *, limit: float = 300.0) -> None:
        """Record until what was written since then fulfils a condition.

        Raises:
            TimeoutError: it did not.
        """
        since, until = len(self.chunks), time.monotonic() + limit
        while not has_come(b"".join(chunk for _, chunk in self.chunks[since:]).decode(errors="replace")):
            if time.monotonic() > until:
                raise TimeoutError(f"the command shows something else after {limit:g} s")
            self.read(0.05)


def count_accepted(text: str) -> int:
    """Return the last count of accepted rows that the command has shown."""
    counts = re.findall(r"([\d,]+)\saccepted", text)
    return int(counts[-1].replace(",", "")) if counts else 0


def record(folder: Path, environment: Mapping[str, str]) -> list[tuple[float, bytes]]:
    """Upload, kill, ask for the status and resume; return what the terminal showed."""
    inner, outer = pty.openpty()
    ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    ids = {"ACCOUNT": environment["ACCOUNT_ID"], "AUDIENCE": environment["AUDIENCE_ID"]}
    variables = {**os.environ, **environment, **ids, "PS1": "$ ", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],  # noqa: S607 - the one of this machine
        stdin=outer,
        stdout=outer,
        stderr=outer,
        cwd=folder,
        env=variables,
        start_new_session=True,
    )
    os.close(outer)
    terminal = Terminal(shell, inner)
    terminal.read(1)
    for line in _UPLOAD:
        terminal.type(line)
    terminal.read_until(lambda text: count_accepted(text) > ROWS / 3)
    kill_command(shell.pid)
    terminal.read(2)
    for command in ("svc-async job status upload.journal", "svc-async job resume upload.journal"):
        terminal.type(command)
        terminal.read_until(lambda text: text.endswith("$ "))
        terminal.read(2)
    shell.kill()
    return terminal.chunks


def kill_command(shell: int) -> None:
    """Kill the command that a shell runs, as the kernel does when memory is short."""
    found = subprocess.run(["pgrep", "-P", str(shell)], capture_output=True, text=True, check=True)  # noqa: S603, S607 - of this machine
    for process in found.stdout.split():
        os.kill(int(process), signal.SIGKILL)


Cells = tuple[tuple[str, str, bool], ...]
"""The cells of a line in runs: text, colour, bold."""


def take_pictures(chunks: Sequence[tuple[float, bytes]]) -> Iterator[tuple[float, Sequence[Cells]]]:
    """Yield the screens that differ, each with the seconds for which it is shown."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    shown, last = 0.0, None
    for (at, chunk), (following, _) in zip(chunks, [*chunks[1:], (chunks[-1][0] + 4, b"")], strict=True):
        stream.feed(chunk)
        shown += min(following - at, LONGEST_PAUSE)
        if shown >= STEP:
            picture = [read_line(screen, number) for number in range(LINES)]
            if picture != last or following - at > STEP:
                yield shown, picture
                shown, last = 0.0, picture


def read_line(screen: pyte.Screen, number: int) -> Cells:
    """Return a line of the screen."""
    runs: list[tuple[str, str, bool]] = []
    for column in range(COLUMNS):
        cell = screen.buffer[number][column]
        if runs and runs[-1][1:] == (cell.fg, cell.bold):
            runs[-1] = (runs[-1][0] + cell.data, cell.fg, cell.bold)
        else:
            runs.append((cell.data, cell.fg, cell.bold))
    while runs and not runs[-1][0].strip():
        runs.pop()
    return tuple(runs)


_COLOURS = {
    "default": "#d4d7de",
    "black": "#8a90a0",
    "red": "#ff8080",
    "green": "#7fd88f",
    "brown": "#e5c76b",
    "blue": "#82aaff",
    "magenta": "#d7a0ff",
    "cyan": "#7fd7d7",
    "white": "#ffffff",
}
_WIDTH, _HEIGHT = 8.43, 18
_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"
 aria-label="A terminal: an upload of {rows:,} rows is killed, its status is shown, it is resumed and ends">
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre }}
.b {{ font-weight: bold }}
#film {{ transform: translateY(-{last}px); animation: film {seconds:.1f}s steps(1, end) infinite }}
@keyframes film {{ {frames} }}
@media (prefers-reduced-motion: reduce) {{ #film {{ animation: none }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#1b1e27"/>
<defs>
{lines}
</defs>
<svg x="14" y="12" width="{inner_width}" height="{inner_height}" viewBox="0 0 {inner_width} {inner_height}">
<g id="film">
{pictures}
</g>
</svg>
</svg>
"""


def write_svg(pictures: Sequence[tuple[float, Sequence[Cells]]]) -> str:
    """Return an SVG that shows pictures one after the other, or the last one where nothing moves.

    They are a film that is moved behind a window.
    """
    height, width = LINES * _HEIGHT, int(COLUMNS * _WIDTH)
    seconds = sum(shown for shown, _ in pictures)
    numbers: dict[Cells, int] = {}
    frames, uses, begun = [], [], 0.0
    for number, (shown, picture) in enumerate(pictures):
        frames.append(f"{100 * begun / seconds:.3f}% {{ transform: translateY(-{number * height}px) }}")
        begun += shown
        for row, cells in enumerate(picture):
            if cells:
                line = numbers.setdefault(cells, len(numbers))
                uses.append(f'<use href="#l{line}" y="{number * height + row * _HEIGHT + 14}"/>')
    return _HEAD.format(
        rows=ROWS,
        width=width + 28,
        height=height + 24,
        inner_width=width,
        inner_height=height,
        seconds=seconds,
        frames=" ".join(frames),
        last=(len(pictures) - 1) * height,
        pictures="\n".join(uses),
        lines="\n".join(write_line(cells, number) for cells, number in numbers.items()),
    )


def write_line(cells: Cells, number: int) -> str:
    """Return a line that pictures refer to."""
    spans, column = [], 0
    for text, colour, bold in cells:
        if text.strip():
            fill = _COLOURS.get(colour, f"#{colour}")
            kind = ' class="b"' if bold else ""
            width = len(text) * _WIDTH
            place = f'x="{column * _WIDTH:.1f}" textLength="{width:.1f}"'
            spans.append(f'<tspan {place} fill="{fill}"{kind}>{html.escape(text)}</tspan>')
        column += len(text)
    return f'<text id="l{number}">{"".join(spans)}</text>'


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as name, run_sandbox() as environment:
        folder = Path(name)
        with (folder / "customers.csv").open("w", encoding="utf-8") as file:
            file.write("email\n")
            file.writelines(f"customer{number}@example.com\n" for number in range(ROWS))
        chunks = record(folder, environment)
    PICTURE.write_text(write_svg(list(take_pictures(chunks))), encoding="utf-8")


if __name__ == "__main__":
    main()
