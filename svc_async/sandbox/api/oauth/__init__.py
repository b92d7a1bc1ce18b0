"""Authentication: OAuth 1.0a in three steps, the app's bearer token, and OAuth 2.0 with scopes."""

from svc_async.sandbox.api.oauth import app_only, oauth1, pkce

__all__ = ["OPERATIONS"]

OPERATIONS = (*oauth1.OPERATIONS, *app_only.OPERATIONS, *pkce.OPERATIONS)
