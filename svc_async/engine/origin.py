"""Where the settings of a session come from, so that another process can open the same one; no I/O."""

import attrs

__all__ = ["SessionOrigin"]


@attrs.frozen
class SessionOrigin:
    """Where another process finds the settings of a session; it holds none of them.

    Attributes:
        profile: the name of a profile; None is the environment.
    """

    profile: str | None = None

    def __str__(self) -> str:
        return "the environment" if self.profile is None else f"the profile {self.profile!r}"
