"""Finds the flow that a Python file or a module describes, or the function that makes it."""

from __future__ import annotations

import os
import sys

from .._errors.command import UsageError
from .._streams.flow import Flow
from .programs import is_module_too

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def divided(place: str) -> tuple[str, str, bool]:
    """The file or module of a place, the name in it, and whether it is a file.

    Raises:
        UsageError: there is no such file.

    Example:
        >>> divided("shop.flows:make")
        ('shop.flows', 'make', False)
    """
    if os.path.isfile(place):
        return place, "", True
    path, colon, name = place.rpartition(":")
    if colon and os.path.isfile(path):
        return path, name, True
    is_module = path and not path.endswith(".py") and all(map(str.isidentifier, path.split(".")))
    if not colon or not is_module:
        raise UsageError(f"{path or place}: no such file")
    return path, name, False


def load(place: str, arguments: list[str] | None = None) -> Flow:
    """Runs a file, or imports a module, and finds its flow. ``arguments``: for a function that makes it."""
    path, name, is_file = divided(place)
    variables = run(path) if is_file else imported(path)
    if name:
        if name not in variables:
            raise UsageError(f"{path} has no {name}")
        found = variables[name]
        if isinstance(found, Flow):
            return without_arguments(place, found, arguments)
        if not callable(found):
            raise UsageError(f"{path}: {name} is no flow, and no function that makes one")
        from .._streams.factory import call

        made = call(place, found, arguments or [])
        if not isinstance(made, Flow):
            raise UsageError(f"{place} returned {type(made).__name__}, not a Flow")
        return made
    return without_arguments(place, only_flow(path, variables), arguments)


def without_arguments(place: str, flow: Flow, arguments: list[str] | None) -> Flow:
    """The flow of a variable, which takes no arguments."""
    if arguments:
        raise UsageError(
            f"unrecognized arguments: {' '.join(arguments)}; {place} is a flow, and a function that makes "
            "one takes arguments"
        )
    return flow


def run(path: str) -> dict[str, Any]:
    """The variables of a file, which is run."""
    import runpy
    from types import ModuleType

    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    file = os.path.abspath(path)
    variables = runpy.run_path(path, run_name="__millstream__")
    # The classes of the file are found again by name when saved state is read.
    module = ModuleType("__millstream__")
    module.__dict__.update(variables)
    # The file may have changed to another directory.
    module.__file__ = file
    sys.modules["__millstream__"] = module
    is_module_too(module)
    return variables


def imported(name: str) -> dict[str, Any]:
    """The variables of a module, which is found from the current directory on, as ``python -m`` does."""
    from importlib import import_module

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return vars(import_module(name))
    except ModuleNotFoundError as error:
        # A module that it imports and that is missing is another error.
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(f"{name}: no such file, and no such module") from None
        raise


def only_flow(path: str, variables: dict[str, Any]) -> Flow:
    """The flow in the variable ``flow``, or the only one."""
    flows = {key: value for key, value in variables.items() if isinstance(value, Flow)}
    flow = flows.get("flow")
    if flow is None and len(set(map(id, flows.values()))) == 1:
        flow = next(iter(flows.values()))
    if flow is None and flows:
        raise UsageError(f"{path}: several flows ({', '.join(flows)}); name one: {path}:{next(iter(flows))}")
    if flow is None:
        raise UsageError(f"{path}: no flow in this file; {path}:NAME calls a function that makes one")
    return flow
