"""Events of the platform: models, parser and router, shared by the webhook receiver and the streams; no I/O."""
