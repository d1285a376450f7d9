"""How the commands of services report errors: one line, after the traceback of a component that raised."""

from __future__ import annotations

from .._errors.command import print_frames, report_error, users_frames
from .._errors.flow import ServiceError


def failed(verb: str, error: Exception) -> int:
    """Prints the traceback of the component, and one line with the error."""
    cause = error.__cause__ or error
    frames = users_frames(cause.__traceback__)
    if frames is not None:
        print_frames(cause, frames)
    ours = isinstance(error, (ServiceError, OSError))
    return report_error(str(error) if ours else f"{type(error).__name__}: {error}", 1, verb)
