"""As another user, has the processes of a cluster execute a function: prints the users with whose rights they did it.

    python -m tests.campaigns.two_users.take_over SECONDS ADDRESS...

A process that refuses is tried for as many seconds: Dask connects again and again.
"""

import asyncio
import json
import logging
import os
import pickle
import sys

from distributed.core import rpc
from distributed.security import Security

from tests.support.another_user import become_another


async def _take_over(address: str, seconds: float) -> int | None:
    """Return the user of a process that has executed a function, without certificates or with made-up ones."""
    for protocol, security in (("tcp", Security()), ("tls", Security.temporary())):
        remote = rpc(
            f"{protocol}://{address.partition('://')[2]}",
            connection_args=security.get_connection_args("client"),
            timeout=seconds,
        )
        try:
            async with asyncio.timeout(seconds):
                return int((await remote.run(function=pickle.dumps(os.getuid)))["result"])
        except (OSError, TimeoutError):
            pass
        finally:
            await remote.close_rpc()
    return None


async def _main(seconds: float, addresses: list[str]) -> None:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    print(json.dumps([await _take_over(address, seconds) for address in addresses]))  # noqa: T201 - its result


if __name__ == "__main__":
    become_another()
    asyncio.run(_main(float(sys.argv[1]), sys.argv[2:]))
