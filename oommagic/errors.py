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
