"""Typed dictionaries for what callers write by hand, so that type checkers see a wrong key.

Every method that takes mappings takes these. They also take any other mapping, because rows come from files and
databases as plain dictionaries; annotate what you write: `members: list[MemberDict] = [{"email": ...}]`.
"""

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NotRequired, Required

from svc_async.ads.vocabulary import BatchOperationType

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:  # pydantic refuses those of typing before Python 3.12
    from typing_extensions import TypedDict

__all__ = [
    "DoNotReachMemberDict",
    "DoNotReachOperationDict",
    "DoNotReachOperationParamsDict",
    "MemberDict",
    "OperationDict",
    "OperationParamsDict",
    "ProductDict",
]

Values = str | Sequence[str] | None
"""One value or several."""


class DoNotReachMemberDict(TypedDict, total=False):
    """A user of a do-not-reach list, by any of its identifiers."""

    email: Values
    phone_number: Values


class MemberDict(DoNotReachMemberDict, total=False):
    """A member of a custom audience, by any of its identifiers."""

    device_id: Values
    handle: Values
    svc_id: Values
    partner_user_id: Values


class OperationParamsDict(TypedDict):
    """The users of one operation, and the time in which they belong to the audience."""

    users: Sequence[MemberDict]
    effective_at: NotRequired[datetime | str | None]
    expires_at: NotRequired[datetime | str | None]


class OperationDict(TypedDict):
    """One operation on the users of a custom audience."""

    operation_type: Literal["Update", "Delete"] | BatchOperationType
    params: OperationParamsDict


class DoNotReachOperationParamsDict(TypedDict):
    """The users of one operation on a do-not-reach list, and until when they are on it."""

    users: Sequence[DoNotReachMemberDict]
    expires_at: NotRequired[datetime | str | None]


class DoNotReachOperationDict(TypedDict):
    """One operation on the users of a do-not-reach list."""

    operation_type: Literal["Update", "Delete"] | BatchOperationType
    params: DoNotReachOperationParamsDict


class ProductDict(TypedDict, total=False):
    """A product, with the attributes of a merchant's feed; see `svc_async.ads.products.Product`."""

    id: Required[str]
    title: Required[str]
    description: Required[str]
    availability: Required[str]
    condition: Required[str]
    price: Required[str]
    link: Required[str]
    image_link: Required[str]
    brand: str | None
    gtin: str | None
    mpn: str | None
    mobile_link: str | None
    additional_image_link: str | None
    google_product_category: str | None
    product_type: str | None
    inventory: int | None
    sale_price: str | None
    sale_price_effective_date: str | None
    item_group_id: str | None
    item_group_key: str | None
    gender: str | None
    age_group: str | None
    color: str | None
    size: str | None
    custom_label_0: str | None
    custom_label_1: str | None
    custom_label_2: str | None
    custom_label_3: str | None
    custom_label_4: str | None
