"""As another user, connects to a socket in the file system: prints whether that was possible.

python -m tests.campaigns.two_users.connect SOCKET
"""

import json
import socket
import sys

from tests.support.another_user import become_another


def _connect(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except PermissionError:
            return False
        return True


if __name__ == "__main__":
    become_another()
    print(json.dumps(_connect(sys.argv[1])))  # noqa: T201 - its result
