"""The names of the file of a flow: as a program that is run, and as a module that is imported.

Objects of its classes that are saved under one of the names are found under the others.
"""

from __future__ import annotations

import atexit
import sys
from weakref import WeakSet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from .._streams.flow import Flow


PROGRAMS = ("__main__", "__millstream__", "__mp_main__")
"""The names under which the file may have been run."""
DESCRIBING: dict[str, None] = {}
"""The modules in which flows were described. What a program has saved is of one of them."""
UNUSED: WeakSet[Flow] = WeakSet()
"""Flows with a source that this program has neither run nor shown."""


def expect_run(flow: Flow, module: str) -> None:
    """Notes that a flow has a source: a program that ends without having run it says so."""
    if module == "__main__" and not hasattr(sys, "ps1") and "ipykernel" not in sys.modules:
        UNUSED.add(flow)


def was_used(flow: Flow) -> None:
    """Notes that a flow is run, or shown."""
    UNUSED.discard(flow)


@atexit.register
def report_unused() -> None:
    """Names the flows that were never run, unless the program has failed."""
    if hasattr(sys, "last_type"):
        return
    from .._millstream import plain_text

    for flow in UNUSED:
        name = plain_text(flow.name)
        print(
            f'millstream: flow "{name}" was described and never run: call ms.run(flow), or run the file '
            "with millstream run",
            file=sys.stderr,
        )


def describes(module: str) -> None:
    """Notes that a flow is described in a module."""
    if module not in DESCRIBING:
        DESCRIBING[module] = None
        if module == "__main__":
            is_module_too(sys.modules[module])


def is_module_too(program: ModuleType) -> None:
    """Lets the file that is run as a program be found as the module that it is when it is imported.

    An import of it would run the file again, and make other classes of the same names.
    """
    import os

    spec = getattr(program, "__spec__", None)
    path = getattr(program, "__file__", None)
    name = spec.name if spec is not None else path and os.path.splitext(os.path.basename(path))[0]
    if name and getattr(sys.modules.get(name), "__name__", "__main__") in PROGRAMS:
        sys.modules[name] = program
