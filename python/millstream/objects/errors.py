"""Errors of object stores: those after which another attempt may succeed, and the others."""

from __future__ import annotations

import re

from .._errors.flow import FlowError, Refused

RETRIED_STATUS = (408, 409, 425, 429)
"""Answers of the class 4xx after which the same request may succeed later."""
RETRIED_CODES = ("RequestTimeout", "ExpiredToken", "ServiceUnavailable", "SlowDown", "InternalError")
FINAL_CODES = ("NoSuchBucket", "NoSuchContainer", "ContainerNotFound")
FINAL_KINDS = (
    "PermissionDeniedError",
    "UnauthenticatedError",
    "NotSupportedError",
    "NotImplementedError",
    "ValueError",
    "InvalidPathError",
    "UnknownConfigurationKeyError",
)
FINAL_TEXT = ("HTTP error: builder error", "os error 13", "os error 20", "os error 21", "os error 30")
"""An address that the client refuses (HTTP without ``allow_http``); and of local directories: no right, not a
directory, a directory, a file system that is read-only."""


class ObjectError(FlowError):
    """An object store refuses what a sink or source asks for, or an object cannot be read.

    Another attempt would fail in the same way. The text names the store and, where there is one, the object.
    """


class RowError(ObjectError, Refused):
    """An item cannot be a row of an object. The other items of its delivery can."""


def reason(error: BaseException) -> str:
    """The message of an error of obstore on one line: the status and the code, or what the connection says.

    >>> text = "Generic S3 error: Error performing GET http://h/b in 2ms - HTTP error: x"
    >>> reason(OSError(text + "\\n\\nDebug source: Generic"))
    'HTTP error: x'
    """
    head, _, debug = str(error).partition("\n\nDebug source")
    text = head.rpartition("s - ")[2] if " error performing " in f" {head.lower()}" else head
    code = re.search(r"<Code>([^<]*)", text)
    message = re.search(r"<Message>([^<]*)", text)
    if code is not None:
        status = re.search(r"status code: ([^:<]*)", text)
        parts = [status[1].strip()] if status is not None else []
        parts += [code[1], *([message[1]] if message is not None else [])]
        return ": ".join(parts)
    text = "; ".join(line.strip() for line in text.splitlines() if line.strip())
    deeper = re.findall(r'message: "([^"]*)"', debug)
    if deeper and deeper[-1] not in text:
        text += f": {deeper[-1]}"
    elif "TimedOut" in debug and "timed out" not in text:
        text += ": timed out"
    return text


def may_pass(error: BaseException) -> bool:
    """Returns whether another attempt may succeed without a change by a person."""
    text = str(error)
    code = re.search(r"<Code>([^<]*)", text)
    if code is not None and code[1] in RETRIED_CODES:
        return True
    if code is not None and code[1] in FINAL_CODES:
        return False
    if type(error).__name__ in FINAL_KINDS or any(part in text for part in FINAL_TEXT):
        return False
    status = re.search(r"status code: (\d+)", text)
    if status is None or isinstance(error, FileNotFoundError):
        return True
    return not 400 <= int(status[1]) < 500 or int(status[1]) in RETRIED_STATUS


def failure(error: BaseException, where: str) -> Exception:
    """The exception for an error of obstore: ConnectionError if another attempt may succeed."""
    text = f"{where}: {reason(error)}"
    return ConnectionError(text) if may_pass(error) else ObjectError(text)


def is_not_supported(error: BaseException) -> bool:
    """Returns whether the store does not support the request."""
    return type(error).__name__ in ("NotSupportedError", "NotImplementedError")


ObjectError.__module__ = "millstream.objects"
