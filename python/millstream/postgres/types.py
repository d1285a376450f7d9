"""Types of PostgreSQL: from the text of a value, in the encoding of the server, to a Python value."""

from __future__ import annotations

import codecs
import datetime
import re
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from psycopg.adapt import AdaptersMap


FIRST_OWN_TYPE = 16384
"""Types with this number or a greater one are of users."""
CODECS = {"UTF8": "utf-8", "SQL_ASCII": "utf-8", "KOI8R": "koi8-r", "KOI8U": "koi8-u", "EUC_CN": "gb2312"}


@dataclass(frozen=True)
class Encoding:
    """The encoding of text that the server sends: its name on the server, and in Python."""

    name: str
    codec: str

    @staticmethod
    def of(database: str) -> Encoding:
        """The encoding for a database in the encoding ``database``.

        It is the same if Python has it: the server converts and checks nothing then, and a value that is
        wrong does not end the stream or statement. Text of a database in ``SQL_ASCII``
        is in no known encoding, and is taken for UTF-8.

        >>> Encoding.of("SQL_ASCII"), Encoding.of("WIN1252").codec, Encoding.of("MULE_INTERNAL").name
        (Encoding(name='SQL_ASCII', codec='utf-8'), 'cp1252', 'UTF8')
        """
        codec = f"cp{database[3:]}" if database.startswith("WIN") else CODECS.get(database, database)
        try:
            return Encoding(database, codecs.lookup(codec).name)
        except LookupError:
            return Encoding("UTF8", "utf-8")


class Types:
    """Makes Python values of the text of types, as psycopg does.

    Args:
        server: the server, for messages.
        encoding: the encoding of the text.
        base_of: returns the number of the type under a domain, or the number itself.
    """

    def __init__(self, server: str, encoding: Encoding, base_of: Callable[[int], int]) -> None:
        self.server = server
        self.encoding = encoding
        self.base_of = base_of
        self.adapters = adapters()
        self.loads: dict[int, Callable[[bytes], Any]] = {}

    def load(self, type_: int) -> Callable[[bytes], Any]:
        """Returns the function for a type, which raises an exception for a value that cannot be decoded.

        Types that psycopg does not know are text.
        """
        found = self.loads.get(type_)
        if found is None:
            found = self.loads[type_] = self.make(type_)
        return found

    def make(self, type_: int) -> Callable[[bytes], Any]:
        import psycopg
        from psycopg.pq import Format

        base = self.base_of(type_) if type_ >= FIRST_OWN_TYPE else type_
        loader = self.adapters.get_loader(base, Format.TEXT)
        codec = self.encoding.codec
        if loader is None:
            return lambda value: value.decode(codec)
        load = loader(base, self.adapters).load

        def load_or_text(value: bytes) -> Any:
            if codec != "utf-8":
                value = value.decode(codec).encode()
            try:
                return load(value)
            except psycopg.DataError:
                # Python has no such value: 'infinity' as a date, a year before 1, an interval with months.
                return value.decode()

        return load_or_text


def adapters() -> AdaptersMap:
    """The loaders of psycopg, of which that for intervals takes a month for 30 days."""
    import psycopg
    from psycopg.adapt import AdaptersMap, Loader

    class Interval(Loader):
        def load(self, data: Any) -> datetime.timedelta:
            try:
                return parse_interval(bytes(data))
            except (ValueError, OverflowError) as error:
                raise psycopg.DataError(str(error)) from None

    found = AdaptersMap(psycopg.adapters)
    found.register_loader("interval", Interval)
    return found


INTERVAL = re.compile(rb"(?:([+-]?\d+) days?)? ?(?:([+-]?)(\d+):(\d+):(\d+)(?:\.(\d{1,6}))?)?")


def parse_interval(text: bytes) -> datetime.timedelta:
    """An interval in the style ``postgres`` that has no years and months, which a timedelta does not have.

    Raises:
        ValueError: it has, or is infinite.

    >>> parse_interval(b"-3 days +04:05:06.5")
    datetime.timedelta(days=-3, seconds=14706, microseconds=500000)
    """
    found = INTERVAL.fullmatch(text)
    if found is None or not text:
        raise ValueError(f"a timedelta has no {text!r}")
    days, sign, hours, minutes, seconds, fraction = found.groups(b"")
    time = datetime.timedelta(
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=int(fraction.ljust(6, b"0")),
    )
    return datetime.timedelta(days=int(days or 0)) + (-time if sign == b"-" else time)
