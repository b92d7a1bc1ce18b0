"""The exceptions of the shared state; what all exceptions of this SDK have in common is in `svc_async.errors`."""

from svc_async.errors import SvcError

__all__ = ["StateUnavailable", "TakenUpElsewhere", "UnusableState"]


class StateUnavailable(SvcError):
    """The database of the shared state cannot be reached.

    Attributes:
        name: host and database.
    """

    repeatable = True

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"the shared state at {name} cannot be reached ({reason}): check the URL and the server")
        self.name = name


class TakenUpElsewhere(SvcError):
    """Another process has taken up the same job or sync; this one sends nothing more of it.

    Attributes:
        name: the job or the sync.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} was taken up elsewhere; this process sends nothing more of it")
        self.name = name


class UnusableState(SvcError):
    """The shared state holds something else than is expected, or belongs to another version.

    Attributes:
        name: the database, or a name in it.
        problem: what is wrong with it, and what helps.
        parameter: the parameter that names it, such as `journal`; None if it is the database.
    """

    def __init__(self, name: str, problem: str, *, parameter: str | None = None) -> None:
        super().__init__(f"{parameter or 'the shared state'} {name} {problem}")
        self.parameter = parameter
        self.name = name
        self.problem = problem
