"""The gateway of services: HTTP requests become calls in journals, and calls in journals become feeds.

``millstream service gateway`` runs one, and so does a system of services whose file has a table
``[gateway]``.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _millstream
from .._errors.command import UsageError, announce
from .._errors.flow import ServiceError
from .._run.logs import configure
from .._run.page_options import add_log
from .._values.durations import of_text
from .components import interfaces_of, parameter_types
from .interfaces import described, is_interface
from .load import load
from .options import checked_sync

#: The default for the largest body of a request, in bytes.
MAX_BODY = 1 << 20
#: How long the key of a call is kept: the default, the least and the most, in seconds.
IDEMPOTENCY_KEEP_S = 86400.0
KEEP_LEAST_S = 1.0
KEEP_MOST_S = 366 * 86400.0
#: How long a wait for an error lasts before a stop is noticed, in seconds.
LOOK_S = 0.2

Verb = Callable[[str, Callable[[Any], int], str, str], argparse.ArgumentParser]


@dataclass(frozen=True)
class Calls:
    """A journal of calls, and the classes whose interfaces it has."""

    journal: str
    #: ``MODULE:CLASS`` of interfaces or components.
    classes: tuple[str, ...]
    #: Components whose output interfaces are not among them: they are in another journal.
    without: tuple[str, ...] = ()


def interfaces_at(calls: Calls) -> list[type]:
    """The interfaces of a journal.

    :raises UsageError: for a class that does not exist, or is neither an interface nor a component.
    """
    found: dict[type, None] = {}
    for place in calls.classes:
        loaded = load(place)
        if is_interface(loaded):
            found[loaded] = None
            continue
        try:
            found |= dict.fromkeys(interfaces_of(loaded))
        except ServiceError as error:
            raise UsageError(f"{place}: {error}, and is none") from None
    for place in calls.without:
        for interface in parameter_types(load(place)).values():
            found.pop(interface, None)
    if not found:
        raise UsageError(f"{calls.journal}: none of {', '.join(calls.classes)} has an interface for it")
    return list(found)


@dataclass(frozen=True)
class Gateway:
    """The options of a gateway, as the table ``[gateway]`` of a system has them."""

    listen: str
    calls: Sequence[Calls]
    feeds: Sequence[str]
    #: Journals of calls with the outputs that answer them.
    answers: Sequence[tuple[str, str]]
    #: The outputs of the services that are asked.
    states: Sequence[str]
    token_file: str | None
    origins: Sequence[str]
    sync: str
    max_body: int
    #: How long the key of a call is kept, in seconds.
    idempotency_keep_s: float

    def start(self) -> _millstream.Gateway:
        """
        :raises ServiceError: if it cannot start: the address is in use, for example.
        """
        return _millstream.Gateway(
            self.listen,
            calls=[(it.journal, list(map(described, interfaces_at(it)))) for it in self.calls],
            answers=self.answers,
            feeds=self.feeds,
            states=self.states,
            token=None if self.token_file is None else token_in(self.token_file),
            origins=self.origins,
            sync=checked_sync(self.sync),
            max_body=self.max_body,
            idempotency_keep=self.idempotency_keep_s,
        )


def is_keep(time_s: float) -> bool:
    """Whether the key of a call may be kept for this time: from 1 s to 366 days."""
    return KEEP_LEAST_S <= time_s <= KEEP_MOST_S


def token_in(path: str) -> str:
    """The token in a file, without the spaces around it."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8") from None


# The verb.


def add_verb(verb: Verb) -> None:
    """The verb ``gateway`` and its options."""
    text = "Record HTTP requests as calls, and feed calls to browsers, until Ctrl-C."
    example = "127.0.0.1:8080 --calls orders=desk.py:Orders --feed replies"
    made = verb("gateway", gateway_verb, text, example)
    made.add_argument("address", metavar="ADDRESS", help="HOST:PORT, or unix:PATH")
    made.add_argument(
        "--calls",
        action="append",
        type=calls_of,
        default=[],
        metavar="DIR=MODULE:CLASS",
        help="record POST /INTERFACE/METHOD in DIR; CLASS is an interface, or a component with interfaces",
    )
    made.add_argument(
        "--feed",
        action="append",
        dest="feeds",
        default=[],
        metavar="DIR",
        help="serve the calls of a journal as GET /feeds/NAME, its last part",
    )
    made.add_argument(
        "--answers",
        action="append",
        type=answers_of,
        default=[],
        metavar="DIR=OUT",
        help="answer POST /INTERFACE/METHOD?answer=1 of the calls in DIR with the first output in OUT",
    )
    made.add_argument(
        "--state",
        action="append",
        dest="states",
        default=[],
        metavar="OUT",
        help="serve the queries of the service that writes to OUT as GET /state/NAME/QUERY?ARGUMENT=VALUE",
    )
    made.add_argument("--token-file", metavar="FILE", help="a file with the token that requests must have")
    made.add_argument(
        "--origin",
        action="append",
        dest="origins",
        default=[],
        metavar="URL",
        help="accept pages of this origin, like https://example.org; * accepts all",
    )
    made.add_argument(
        "--sync",
        default="always",
        metavar="S",
        help="when a call survives a loss of power: always (before its answer), never, or a time like 10ms",
    )
    made.add_argument(
        "--max-body",
        type=bytes_of,
        default=MAX_BODY,
        metavar="BYTES",
        help="the largest body, at most 16777216 (default 1048576)",
    )
    made.add_argument(
        "--idempotency-keep",
        type=keep_of,
        default=IDEMPOTENCY_KEEP_S,
        metavar="TIME",
        help="record requests with the same Idempotency-Key within this time as one call (default 24h)",
    )
    add_log(made)


def calls_of(text: str) -> Calls:
    journal, equals, place = text.rpartition("=")
    if not equals or not journal or not place:
        raise argparse.ArgumentTypeError(f"{text!r}: expected DIR=MODULE:CLASS")
    return Calls(journal, (place,))


def answers_of(text: str) -> tuple[str, str]:
    journal, equals, output = text.rpartition("=")
    if not equals or not journal or not output:
        raise argparse.ArgumentTypeError(f"{text!r}: expected DIR=OUT")
    return os.path.normpath(journal), os.path.normpath(output)


def bytes_of(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 16 << 20:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 16777216")
    return int(text)


def keep_of(text: str) -> float:
    time_s = of_text(text)
    if time_s is None or not is_keep(time_s):
        raise argparse.ArgumentTypeError(f"{text!r} is no time from 1s to 366d")
    return time_s


def merged(calls: Sequence[Calls]) -> list[Calls]:
    """The interfaces of each journal, which may be given several times."""
    found: dict[str, tuple[str, ...]] = {}
    for it in calls:
        path = os.path.normpath(it.journal)
        found[path] = found.get(path, ()) + it.classes
    return [Calls(journal, classes) for journal, classes in found.items()]


def gateway_verb(options: Any) -> int:
    if not options.calls and not options.feeds and not options.states:
        raise UsageError("one of --calls, --feed and --state, or several")
    try:
        checked_sync(options.sync)
    except ServiceError as error:
        raise UsageError(f"--sync: {error}") from None
    configure(options.log_level, options.log_format)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    gateway = Gateway(
        options.address,
        merged(options.calls),
        options.feeds,
        options.answers,
        options.states,
        options.token_file,
        options.origins,
        options.sync,
        options.max_body,
        options.idempotency_keep,
    ).start()
    announce(f"listening on {gateway.address}")
    try:
        while not stopped.is_set():
            gateway.wait(LOOK_S)
    finally:
        gateway.stop()
    return 0
