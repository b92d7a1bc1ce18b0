"""Counts of rows, and the reports and the progress that have them."""

import itertools
import pickle

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svc_async.batch.report import KEPT_FAILURES, Accounting, Failure, Progress, Receipt, Report, Timeline, Wait
from svc_async.counts import Counts
from svc_async.monitoring import RowsEvent

NUMBERS = st.integers(0, 2**40)
OUTCOMES = ("accepted", "coalesced", "failed", "pending")


@st.composite
def complete_counts(draw: st.DrawFn) -> Counts:
    """Return counts in which every row that was read is accounted for."""
    outcomes = {name: draw(NUMBERS) for name in OUTCOMES}
    others = {name: draw(NUMBERS) for name in ("in_doubt", "requests", "partly_valid")}
    return Counts(read=sum(outcomes.values()), **outcomes, **others)


@pytest.mark.usefixtures("examples")
@given(complete_counts(), complete_counts())
def test_counts_add_up_if_every_row_that_was_read_is_accepted_coalesced_failed_or_pending(
    one: Counts, other: Counts
) -> None:
    assert one.adds_up
    assert (one + other).adds_up
    assert (one - other).adds_up
    assert one.settled == one.read - one.pending
    for name in ("read", *OUTCOMES):
        assert not (one + Counts(**{name: 1})).adds_up, name


@pytest.mark.usefixtures("examples")
@given(complete_counts(), complete_counts())
def test_counts_are_added_and_subtracted_one_by_one(one: Counts, other: Counts) -> None:
    total = one + other
    assert total.counts == {name: number + other.counts[name] for name, number in one.counts.items()}
    assert total == other + one
    assert (total - other, total - one) == (one, other)
    assert one + Counts() == one


@pytest.mark.usefixtures("examples")
@given(complete_counts())
def test_counts_are_the_same_after_they_were_pickled_or_stored(counts: Counts) -> None:
    for value in (
        counts,
        Report(**counts.counts, failures=[failure(1)]),
        Progress(**counts.counts, wait=Wait(until=5.0, after="HTTP 503"), phase="sending"),
    ):
        assert pickle.loads(pickle.dumps(value)) == value
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value)) == value


def test_reports_progress_and_events_have_the_same_counts() -> None:
    names = [*Counts().counts]
    for kind in (Report, Progress, RowsEvent):
        assert [field.name for field in attrs.fields(kind)][: len(names)] == names


def failure(position: int) -> Failure:
    return Failure(position, "email must be an e-mail address", "INVALID_ROW")


FIRST = Report(
    read=9, accepted=4, coalesced=1, failed=2, pending=2, in_doubt=1, requests=3, failures=(failure(1), failure(7))
)
SECOND = Report(read=4, accepted=3, failed=1, requests=2, failures=(failure(3),))


def test_the_sum_of_two_reports_counts_the_rows_of_both_and_keeps_failures_by_position() -> None:
    assert (
        Report(
            read=13,
            accepted=7,
            coalesced=1,
            failed=3,
            pending=2,
            in_doubt=1,
            requests=5,
            failures=(failure(1), failure(3), failure(7)),
        )
        == FIRST + SECOND
    )


def test_an_empty_report_changes_no_sum() -> None:
    assert FIRST + Report() == Report() + FIRST == FIRST


def test_a_sum_lists_no_more_failures_than_a_report_does() -> None:
    even = Report(failed=KEPT_FAILURES, failures=tuple(failure(2 * place) for place in range(KEPT_FAILURES)))
    odd = Report(failed=KEPT_FAILURES, failures=tuple(failure(2 * place + 1) for place in range(KEPT_FAILURES)))

    total = even + odd

    assert total.failed == 2 * KEPT_FAILURES
    assert [each.position for each in total.failures] == list(range(KEPT_FAILURES))


def test_the_report_of_a_job_that_was_cut_off_has_its_last_counts() -> None:
    progress = Progress(
        read=9, accepted=4, coalesced=1, failed=2, pending=2, in_doubt=1, requests=3, in_flight=1, rate_limited=1
    )

    assert Report.from_progress(progress, [failure(7), failure(1)]) == FIRST


def test_the_sum_of_two_progresses_is_that_of_one_part_after_the_other() -> None:
    removed = Progress(read=2, accepted=2, requests=1, seconds=3.0)
    sent = Progress(read=5, accepted=3, pending=2, requests=2, in_flight=1, in_doubt=2, rate_limited=1, seconds=1.5)

    assert removed + sent == Progress(
        read=7, accepted=5, pending=2, requests=3, in_flight=1, in_doubt=2, rate_limited=1, seconds=4.5
    )


def test_what_is_settled_and_pending_adds_up_to_what_was_read() -> None:
    earlier = Counts(read=5, accepted=3, coalesced=1, failed=1, requests=2)
    accounting = Accounting(earlier, failures=[Failure(4, "no", "NO")])
    accounting.counts += Counts(read=10)

    accounting.settle(Receipt(rows=3, accepted=2, failures=[Failure(1, "no", "NO")]))

    report = accounting.report(pending=7, in_doubt=0)
    assert (report.read, report.accepted, report.coalesced, report.failed, report.requests) == (15, 5, 1, 2, 2)
    assert [failure.position for failure in report.failures] == [1, 4]
    with pytest.raises(RuntimeError):
        accounting.report(pending=6, in_doubt=0)


@pytest.mark.parametrize("seconds", [5_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_timeline_keeps_its_size_and_its_ends(seconds: int) -> None:
    timeline = Timeline()
    for second in range(seconds):
        timeline.add(Progress(seconds=float(second), accepted=second * 2, requests=second))
    whole = timeline.samples
    assert len(whole) < 600
    assert whole[0] == Progress()
    assert whole[-1] == Progress(seconds=seconds - 1.0, accepted=2 * seconds - 2, requests=seconds - 1)
    assert [sample.seconds for sample in whole] == sorted(sample.seconds for sample in whole)
    gaps = [later.seconds - sooner.seconds for sooner, later in itertools.pairwise(whole[1:-1])]
    assert max(gaps) <= 2 * min(gaps)
