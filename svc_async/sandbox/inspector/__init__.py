"""The inspector: a page on which a person follows a running sandbox, and its calls under `/_sandbox/inspector/`.

They belong to the control API and are guarded as all of it is. The page does what every process can do: it arms faults,
triggers events, advances the clock and resets with the calls of the control API.
"""

from svc_async.sandbox.inspector.inspector import Inspector

__all__ = ["Inspector"]
