"""One job: its clients are killed and started again until it has ended, and what the service then has is compared."""

import gc
import json
import os
import random
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, get_args

import attrs

from tests.campaigns.crash.client import Death, Life, Place, Result, Step, live
from tests.campaigns.crash.model import Damage
from tests.campaigns.crash.server import Hung, Server, Stopped
from tests.campaigns.crash.service import Service, draw_jump

__all__ = ["Job", "Setting", "Trial", "find_folder", "run_trial"]

_MOST_LIVES = 200
_CONTINUED = 0.5
"""The probability that a client that was stopped goes on after a life of another one."""


@attrs.frozen(kw_only=True)
class Setting:
    """The conditions of a trial.

    Attributes:
        kills: how many clients are killed or stopped at most.
        stops: the share of them that is stopped, and continued when others have done their work.
        jumps: whether the wall clock of the clients jumps.
        cancels: whether clients cancel their work, twice, before they do it.
        rests: whether time passes between two clients.
        prepare: changes a client before it begins; for controls.
        places: where clients are killed.
    """

    kills: int = 6
    stops: float = 0.0
    jumps: bool = True
    cancels: bool = True
    rests: bool = True
    prepare: Callable[[], None] = lambda: None
    places: Sequence[Place] = get_args(Place)


class Job(Protocol):
    """A job, and what it must come to."""

    @property
    def service(self) -> Service:
        """The service that it works on."""
        ...

    def next_step(self) -> Step | None:
        """Return what the next life does; None when the job has ended."""
        ...

    def take_result(self, result: Result) -> None:
        """Take the result of a life that ended by itself."""

    def find_damage(self) -> Damage:
        """Compare what the service has with what it must have."""
        ...


@attrs.define(kw_only=True)
class Trial:
    """What came of a job."""

    kills: Counter[str] = attrs.field(factory=Counter)
    stops: int = 0
    lives: int = 0
    cancelled: int = 0
    damage: Damage = attrs.field(factory=Damage)


@attrs.frozen
class _Client:
    """A process, and what it is connected by.

    Attributes:
        result: the pipe of its result.
        poke: the pipe by which it says that time has gone on.
    """

    pid: int
    result: int
    poke: tuple[int, int]

    def end(self) -> int:
        """Wait until it is over, and return its status."""
        _, status = os.waitpid(self.pid, 0)
        for end in (self.result, *self.poke):
            os.close(end)
        return status


@attrs.frozen
class _StoppedClient:
    """A client that may be continued.

    Attributes:
        how: what it left.
        life: its number among the lives of the trial.
    """

    client: _Client
    how: Stopped
    life: int


