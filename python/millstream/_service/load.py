"""The classes that commands and files name: ``MODULE:CLASS`` or ``FILE.py:CLASS``."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types

from .._errors.command import UsageError


def load(place: str, folder: str = ".") -> type:
    """The class of ``MODULE:CLASS`` or ``FILE.py:CLASS``, looked for from a folder."""
    module, colon, name = place.rpartition(":")
    if not colon:
        raise UsageError(f"{place}: expected MODULE:CLASS")
    folder = os.path.abspath(folder)
    path = None
    if module.endswith(".py"):
        path = os.path.join(folder, module)
        if not os.path.isfile(path):
            raise UsageError(f"{path}: no such file")
        folder, file = os.path.split(path)
        module = file[: -len(".py")]
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        loaded = imported(module, path)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise UsageError(f"there is no module {module}") from None
    found = getattr(loaded, name, None)
    if not isinstance(found, type):
        raise UsageError(f"{module} has no class {name}")
    return found


def imported(module: str, path: str | None) -> types.ModuleType:
    """A module; that of a file even if another file of this name was loaded before."""
    known = sys.modules.get(module)
    file = getattr(known, "__file__", None)
    if path is None or file is None or os.path.realpath(file) == os.path.realpath(path):
        return importlib.import_module(module)
    name = f"{module}@{path}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UsageError(f"{path}: cannot be loaded")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
