"""What another user of the machine can do to a cluster on it."""

import json

from distributed import Client

from svc_async.cluster.clients import start_local
from tests.support.another_user import run_as_another
from tests.support.cluster_jobs import open_cluster

_TAKE_OVER = "tests.campaigns.two_users.take_over"


async def _list_addresses(client: Client) -> list[str]:
    """Return the addresses of the workers and of those who watch them; the scheduler executes nothing by itself."""
    assert client.scheduler is not None
    workers = (await client.scheduler.identity())["workers"]
    nannies = [worker["nanny"] for worker in workers.values() if worker["nanny"]]
    return [*workers, *nannies]


async def test_another_user_runs_no_code_in_the_processes_of_a_local_cluster() -> None:
    async with start_local(1) as client:
        addresses = await _list_addresses(client)
        assert len(addresses) == 2
        assert json.loads(await run_as_another(_TAKE_OVER, "5", *addresses)) == [None, None]


async def test_the_attack_succeeds_where_there_is_no_tls() -> None:
    async with open_cluster() as client:
        addresses = await _list_addresses(client)
        assert json.loads(await run_as_another(_TAKE_OVER, "100", *addresses)) == [0, 0]