@attrs.define
class _Runner:
    job: Job
    setting: Setting
    dice: random.Random
    trial: Trial = attrs.field(factory=Trial)
    server: Server = attrs.field(init=False)
    stopped: "list[_StoppedClient]" = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.server = Server(self.job.service.world, self.job.service.handle)

    def run(self) -> Trial:
        try:
            self.job.service.world.boot(self.dice.uniform(0, 100_000))
            problems = [*self._live_on()]
        finally:
            for each in self.stopped:
                os.kill(each.client.pid, signal.SIGKILL)
                each.client.end()
            self.server.shut_down()
        service = self.job.service
        service.take_late_effects(float("inf"))
        damage = self.job.find_damage()
        self.trial.damage = attrs.evolve(damage, other=[*damage.other, *problems])
        return self.trial

    def _live_on(self) -> Iterator[str]:
        while (step := self.job.next_step()) is not None:
            self.trial.lives += 1
            if self.trial.lives > _MOST_LIVES:
                yield "the job does not come to an end"
                return
            try:
                # Not once the job has ended: a client that was stopped before it took up anything would do it anew.
                if self._is_replaced() and self.dice.random() < _CONTINUED:
                    yield from self._continue(self.stopped.pop(0))
                result = self._spend_life(step)
                if result is not None:
                    self.job.take_result(result)
                self._pass_time()
            except Hung:
                yield "a client hung"
                return

    def _is_replaced(self) -> bool:
        """Return whether a client has lived since the first of those that are stopped."""
        return bool(self.stopped) and self.stopped[0].life < self.trial.lives - 1

    def _spend_life(self, step: Step) -> Result | None:
        """Fork a client and serve it; return its result, or None if it was killed or stopped."""
        death = self._draw_death()
        cancellations = self._draw_cancellations()
        self.trial.cancelled += len(cancellations)
        world = self.job.service.world
        poke, result = os.pipe(), os.pipe()
        life = Life(
            world=world,
            port=self.server.port,
            poke=poke[1],
            step=step,
            prepare=self.setting.prepare,
            death=death,
            cancellations=cancellations,
            limit=self.job.service.limit,
            seed=self.dice.getrandbits(32),
        )
        pid = os.fork()
        if pid == 0:
            self._become_client(life, result[1])
        os.close(result[1])
        return self._serve(_Client(pid, result[0], poke), death)

    def _serve(self, client: "_Client", death: Death | None, before: Stopped | None = None) -> Result | None:
        """Serve a client until it ends or is stopped; return its result, or None if it was killed or stopped."""
        self.job.service.world.handled = 0
        self._watch_points(client.pid, death)
        try:
            output = self.server.serve(client.pid, client.result, client.poke[0], death, before)
        except Stopped as stopped:
            self.stopped.append(_StoppedClient(client, stopped, self.trial.lives))
            self.trial.stops += 1
            return None
        except Hung:
            client.end()
            raise
        status = client.end()
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) != signal.SIGKILL:
                return {"end": "failed", "why": signal.Signals(os.WTERMSIG(status)).name}
            self.trial.kills[death.place if death else "hung"] += 1
            return None
        return _read_result(output)

    def _continue(self, stopped: "_StoppedClient") -> Iterator[str]:
        """Let a client go on that was stopped, after others have done its work; what it does says nothing new."""
        os.kill(stopped.client.pid, signal.SIGCONT)
        result = self._serve(stopped.client, None, stopped.how)
        # A life may have been meant to be refused: that of another job with the same journal.
        is_right = result is None or result["end"] not in {"failed", "refused"} or "belongs to" in result["why"]
        if result is not None and not is_right:
            yield f"a client that was stopped {result['end']}: {result['why']}"
        self._pass_time()

    def _become_client(self, life: Life, output: int) -> None:
        try:
            self.server.close_in_child()
            live(life, output)
        except BaseException:  # noqa: BLE001 - there is nobody to raise it to
            os.write(output, json.dumps({"end": "failed", "why": traceback.format_exc()}).encode())
        finally:
            os._exit(0)

    def _watch_points(self, pid: int, death: Death | None) -> None:
        left = death.number if death is not None else 0

        def on_point(place: str) -> None:
            nonlocal left
            if death is not None and death.place == place:
                left -= 1
                if left == 0:
                    os.kill(pid, death.signal)

        self.server.on_point = self.job.service.on_point = on_point

    def _draw_death(self) -> Death | None:
        if sum(self.trial.kills.values()) + self.trial.stops >= self.setting.kills:
            return None
        places = self.setting.places
        place: Place = self.dice.choice([*places, *(place for place in places if place == _WORST)])
        number = min(self.dice.randrange(1, _FARTHEST[place]) for _ in range(2))
        is_stopped = self.dice.random() < self.setting.stops
        return Death(place, number, signal.SIGSTOP if is_stopped else signal.SIGKILL)

    def _draw_cancellations(self) -> tuple[tuple[int, int], ...]:
        if not self.setting.cancels or self.dice.random() < 0.75:
            return ()
        return tuple((self.dice.randrange(300), self.dice.randrange(4)) for _ in range(self.dice.randint(1, 2)))

    def _pass_time(self) -> None:
        """Let time pass between two lives, after which the clock may be another."""
        world, dice = self.job.service.world, self.dice
        if self.setting.rests:
            world.time += dice.choice([0.0, 0.0, dice.uniform(0, 60), dice.uniform(0, 400)])
        if dice.random() < 0.1 and not self.stopped:  # which would end them
            world.boot(dice.choice([0.0, dice.uniform(0, 60)]))
        if self.setting.jumps and dice.random() < self.job.service.jumps_between:
            world.jump = draw_jump(dice)


_WORST: Place = "late"
"""Chosen twice as often as each of the others."""
_FARTHEST: Mapping[Place, int] = {
    "commit": 16,
    "statement": 60,
    "connected": 12,
    "received": 12,
    "applied": 12,
    "late": 4,
    "answered": 12,
    "moment": 60,
}
"""How far a kill is from the beginning of a life at most."""


def _read_result(output: bytes) -> Result:
    try:
        result: dict[str, Any] = json.loads(output)
    except ValueError:
        return {"end": "failed", "why": "the client ended without a result"}
    return result


def run_trial(job: Job, setting: Setting, seed: int) -> Trial:
    """Run a job to its end."""
    gc.freeze()  # the clients share this memory as long as nobody touches it
    return _Runner(job, setting, random.Random(seed)).run()


def find_folder() -> Path | None:
    """Return where files are cheap, if there is such a place: in memory, since it is processes that die here."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    return memory if memory.is_dir() else None
