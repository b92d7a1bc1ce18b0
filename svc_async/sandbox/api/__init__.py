"""The APIs of the service: a module or package each, with its rows in `OPERATIONS`."""

from svc_async.sandbox.api import activity, ads, filtered_stream, oauth, webhooks

__all__ = ["OPERATIONS"]

OPERATIONS = (
    *ads.OPERATIONS,
    *oauth.OPERATIONS,
    *webhooks.OPERATIONS,
    *activity.OPERATIONS,
    *filtered_stream.OPERATIONS,
)
