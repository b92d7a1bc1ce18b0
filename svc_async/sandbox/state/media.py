"""Uploads: media with the properties that rules check.

Uploading itself is no call of the advertising API; the seed contains the uploads.
"""

from svc_async.sandbox.state.store import Row, Store

__all__ = ["add_upload", "has_ratio"]

_TOLERANCE = 0.01  # Unspecified: how far an aspect ratio may be from the required one


def add_upload(store: Store, account_id: str, **fields: object) -> Row:
    """Add an upload with its `media_key`, `media_type`, `file_name`, `width`, `height` and other fields."""
    record = {"media_category": None, "duration": None, **fields}
    return store["uploads"].add(account_id, record, key=str(fields["media_key"]))


def has_ratio(upload: Row, width: float, height: float) -> bool:
    """Return whether a medium has this aspect ratio."""
    actual: float = upload.fields["width"] / upload.fields["height"]
    return abs(actual - width / height) <= _TOLERANCE
