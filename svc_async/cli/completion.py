"""`svc-async completion`: complete commands and options in a shell."""

import re
import sys
from pathlib import Path
from typing import Literal

from svc_async.cli.app import app
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import Flag, JsonFlag
from svc_async.cli.output.console import say, show_json
from svc_async.private_files import needs_home, report_os_error

__all__ = ["completion"]

_COMPINIT = re.compile(r"(?:^|[;&|])\s*(?:then\s+|else\s+)?(?:compinit\b|(?:source|\.)\s.*oh-my-zsh\.sh)")
"""A command that has zsh load completions; `autoload` alone does not run it."""

_SPLIT_FILES = 'COMPREPLY=( $(compgen -f -- "${cur}") )'
_FILES_IN_BASH = r"""_svc_async_files() {
  local name typed="${cur#[\"\']}"
  typed="${typed//\\/}"
  COMPREPLY=()
  while IFS= read -r name; do
    COMPREPLY+=("$name")
  done < <(compgen -f -- "$typed")
  # Readline quotes the names of files itself where that is set, as bash from version 4 on can.
  compopt -o filenames 2>/dev/null && return
  for ((name = 0; name < ${#COMPREPLY[@]}; name++)); do
    COMPREPLY[name]="$(printf '%q' "${COMPREPLY[name]}")"
  done
}

"""


def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: Flag = False, as_json: JsonFlag = False) -> int:
    """Print the completion script of a shell, or install it for this user.

    To try it in bash: `source <(svc-async completion bash)`.

    Args:
        shell: bash, zsh or fish.
        install: Write the script to where the shell looks for it, and a line that loads it to ~/.bashrc or ~/.zshrc.
        as_json: Print only JSON.
    """
    if install:
        with needs_home(), report_os_error("completion", shell, "cannot be installed"):
            path = app.meta.install_completion(shell=shell)
            path.write_text(_generate(shell), encoding="utf-8")
        if as_json:
            show_json({"shell": shell, "path": str(path)})
        else:
            say(f"The script is in {path}; open a new shell to use it.")
            if shell == "zsh" and not _runs_compinit():
                say("compinit loads it: ~/.zshrc must run `autoload -Uz compinit && compinit`, as most do.")
        return Exit.DONE
    script = _generate(shell)
    if as_json:
        show_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(script)  # as it is: tabs and all
    return Exit.DONE


def _runs_compinit() -> bool:
    """Return whether the configuration of zsh loads completions: by itself, or by a framework that does."""
    try:
        text = (Path.home() / ".zshrc").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(_COMPINIT.search(line.partition("#")[0]) for line in text.splitlines())


def _generate(shell: Literal["bash", "zsh", "fish"]) -> str:
    """Return the script of cyclopts, mended.

    That of bash splits the names of files at blanks. Fish proposes files everywhere, also where only a command can
    follow.
    """
    script = app.meta.generate_completion(prog_name="svc-async", shell=shell)
    if shell == "bash":
        return _FILES_IN_BASH + script.replace(_SPLIT_FILES, "_svc_async_files")
    if shell == "zsh":
        return script
    groups = [name for name in app if not name.startswith("-") and app[name].default_command is None]
    places = ["__fish_use_subcommand", *(f"__fish_svc-async_using_command {name}" for name in groups)]
    return script + "".join(f"complete -c svc-async -n '{place}' -f\n" for place in places)
