import copy
import pickle

import pytest

from svc_async.ads.accounts import ApprovalStatus


def test_an_unknown_value_is_kept() -> None:
    value = ApprovalStatus("UNDER_REVIEW")

    assert str(value) == "UNDER_REVIEW"
    assert str(value.value) == "UNDER_REVIEW"
    assert not value.is_known
    assert value == ApprovalStatus("UNDER_REVIEW")
    assert len({value, ApprovalStatus("UNDER_REVIEW")}) == 1


def test_a_known_value_is_its_member() -> None:
    assert ApprovalStatus("ACCEPTED") is ApprovalStatus.ACCEPTED
    assert ApprovalStatus.ACCEPTED.is_known


def test_unknown_values_leave_no_trace_in_the_enum() -> None:
    ApprovalStatus("SOMETHING")
    assert [member.value for member in ApprovalStatus] == ["ACCEPTED"]


def test_unknown_values_can_be_copied_and_pickled() -> None:
    value = ApprovalStatus("UNDER_REVIEW")

    assert copy.deepcopy(value) == value
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize("value", [None, 1, b"ACCEPTED"])
def test_what_is_no_string_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        ApprovalStatus(value)  # type: ignore[arg-type]  # wrong on purpose
