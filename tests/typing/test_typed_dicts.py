"""The typed dictionaries have the keys of the models that they stand for."""

from typing import Any

import attrs
import pytest

from svc_async.ads import custom_audiences, dicts, do_not_reach_lists
from svc_async.ads.products import Product
from svc_async.wire.fields import list_field_names


@pytest.mark.parametrize(
    ("typed", "model", "without"),
    [
        (dicts.MemberDict, custom_audiences.AudienceUser, set()),
        (dicts.OperationDict, custom_audiences.AudienceUserOperation, set()),
        (dicts.OperationParamsDict, custom_audiences.AudienceUserOperationParams, set()),
        (dicts.DoNotReachMemberDict, do_not_reach_lists.DoNotReachUser, set()),
        (dicts.DoNotReachOperationDict, do_not_reach_lists.DoNotReachOperation, set()),
        (dicts.DoNotReachOperationParamsDict, do_not_reach_lists.DoNotReachOperationParams, set()),
        (dicts.ProductDict, Product, {"product_key"}),  # the service assigns it
    ],
)
def test_a_typed_dictionary_has_the_fields_of_its_model(typed: Any, model: Any, without: set[str]) -> None:
    assert typed.__required_keys__ | typed.__optional_keys__ == {*list_field_names(model)} - without
    assert typed.__required_keys__ == {each.name for each in attrs.fields(model) if each.default is attrs.NOTHING}
