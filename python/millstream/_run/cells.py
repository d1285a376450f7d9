"""Cells of a notebook: of the flows of a name that they start one runs at a time."""

from __future__ import annotations

import sys
from weakref import WeakValueDictionary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .running import Running


_started: WeakValueDictionary[str, Running] = WeakValueDictionary()
"""The flows that cells have started, by their names."""
REPLACED_WITHIN_S = 10.0
"""How long a cell waits for the end of the flow that it replaces, in seconds."""


def in_notebook() -> bool:
    """Whether IPython runs this: cells after an interrupted one must not run."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def replace(name: str) -> None:
    """Stops the flow of this name that a cell has started, if it still runs, and waits for its end."""
    before = _started.pop(name, None)
    if before is None or before.has_ended:
        return
    before.stop()
    try:
        before.wait(REPLACED_WITHIN_S)
    except Exception as error:
        print(f'millstream: flow "{name}" of an earlier cell: {error}', file=sys.stderr)
    else:
        print(f'millstream: flow "{name}" of an earlier cell was stopped', file=sys.stderr)


def remember(name: str, running: Running) -> None:
    """Notes the flow of this name that a cell has started."""
    _started[name] = running
