"""`svc-async completion`: complete commands and options in a shell."""

import sys
from typing import Literal

from svc_async.cli.app import app
from svc_async.cli.exit_codes import Exit
from svc_async.cli.options import Flag, JsonFlag
from svc_async.cli.output.console import say
from svc_async.cli.output.json_output import show_json

__all__ = ["completion"]


def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: Flag = False, as_json: JsonFlag = False) -> int:
    """Print the completion script of a shell, or install it for this user.

    To try it in bash: `source <(svc-async completion bash)`.

    Args:
        shell: bash, zsh or fish.
        install: Write the script to where the shell looks for it, and a line that loads it to ~/.bashrc or ~/.zshrc.
        as_json: Print only JSON.
    """
    if install:
        path = app.meta.install_completion(shell=shell)
        if as_json:
            show_json({"shell": shell, "path": str(path)})
        else:
            say(f"The script is in {path}; open a new shell to use it.")
            if shell == "zsh":
                say("compinit loads it: ~/.zshrc must run `autoload -Uz compinit && compinit`, as most do.")
        return Exit.DONE
    script = app.meta.generate_completion(prog_name="svc-async", shell=shell)
    if as_json:
        show_json({"shell": shell, "script": script})
    else:
        sys.stdout.write(script)  # as it is: tabs and all
    return Exit.DONE
