"""The field of an item that is given by its name: of a mapping the value of a key, of others an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from operator import attrgetter, itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Get = Callable[[Any], Any]

SHOWN = 20
"""The number of fields that an error names."""


class _Getters(dict):  # type: ignore[type-arg]
    """How the field is read, by the type of the item."""

    __slots__ = ("name",)
    name: str

    def __missing__(self, kind: type) -> Get:
        make = itemgetter if issubclass(kind, Mapping) else attrgetter
        get: Get = make(self.name)
        self[kind] = get
        return get


def field(name: str) -> Get:
    """Returns the function that reads the field.

    >>> field("user")({"user": "ann"})
    'ann'
    >>> field("usr")({"user": "ann", "time": 3})
    Traceback (most recent call last):
    LookupError: the dict has no field 'usr', but 'user', 'time'
    """
    getters = _Getters()
    getters.name = name

    def get(item: Any) -> Any:
        try:
            return getters[type(item)](item)
        except (KeyError, AttributeError) as error:
            fields = [known for known in _fields(item) if known != name]
            named = ", ".join(map(repr, islice(fields, SHOWN)))
            more = ", ..." if len(fields) > SHOWN else ""
            but = f", but {named}{more}" if fields else ""
            raise LookupError(f"the {type(item).__name__} has no field {name!r}{but}") from error

    return get


def _fields(item: Any) -> list[Any]:
    if isinstance(item, Mapping):
        return list(item)
    public = [name for name in dir(item) if not name.startswith("_")]
    from inspect import getattr_static

    return [name for name in public if not callable(getattr_static(item, name, None))]
