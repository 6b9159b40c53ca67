"""What oommagic says when it cannot do what was asked.

Each message is a whole sentence that says what happened and what to do.
"""


class OommagicError(Exception):
    """The root of every error that oommagic raises on purpose."""


class UsageError(OommagicError):
    """The request itself cannot be carried out as it was written."""


class ReportFileError(OommagicError):
    """A saved report could not be read or written."""


class DeviceRequestError(OommagicError):
    """A training device was asked for that cannot be set up any more, or at all."""


class CannotTravelError(OommagicError):
    """Something cannot be sent to a child process."""

    def __init__(self, what: str, why: str) -> None:
        """Name the thing as the user would write it, and say why, and what would help."""
        super().__init__(what, why)
        self.what = what
        self.why = why

    def __str__(self) -> str:
        return f"{self.what} cannot be sent to a child process: {self.why}"


class PlanError(OommagicError):
    """No plan can be made of what was given."""


class TrialError(OommagicError):
    """Fixes cannot be tried here and now."""
