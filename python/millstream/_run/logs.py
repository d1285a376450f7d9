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

from .. import _millstream
from .._errors.command import plain_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


TRACE = 5
"""The level below ``logging.DEBUG``."""
LOGGERS = {
    name: logging.getLogger(name)
    for name in ("millstream", *(f"millstream.{each}" for each in _millstream.log_modules()))
}
"""The loggers that are asked how much to log, by their names."""
supervisor_log = logging.getLogger("millstream.supervisor")
"""The log of a process that supervises others."""
OWN = set(logging.LogRecord("", 0, "", 0, "", (), None).__dict__) | {"message", "asctime"}


def level() -> int:
    """The lowest level at which one of the loggers of the native half listens."""
    return min([logger.getEffectiveLevel() for logger in LOGGERS.values()])


def logger_of(name: str) -> logging.Logger:
    """The logger of this name. A new one is added to a copy of the table of loggers: others may iterate over
    the table at that moment, as pytest does without a lock before each phase of a test."""
    manager = logging.Logger.manager
    if name in manager.loggerDict:
        return logging.getLogger(name)
    with logging._lock:  # type: ignore[attr-defined]
        manager.loggerDict = dict(manager.loggerDict)
        return logging.getLogger(name)


def emit(target: str, level: int, message: str, fields: dict[str, str], file: str, line: int) -> None:
    """Logs an event of the native half; ``target`` is a path in Rust, ``millstream_flow::policy``."""
    logger = logger_of(target.replace("millstream_", "millstream.", 1).replace("::", "."))
    if not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(logger.name, level, file, line, message, (), None)
    # The number of the process is in each line already; a record has the one of the system by that name.
    fields.pop("process", None)
    record.__dict__.update({f"{name}_" if name in OWN else name: value for name, value in fields.items()})
    logger.handle(record)


class Lines(logging.Formatter):
    """Lines as all programs of Millstream write them: time, level, target, message and fields, among them the
    number of the process where there are several. A traceback follows a line of text, and is a field of JSON.
    """

    def __init__(self, format: str, process: int | None = None) -> None:
        super().__init__()
        self.is_json = format == "json"
        self.process = process

    def format(self, record: logging.LogRecord) -> str:
        fields: list[tuple[str, object]] = [] if self.process is None else [("process", self.process)]
        fields += [(name, value) for name, value in record.__dict__.items() if name not in OWN]
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        if traceback and self.is_json:
            fields.append(("exception", traceback))
        time_ns = int(record.created * 1e9)
        level = record.levelname.lower()
        message = record.getMessage()
        line = _millstream.log_line(time_ns, level, record.name, message, fields, self.is_json)
        return f"{line}\n{plain_lines(traceback)}" if traceback and not self.is_json else line


def read_levels(text: str) -> dict[str, int]:
    """Reads ``LEVEL[,MODULE=LEVEL...]``.

    Returns:
        The level of each logger by its name; that of ``millstream`` is for all that have none.

    Raises:
        ValueError: there is no such level or module.

    Example:
        >>> read_levels("info,flow.outbox=debug")
        {'millstream': 20, 'millstream.flow.outbox': 10}
    """
    return dict(_millstream.log_levels(text))


def configure(levels: Mapping[str, int], format: str, process: int | None = None) -> None:
    """Configures the log of a command: lines on standard error, as text or as JSON, with the number of this
    process among several if it is given.

    A level that the user's file has set itself stays, unless the log is off; so do the handlers of loggers
    that have some already.

    Args:
        levels: the level of each logger, of :func:`read_levels`.
        format: ``text`` or ``json``.
        process: the number of this process.
    """
    logging.addLevelName(TRACE, "TRACE")
    logger = logging.getLogger("millstream")
    for name, level in levels.items():
        one = LOGGERS.setdefault(name, logging.getLogger(name))
        if one.level == logging.NOTSET or level > logging.CRITICAL:
            one.setLevel(level)
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(Lines(format, process))
    logger.addHandler(handler)
    logger.propagate = False
