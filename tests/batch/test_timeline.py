import itertools

from svc_async.batch.report import Progress
from svc_async.batch.timeline import Timeline


def test_a_timeline_keeps_its_size_and_its_ends() -> None:
    timeline = Timeline()
    for second in range(100_000):
        timeline.add(Progress(seconds=float(second), accepted=second * 2, requests=second))
    whole = timeline.samples
    assert len(whole) < 600
    assert whole[0] == Progress()
    assert whole[-1] == Progress(seconds=99_999.0, accepted=199_998, requests=99_999)
    assert [sample.seconds for sample in whole] == sorted(sample.seconds for sample in whole)
    gaps = [later.seconds - sooner.seconds for sooner, later in itertools.pairwise(whole[1:-1])]
    assert max(gaps) <= 2 * min(gaps)
