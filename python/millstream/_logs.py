"""The log of the native half, in the standard :mod:`logging`.

Each line goes to a logger under ``millstream``: ``millstream.flow.policy`` for the module ``policy`` of the
flow crate. The record has the fields of the event (``step``, ``key``, ``flow``, ``source`` and so on) as
attributes. Below the level of these loggers nothing is formatted and no lock is taken: the native half caches
the level, which it reads when a run begins and every 50 ms while it lasts.

>>> import logging
>>> logging.getLogger("millstream").setLevel(logging.ERROR)
>>> level()
40
>>> logging.getLogger("millstream").setLevel(logging.NOTSET)
"""

from __future__ import annotations

import logging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["LEVELS", "configure", "emit", "level"]

LEVELS = {
    "error": logging.ERROR,
    "warning": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": 5,
}
"""The values of ``--log-level``; ``off`` is above all of them."""

CRATES = tuple(
    logging.getLogger(name)
    for name in (
        "millstream",
        "millstream.flow",
        "millstream.journal",
        "millstream.queue",
        "millstream.service",
    )
)
OWN = set(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime"}


def level() -> int:
    """The lowest level at which one of the loggers of the native half listens."""
    return min([logger.getEffectiveLevel() for logger in CRATES])


def emit(target: str, level: int, message: str, fields: dict[str, str], file: str, line: int) -> None:
    """Logs an event of the native half; ``target`` is a path in Rust, ``millstream_flow::policy``."""
    logger = logging.getLogger(target.replace("millstream_", "millstream.", 1).replace("::", "."))
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(logger.name, level, file, line, message, (), None)
    record.__dict__.update({f"{name}_" if name in OWN else name: value for name, value in fields.items()})
    logger.handle(record)


class JsonLines(logging.Formatter):
    """One JSON object a line: time (seconds since 1970), level, logger, message, the fields of the event, and
    the number of the process where there are several."""

    def __init__(self, process: int | None = None) -> None:
        super().__init__()
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        import json

        about: dict[str, Any] = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.process is not None:
            about["process"] = self.process
        about.update({name: value for name, value in record.__dict__.items() if name not in OWN})
        if record.exc_info:
            about["exception"] = self.formatException(record.exc_info)
        return json.dumps(about, default=str)


def configure(level: str, format: str, process: int | None = None) -> None:
    """Configures the log of a command: lines on standard error, as text or as JSON, with the number of this
    process among several if it is given.

    Loggers that have a handler already, because the user's file has set them up, are left alone.
    """
    logging.addLevelName(LEVELS["trace"], "TRACE")
    logger = logging.getLogger("millstream")
    if level == "off":
        logger.setLevel(logging.CRITICAL + 1)
    elif logger.level == logging.NOTSET:
        logger.setLevel(LEVELS[level])
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    place = "millstream: " if process is None else f"millstream p{process}: "
    handler.setFormatter(JsonLines(process) if format == "json" else logging.Formatter(f"{place}%(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
