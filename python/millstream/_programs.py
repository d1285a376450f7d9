"""The names of the file of a flow: as a program that is run, and as a module that is imported.

Objects of its classes that are saved under one of the names are found under the others.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["DESCRIBING", "PROGRAMS", "describes", "is_module_too"]

PROGRAMS = ("__main__", "__millstream__", "__mp_main__")
"""The names under which the file may have been run."""
DESCRIBING: dict[str, None] = {}
"""The modules in which flows were described. What a program has saved is of one of them."""


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

    spec, path = getattr(program, "__spec__", None), getattr(program, "__file__", None)
    name = spec.name if spec is not None else path and os.path.splitext(os.path.basename(path))[0]
    if name and getattr(sys.modules.get(name), "__name__", "__main__") in PROGRAMS:
        sys.modules[name] = program
