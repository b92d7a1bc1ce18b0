"""The main API: authentication, webhooks, activity, the filtered stream. One module a family."""
