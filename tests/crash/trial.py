"""One job, however often its client is killed, and what the service holds in the end."""

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs

from tests.crash.client import Order, rows_of
from tests.crash.service import CALM, FAULTS, Service, serving

__all__ = ["Trial", "killed_while_late", "run"]

_ROOT = Path(__file__).parents[2]
_KILLED = -9


@attrs.frozen(kw_only=True)
class Trial:
    """What came of a job.

    Attributes:
        kills: how many times its client was killed.
        lost: keys that the service lacks.
        wrong: keys that it holds with another value than the last.
        again: rows that arrived more than once, as a share of all.
        report: the last client's report.
        happened: the faults.
    """

    kills: int
    lost: int
    wrong: int
    again: float
    report: Mapping[str, Any]
    happened: Mapping[str, int]

    @property
    def damaged(self) -> bool:
        """Whether anything is not as it must be."""
        return bool(self.lost or self.wrong)


async def run(
    folder: Path,
    seed: int,
    *,
    kills: int = 0,
    faults: Mapping[str, float] = FAULTS,
    late: float = 0.15,
    **order: Any,
) -> Trial:
    """Run a job to its end; kill its client so many times before, at places that the seed chooses."""
    dice = random.Random(seed)
    service = Service(faults, random.Random(dice.random()), late)
    journal = str(folder / f"{seed}.journal") if kills else None
    killed = 0
    async with serving(service) as address:
        ordered = Order(address=address, journal=journal, seed=seed, **order)
        while True:
            status, output = await _life(service, ordered, dice, mortal=killed < kills)
            if status != _KILLED:
                break
            killed += 1
        await asyncio.sleep(late)
    report = json.loads(output) if status == 0 else {}
    return _judged(service, ordered, killed, report)


async def killed_while_late(folder: Path, *, late: float, without: str = "") -> Trial:
    """Kill a client when its first request is held back, and let another take the job up: a worst case."""
    service = Service({"late": 1.0}, random.Random(0), late)
    async with serving(service) as address:
        order = Order(
            address=address, journal=str(folder / "journal"), seed=0, rows=100, keys=20, quarantine=late + 0.5
        )
        process = await _started(order)

        def kill(_: int) -> None:
            if service.happened["late"] and process.returncode is None:
                process.kill()
                service.faults = CALM

        service.on_event = kill
        await process.communicate()
        service.on_event = lambda _: None
        output, _ = await (await _started(attrs.evolve(order, without=without))).communicate()
        await asyncio.sleep(late)
    return _judged(service, order, 1, json.loads(output))


async def _started(order: Order) -> asyncio.subprocess.Process:
    words = ["-m", "tests.crash.client", json.dumps(attrs.asdict(order))]
    return await asyncio.create_subprocess_exec(sys.executable, *words, cwd=_ROOT, stdout=asyncio.subprocess.PIPE)


async def _life(service: Service, order: Order, dice: random.Random, *, mortal: bool) -> tuple[int, bytes]:
    """Run a client until it ends; one that is mortal is killed at an event of the service or of its journal."""
    place = dice.choice(["service", "journal", "journal"]) if mortal else "never"
    number = dice.randrange(1, 25)
    if place == "journal":
        order = attrs.evolve(order, die_at=number, die_after=dice.random() < 1 / 2)
    process = await _started(order)
    last = service.events + number

    def kill(event: int) -> None:
        if event == last and process.returncode is None:
            process.kill()

    service.on_event = kill if place == "service" else lambda _: None
    output, _ = await process.communicate()
    return process.returncode or 0, output


def _judged(service: Service, order: Order, kills: int, report: Mapping[str, Any]) -> Trial:
    rows = rows_of(order.seed, order.rows, order.keys)
    model = {row["partner_user_id"]: sha256(row["svc_id"].encode()).hexdigest() for row in rows}
    held = service.state
    return Trial(
        kills=kills,
        lost=len(model.keys() - held.keys()),
        wrong=sum(held[name] != value for name, value in model.items() if name in held),
        again=sum(times - 1 for times in service.sent.values()) / order.rows,
        report=report,
        happened=service.happened,
    )
