"""What ``millstream doctor`` shows of the interpreter, as JSON: ``python -m millstream._run.about``.

The clients are those of the extras of the package, as its metadata names them.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version

EXTRA = re.compile(r"^(?P<name>[\w.-]+).*;\s*extra\s*==\s*['\"](?P<extra>[\w-]+)['\"]")


def about() -> dict[str, str]:
    """The interpreter, the package and the clients that it may use."""
    lock = "" if getattr(sys, "_is_gil_enabled", lambda: True)() else ", free-threaded"
    python = (
        f"{platform.python_version()}{lock}, {sys.executable}, {' '.join(platform.libc_ver()) or 'no glibc'}"
    )
    return {"python": python, "millstream": version("millstream"), "clients": clients()}


def clients() -> str:
    """Each client with its version, or the extra that brings it."""
    found: dict[str, str] = {}
    for text in requires("millstream") or ():
        if match := EXTRA.match(text):
            found.setdefault(match["name"], match["extra"])
    return ", ".join(client(name, extra) for name, extra in sorted(found.items()))


def client(name: str, extra: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name} (millstream[{extra}])"


if __name__ == "__main__":
    print(json.dumps(about()))
