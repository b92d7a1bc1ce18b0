"""What came of many trials, as plain figures that add up."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.campaigns.crash.service import Service
from tests.campaigns.crash.trial import Trial

__all__ = ["Figures", "find_commit", "read_figures"]

Counts = Mapping[str, int]


def _count(given: Mapping[str, int] | Iterable[str] = ()) -> "Counter[str]":
    return Counter(given)


@attrs.define(kw_only=True)
class Figures:
    """What came of some trials.

    Attributes:
        commits: what was tested; `+` marks changes that are not committed.
        seeds: the seeds of the runs.
        seconds: how long they took.
        jobs: by kind.
        kills: by kind of job.
        places: kills by where the client was.
        totals: lives, cancellations and requests; late effects, and those of them that came after a later request.
        fates: requests by what became of them.
        damage: jobs with damage, by kind of job and of damage.
        examples: the first of them.
        controls: what came of jobs, by the protection that was removed.
    """

    commits: list[str] = attrs.field(factory=list)
    seeds: list[int] = attrs.field(factory=list)
    seconds: float = 0.0
    jobs: Counter[str] = attrs.field(factory=Counter, converter=_count)
    kills: Counter[str] = attrs.field(factory=Counter, converter=_count)
    places: Counter[str] = attrs.field(factory=Counter, converter=_count)
    totals: Counter[str] = attrs.field(factory=Counter, converter=_count)
    fates: Counter[str] = attrs.field(factory=Counter, converter=_count)
    damage: Counter[str] = attrs.field(factory=Counter, converter=_count)
    examples: list[str] = attrs.field(factory=list)
    controls: Mapping[str, Counts] = attrs.field(factory=dict)

    def add_trial(self, kind: str, seed: int, trial: Trial, service: Service) -> None:
        """Add a trial."""
        self.jobs[kind] += 1
        self.kills[kind] += sum(trial.kills.values())
        self.places += trial.kills
        self.totals += Counter(
            {
                "lives": trial.lives,
                "stops": trial.stops,
                "cancellations": trial.cancelled,
                "requests": service.requests,
                "late effects": service.late,
                "late effects that crossed": service.crossed,
                "over the limit": service.over_limit,
            }
        )
        self.fates += service.fates
        for name, words in attrs.asdict(trial.damage).items():
            if words:
                self.damage[f"{kind}: {name}"] += 1
                self.examples.append(f"{kind}:{seed} {name}: {words[0]}"[:600])

    def __add__(self, other: "Figures") -> "Figures":
        """Return both together."""
        controls = {
            name: _count(self.controls.get(name, {})) + _count(other.controls.get(name, {}))
            for name in {**self.controls, **other.controls}
        }
        return Figures(
            commits=sorted({*self.commits, *other.commits}),
            seeds=sorted({*self.seeds, *other.seeds}),
            seconds=self.seconds + other.seconds,
            jobs=self.jobs + other.jobs,
            kills=self.kills + other.kills,
            places=self.places + other.places,
            totals=self.totals + other.totals,
            fates=self.fates + other.fates,
            damage=self.damage + other.damage,
            examples=[*self.examples, *other.examples][:20],
            controls=controls,
        )

    @property
    def good(self) -> bool:
        """Whether there was no damage but in the controls, each of which did some."""
        return not self.damage and all(map(_does_damage, self.controls.values()))

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(attrs.asdict(self), sort_keys=True)

    def describe(self) -> str:
        """Return a summary in words."""
        kinds = ", ".join(f"{count} of {kind} in {self.jobs[kind]} jobs" for kind, count in sorted(self.kills.items()))
        requests = self.totals["requests"] or 1
        late, crossed = [self.totals[f"late effects{what}"] / requests for what in ("", " that crossed")]
        damage = ", ".join(f"{count} x {name}" for name, count in sorted(self.damage.items())) or "none"
        controls = [f"without {name}: {_describe_control(counts)}" for name, counts in self.controls.items()]
        return "\n".join(
            [
                f"commits {', '.join(self.commits)}; seeds {', '.join(map(str, self.seeds))}; {self.seconds:.0f} s",
                f"{sum(self.kills.values())} kills: {kinds}",
                f"{self.totals['stops']} stopped, replaced and continued",
                f"where: {', '.join(f'{count} {place}' for place, count in self.places.most_common())}",
                f"{requests} requests; late effects: {late:.1%}, {crossed:.1%} after a later request",
                f"jobs with damage: {damage}",
                *self.examples,
                *controls,
            ]
        )


def _does_damage(counts: Counts) -> bool:
    """Return whether jobs did damage without a protection, and none with it."""
    return bool(counts.get("with damage")) and not counts.get("with damage though protected")


def _describe_control(counts: Counts) -> str:
    found = ", ".join(f"{counts.get(what, 0)} {what}" for what in ("lost", "wrong", "extra"))
    if refused := counts.get("refused"):
        found += f", {refused} states that can no longer be used"
    protected = counts.get("with damage though protected", 0)
    words = f"{counts.get('with damage', 0)} of {counts.get('jobs', 0)} jobs with damage: {found}"
    return f"{words}; {protected} though protected" if protected else words


def read_figures(paths: Iterable[str]) -> Figures:
    """Return the sum of the lines in files."""
    lines = [line for path in paths for line in Path(path).read_text().splitlines() if line.startswith("{")]
    parts: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return sum((Figures(**part) for part in parts), Figures())


def find_commit() -> str:
    """Return the commit that is checked out."""
    commit = _run_git("rev-parse", "--short=12", "HEAD").strip() or "unknown"
    return commit + ("+" if _run_git("status", "--porcelain") else "")


def _run_git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False).stdout
