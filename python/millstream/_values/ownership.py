"""Ownership of objects: copies, where one object would belong to a state and to an output, or to two windows.

An output that is the state of its key is copied before it is passed on, so that later values do not change
it: :func:`copied`, which is shallow. An accumulator belongs to one window: :func:`separate`, which is deep.
Immutable objects need no copy, and what cannot be copied is passed as it is.
"""

from __future__ import annotations

from .states import is_immutable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")


PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes, tuple, frozenset})
"""Types whose objects are never copied by :func:`copied`."""


def copied(value: T) -> T:
    """A shallow copy of an object that can change; another object itself.

    >>> state = {"a": [1]}
    >>> copied(state) is state, copied(state)["a"] is state["a"]
    (False, True)
    """
    if type(value) in PLAIN or is_immutable(value):
        return value
    from copy import copy

    try:
        return copy(value)
    except Exception:
        return value


def separate(value: T) -> T:
    """A copy of an object that shares nothing with it that can change.

    >>> state = {"a": [1]}
    >>> separate(state) == state, separate(state)["a"] is state["a"]
    (True, False)
    """
    if is_immutable(value):
        return value
    from pickle import dumps, loads

    try:
        made: T = loads(dumps(value, 5))
    except Exception:
        return _deep(value)
    return made


def _deep(value: T) -> T:
    """A deep copy of what cannot be pickled: an object of a local class."""
    from copy import deepcopy

    try:
        return deepcopy(value)
    except Exception:
        return value
