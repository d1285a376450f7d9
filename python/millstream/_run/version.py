"""The version of a flow's program, which all processes of a run have.

It is made of the sources of the program: two processes whose steps differ would divide the keys of one state
between two meanings, without a word. Paths do not count, so that the program may be in another directory on
each machine.
"""

from __future__ import annotations

import os
import sys

from .._errors.command import PACKAGE
from .._errors.flow import FlowUsageError
from .programs import PROGRAMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from .._streams.flow import Flow


INSTALLED = {"site-packages", "dist-packages"}
"""The directories of installed packages, by their names."""
PYC_HEADER_BYTES = 16
"""Compiled code begins with this: among others with the time of its source."""


def describing_module() -> str:
    """The name of the module that calls ours: the one that describes a flow."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "__main__"))


def version_of(flow: Flow) -> list[tuple[str, str]]:
    """The parts of the version of a flow's program.

    Args:
        flow: the flow.

    Returns:
        For each part its name and its digest: the module that describes the flow, and the modules that are
        loaded, without those of installed packages. An installed package that describes the flow counts. Or
        one part with the version that the flow was given.

    Raises:
        FlowUsageError: the module that describes the flow has no file that can be read: a notebook, the
            standard input.
    """
    if flow._version is not None:
        return [("version", flow._version)]
    own = flow._module
    digests = {}
    program = sys.modules.get(own)
    for name, module in list(sys.modules.items()):
        if module is program and name != own:
            # Another name of the same file: see `_programs`.
            continue
        counts = name == own or is_of_package(name, own) or not is_installed(module)
        digest = digest_of(module) if counts else None
        if digest is not None:
            digests["main file" if name in PROGRAMS else f'module "{name}"'] = digest
    if digests.get("main file" if own in PROGRAMS else f'module "{own}"') is None:
        raise FlowUsageError(
            f'flow "{flow.name}": its version is unknown, because the module that describes it ({own}) has '
            "no file that can be read, as in a notebook or a program from standard input; several processes "
            f'must have the same: ms.Flow("{flow.name}", version="1")'
        )
    return sorted(digests.items())


def is_of_package(name: str, own: str) -> bool:
    """Whether a module is of the package of the module that describes the flow."""
    if own in PROGRAMS:
        # With ``python -m`` it has a name of its own.
        own = getattr(getattr(sys.modules.get(own), "__spec__", None), "name", None) or own
    return own not in PROGRAMS and name.partition(".")[0] == own.partition(".")[0]


def is_installed(module: ModuleType) -> bool:
    """Whether a module is of Millstream, of Python, or of an installed package."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return True
    path = os.path.abspath(file)
    places = (PACKAGE, *(place + os.sep for place in installed_places()))
    return path.startswith(places) or not INSTALLED.isdisjoint(path.split(os.sep))


def installed_places() -> list[str]:
    """The directories of Python's own modules, and of the programs of installed packages."""
    import sysconfig

    paths = sysconfig.get_paths()
    found = [paths["stdlib"], paths["platstdlib"], paths["scripts"]]
    found.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    return [*found, *map(os.path.realpath, found)]


def digest_of(module: ModuleType) -> str | None:
    """The digest of the source of a module; None if it has no file, or none that can be read."""
    from hashlib import blake2b

    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return None
    # Also from an archive (PEP 302).
    read = getattr(getattr(getattr(module, "__spec__", None), "loader", None), "get_data", read_file)
    try:
        data = read(file)
    except OSError:
        return None
    if file.endswith(".pyc"):
        data = data[PYC_HEADER_BYTES:]
    return blake2b(data, digest_size=8).hexdigest()


def read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
