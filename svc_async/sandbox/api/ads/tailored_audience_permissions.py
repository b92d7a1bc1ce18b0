"""The accounts that may use a tailored audience of another account (TAP-01 to TAP-05), in version 5."""

from svc_async.sandbox.api.ads.shared_audiences import SharedAudiences

__all__ = ["OPERATIONS"]

OPERATIONS = SharedAudiences(
    kind="tailored_audience",
    path="/5/accounts/{account_id}/tailored_audiences/{tailored_audience_id}",
    unknown="ASM-102",
    listing="TAP-01b",
    granting="TAP-02",
    owning="TAP-03",
    together="TAP-04",
    revoking="TAP-05",
).make_operations()
