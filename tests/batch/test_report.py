from svc_async.batch.report import KEPT_FAILURES, Failure, Progress, Report


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
