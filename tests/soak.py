"""Variations of a test, of which `make test` runs some and `make soak` all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["variations"]


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
