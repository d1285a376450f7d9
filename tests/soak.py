"""Variations of a test, of which `make test` runs some and `make soak` all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

__all__ = ["in_turns", "variations"]


def variations(cases: Iterable[Any], often: Callable[[Any], bool]) -> list[Any]:
    """The cases of a parametrized test.

    Args:
        cases: a value each, or a tuple of several.
        often: says which of them `make test` runs. The others are marked with ``soak``.
    """
    marked = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marked.append(pytest.param(*values, marks=[] if often(case) else pytest.mark.soak))
    return marked


def in_turns(firsts: Iterable[Any], seconds: Sequence[Any]) -> list[Any]:
    """All pairs; `make test` runs one of each first, with the seconds in turns.

    Args:
        firsts: the first values.
        seconds: the second ones; a tuple stands for several values.
    """
    pairs = []
    for row, first in enumerate(firsts):
        for column, second in enumerate(seconds):
            values = second if isinstance(second, tuple) else (second,)
            marks = [] if row % len(seconds) == column else pytest.mark.soak
            pairs.append(pytest.param(first, *values, marks=marks))
    return pairs
