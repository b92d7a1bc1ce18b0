"""As another user, exchanges a file in a folder and a link to a file of somebody else, over and over, until it ends.

python -m tests.campaigns.two_users.exchange FOLDER FILE
"""

import ctypes
import os
import sys
from pathlib import Path

from tests.support.another_user import become_another

_AT_FOLDER = -100
_EXCHANGE = 2


def _exchange(folder: Path, target: str) -> None:
    file, link = folder / "file", folder / "link"
    file.touch()
    file.chmod(0o777)
    link.symlink_to(target)
    os.write(sys.stdout.fileno(), b"ready\n")
    rename = ctypes.CDLL(None).renameat2
    names = os.fsencode(file), os.fsencode(link)
    while True:
        rename(_AT_FOLDER, names[0], _AT_FOLDER, names[1], _EXCHANGE)


if __name__ == "__main__":
    become_another()
    _exchange(Path(sys.argv[1]), sys.argv[2])
