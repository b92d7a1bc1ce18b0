"""As another user, has the processes of a cluster execute a function: prints the users with whose rights they did it.

python -m tests.campaigns.two_users.take_over ADDRESS...
"""

import asyncio
import json
import logging
import os
import pickle
import sys

from dask import config
from distributed.comm.core import CommClosedError
from distributed.core import rpc
from distributed.security import Security

from tests.support.another_user import become_another

_SECONDS = 3


async def _take_over(address: str) -> list[int]:
    """Return the users of the processes that have executed a function, without certificates and with made-up ones."""
    found = []
    for protocol, security in (("tcp", Security()), ("tls", Security.temporary())):
        remote = rpc(
            f"{protocol}://{address.partition('://')[2]}",
            connection_args=security.get_connection_args("client"),
            timeout=_SECONDS,
        )
        try:
            async with asyncio.timeout(2 * _SECONDS):
                answer = await remote.run(function=pickle.dumps(os.getuid))
            found.append(answer["result"])
        except (OSError, TimeoutError, CommClosedError):
            pass
        finally:
            await remote.close_rpc()
    return found


async def _main(addresses: list[str]) -> None:
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with config.set({"distributed.comm.retry.count": 0}):
        print(json.dumps([await _take_over(address) for address in addresses]))  # noqa: T201 - its result


if __name__ == "__main__":
    become_another()
    asyncio.run(_main(sys.argv[1:]))
