"""The main API: authentication, webhooks, activity and the filtered stream; one module per family."""
