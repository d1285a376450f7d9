"""Queries: questions to a component that runs, answered between its inputs and recorded nowhere.

>>> class Desk:
...     total = 7
...     @query
...     def total_of(self, key: str, times: int = 1) -> dict[str, int]:
...         return {key: self.total * times}
>>> ((name, answer),) = queries(Desk())
>>> name, answer('{"key": "A-1", "times": "2"}')
('total_of', ('result', '{"A-1": 14}'))
>>> answer('{"times": 2}')
('arguments', "total_of: missing a required argument: 'key'")
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import os
import traceback
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, TypeVar

from .. import _millstream
from .._errors.flow import ServiceError
from .._values.checked import checked_as
from .checks import hints_of
from .options import checked_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .._values.durations import Seconds

Method = TypeVar("Method", bound=Callable[..., object])

MARK = "__millstream_query__"
#: Texts of a URL that are a bool.
BOOLS = {"true": True, "1": True, "false": False, "0": False}


def query(method: Method) -> Method:
    """Decorates a method of a component that answers a question about its state.

    :func:`ask` and the gateway of services ask it while the service runs, between two inputs. Nothing is
    recorded. The method changes nothing and makes no calls; it returns what JSON can hold, dataclasses and
    enums included.

    Args:
        method: the method. Its arguments are ``str``, ``int``, ``float`` or ``bool``, for a request over
            HTTP has texts; for :func:`ask` also lists and dicts.

    Returns:
        The method.

    Raises:
        ServiceError: the method is async.

    Example:
        >>> class Desk:
        ...     def __init__(self) -> None:
        ...         self.totals = {"A-1": 3.0}
        ...     @query
        ...     def total(self, key: str) -> float | None:
        ...         return self.totals.get(key)
    """
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
        raise ServiceError(f"{method.__qualname__}: a query is a plain method")
    setattr(method, MARK, True)
    return method


@checked_as(ServiceError)
def ask(out: str | os.PathLike[str], name: str, *, timeout: Seconds = 10.0, **arguments: object) -> Any:
    """Asks a query of a component that runs.

    Args:
        out: the output journal of its service.
        name: the name of the method with :func:`query`.
        timeout: for how long to wait.
        arguments: the arguments of the method, which JSON can hold.

    Returns:
        The answer of the method, as JSON shows it.

    Raises:
        ServiceError: no such service runs, it has no such query, the arguments do not fit, the method raised,
            or there was no answer in time.

    Example:
        >>> import millstream as ms
        >>> ms.ask("nowhere", "total", key="A-1")
        Traceback (most recent call last):
        ...
        millstream.ServiceError: nowhere: total: no service with queries runs on this output
    """
    given = json.dumps(arguments, default=plain)
    return json.loads(_millstream.service_ask(os.fspath(out), name, given, checked_timeout(timeout)))


def queries(component: Any) -> list[tuple[str, Callable[[str], tuple[str, str]]]]:
    """The queries of a component: names, and functions from arguments to the outcome, both as JSON."""
    found = inspect.getmembers(component, lambda member: hasattr(member, MARK))
    return [(name, answering(name, method)) for name, method in found]


def answering(name: str, method: Callable[..., object]) -> Callable[[str], tuple[str, str]]:
    signature = inspect.signature(method)
    hints = hints_of(method, name)

    def answer(text: str) -> tuple[str, str]:
        try:
            given = {key: converted(key, value, hints.get(key)) for key, value in json.loads(text).items()}
            bound = signature.bind(**given)
        except (TypeError, ValueError) as error:
            return "arguments", f"{name}: {error}"
        try:
            return "result", json.dumps(method(*bound.args, **bound.kwargs), default=plain)
        except Exception as error:
            traceback.print_exception(error)
            return "failed", f"{name}: {type(error).__name__}: {error}"

    return answer


def converted(key: str, value: object, hint: object) -> object:
    """The value of an argument that came as a text, by the annotation of the argument."""
    if not isinstance(value, str) or hint not in (int, float, bool):
        return value
    try:
        return BOOLS[value.lower()] if hint is bool else hint(value)
    except (KeyError, ValueError):
        raise ValueError(f"{key}: {value!r} is no {hint.__name__}") from None


def plain(value: object) -> object:
    """What JSON can hold of a value that it cannot."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, bytes):
        import base64

        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, Mapping):
        return dict(value)
    fields = getattr(type(value), "__struct_fields__", None)
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")
