"""How a job went on over time, in a fixed number of samples."""

import attrs

from svc_async.batch.report import Progress

__all__ = ["Sample", "Timeline"]

_MOST = 512


@attrs.frozen
class Sample:
    """How far a job was at one moment.

    Attributes:
        seconds: since it began.
        accepted: rows that the service had confirmed.
        requests: how many times a request had been sent.
        rate_limited: answers that had said 429.
    """

    seconds: float
    accepted: int
    requests: int
    rate_limited: int


@attrs.define
class Timeline:
    """The samples of a job. When there are too many, every second one goes and the next ones are further apart."""

    samples: list[Sample] = attrs.field(factory=list[Sample], init=False)
    _pause: float = attrs.field(default=0.05, init=False)
    _before: Sample = attrs.field(default=Sample(0.0, 0, 0, 0), init=False)
    _last: Sample = attrs.field(default=Sample(0.0, 0, 0, 0), init=False)

    def add(self, progress: Progress) -> None:
        """Take note of a progress. Counts that begin anew are those of a further part of the job."""
        last, before = self._last, self._before
        if progress.seconds + before.seconds < last.seconds:
            self._before = before = last
        self._last = Sample(
            before.seconds + progress.seconds,
            before.accepted + progress.accepted,
            before.requests + progress.requests,
            before.rate_limited + progress.rate_limited,
        )
        if not self.samples or self._last.seconds >= self.samples[-1].seconds + self._pause:
            self._keep(self._last)

    def whole(self) -> list[Sample]:
        """Give the samples, from the beginning to the last progress."""
        return [Sample(0.0, 0, 0, 0), *self.samples, self._last]

    def _keep(self, sample: Sample) -> None:
        self.samples.append(sample)
        if len(self.samples) >= _MOST:
            self.samples = self.samples[::2]
            self._pause = sample.seconds / len(self.samples)
