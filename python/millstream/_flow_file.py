"""Finds the flow that a Python file describes."""

from __future__ import annotations

import os
import sys

from ._command_errors import UsageError
from ._streams.flow import Flow

__all__ = ["load"]


def load(place: str) -> Flow:
    """Runs a file and finds its flow."""
    path, name = place, ""
    if not os.path.exists(path) and ":" in path:
        path, _, name = place.rpartition(":")
    if not os.path.isfile(path):
        raise UsageError(f"{path}: no such file")
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
    if name:
        if not isinstance(variables.get(name), Flow):
            raise UsageError(f"{path}: {name} is no flow")
        flow = variables[name]
    else:
        flows = {key: value for key, value in variables.items() if isinstance(value, Flow)}
        flow = flows.get("flow")
        if flow is None and len(set(map(id, flows.values()))) == 1:
            flow = next(iter(flows.values()))
        if flow is None and flows:
            raise UsageError(
                f"{path}: several flows ({', '.join(flows)}); name one: {path}:{next(iter(flows))}"
            )
        if flow is None:
            raise UsageError(f"{path}: no flow in this file")
    assert isinstance(flow, Flow)
    return flow
