"""One job whose client is killed and restarted, and the state of the service in the end."""

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from tests.crash.client import Order, make_rows
from tests.crash.service import CALM, FAULTS, Service, serve

__all__ = ["CONTROLS", "Trial", "run_job", "run_while_late"]

_ROOT = Path(__file__).parents[2]
_KILLED = -9

CONTROLS: Mapping[str, Mapping[str, Any]] = {
    "lanes": {"faults": {"late": 0.2, "503": 0.2}, "keys": 30, "rows": 300},
    "counts": {"faults": {"wrong counts": 0.3}, "rows": 300},
    "quarantine": {"faults": {"late": 0.3}, "keys": 30, "rows": 300},
}
"""Jobs that do damage without this protection."""


@attrs.frozen(kw_only=True)
class Trial:
    """The result of a job.

    Attributes:
        kills: how many times its client was killed.
        lost: keys that the service does not have.
        wrong: keys whose value is not the last one.
        resent: rows that arrived more than once, as a share of all.
        report: the last client's report.
        faults_seen: how often each fault was chosen.
    """

    kills: int
    lost: int
    wrong: int
    resent: float
    report: Mapping[str, Any]
    faults_seen: Mapping[str, int]

    @property
    def damaged(self) -> bool:
        """Whether rows were lost or have wrong values."""
        return bool(self.lost or self.wrong)


async def run_job(
    folder: Path,
    seed: int,
    *,
    kills: int = 0,
    faults: Mapping[str, float] = FAULTS,
    late: float = 0.15,
    **order: Any,
) -> Trial:
    """Run a job to its end; before that, kill its client some times, at moments that the seed chooses."""
    dice = random.Random(seed)
    service = Service(faults, random.Random(dice.random()), late)
    journal = str(folder / f"{seed}.journal") if kills else None
    killed = 0
    async with serve(service) as address:
        ordered = Order(address=address, journal=journal, seed=seed, **order)
        while True:
            status, output = await _run_client(service, ordered, dice, mortal=killed < kills)
            if status != _KILLED:
                break
            killed += 1
        await asyncio.sleep(late)
    report = json.loads(output) if status == 0 else {}
    return _evaluate(service, ordered, killed, report)


async def run_while_late(folder: Path, *, late: float, without: str = "") -> Trial:
    """Kill a client whose first request will be applied late, and let another resume the job: the worst case."""
    service = Service({"late": 1.0}, random.Random(0), late)
    async with serve(service) as address:
        order = Order(
            address=address, journal=str(folder / "journal"), seed=0, rows=100, keys=20, quarantine=late + 0.5
        )
        process = await _start(order)

        def kill(_: int) -> None:
            if service.faults_seen["late"] and process.returncode is None:
                process.kill()
                service.faults = CALM

        service.on_event = kill
        await process.communicate()
        service.on_event = lambda _: None
        output, _ = await (await _start(attrs.evolve(order, without=without))).communicate()
        await asyncio.sleep(late)
    return _evaluate(service, order, 1, json.loads(output))


async def _start(order: Order) -> asyncio.subprocess.Process:
    arguments = ["-m", "tests.crash.client", json.dumps(attrs.asdict(order))]
    return await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=_ROOT, stdout=asyncio.subprocess.PIPE)


async def _run_client(service: Service, order: Order, dice: random.Random, *, mortal: bool) -> tuple[int, bytes]:
    """Run a client until it ends; a mortal one is killed at an event of the service or a commit of its journal."""
    place = dice.choice(["service", "journal", "journal"]) if mortal else "never"
    number = dice.randrange(1, 25)
    if place == "journal":
        order = attrs.evolve(order, die_at=number, die_after=dice.random() < 1 / 2)
    process = await _start(order)
    last = service.events + number

    def kill(event: int) -> None:
        if event == last and process.returncode is None:
            process.kill()

    service.on_event = kill if place == "service" else lambda _: None
    output, _ = await process.communicate()
    return process.returncode or 0, output


def _evaluate(service: Service, order: Order, kills: int, report: Mapping[str, Any]) -> Trial:
    rows = make_rows(order.seed, order.rows, order.keys)
    model = {row["partner_user_id"]: sha256(row["svc_id"].encode()).hexdigest() for row in rows}
    state = service.state
    return Trial(
        kills=kills,
        lost=len(model.keys() - state.keys()),
        wrong=sum(state[name] != value for name, value in model.items() if name in state),
        resent=sum(times - 1 for times in service.sent.values()) / order.rows,
        report=report,
        faults_seen=service.faults_seen,
    )
