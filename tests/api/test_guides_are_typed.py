"""Every block of Python in the guides and the README passes the type checkers that users run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from documents import GUIDE, ROOT, blocks

TIMEOUT = 240

# Guides whose blocks import `desk`: which guide begins with the blocks of `desk.py`, and how many they are.
DESKS = {
    "services.md": ("services.md", 2),
    "systems.md": ("services.md", 2),
    "testing-services.md": ("services.md", 2),
    "when-a-machine-is-lost.md": ("when-a-machine-is-lost.md", 1),
}
DOCUMENTS = sorted([*GUIDE.glob("*.md"), ROOT / "README.md"])
# A queue client without types of its own. Everything else has types.
MYPY = "[mypy]\nstrict = True\npython_version = 3.10\n[mypy-pymemcache.*]\nignore_missing_imports = True\n"
PYRIGHT = {"typeCheckingMode": "standard", "pythonVersion": "3.10"}


def programs(document: Path) -> dict[str, str]:
    """The files that a reader of the document has: by their names, what is in them."""
    found = blocks(document, "python")
    definer, count = DESKS.get(document.name, ("", 0))
    own = count if definer == document.name else 0
    made = {f"block_{number}.py": block for number, block in enumerate(found) if number >= own}
    if definer:
        made["desk.py"] = "".join(blocks(GUIDE / definer, "python")[:count])
    return made


@pytest.fixture(
    params=[document for document in DOCUMENTS if blocks(document, "python")], ids=lambda d: d.stem
)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the programs of a document, and what configures the checkers."""
    for name, program in programs(request.param).items():
        (tmp_path / name).write_text(program)
    (tmp_path / "mypy.ini").write_text(MYPY)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return tmp_path


def check(folder: Path, *command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_accepts_every_block(folder: Path) -> None:
    check(folder, "mypy", "--config-file", "mypy.ini", ".")


def test_pyright_accepts_every_block(folder: Path) -> None:
    check(folder, "pyright", "--pythonpath", sys.executable, "--project", ".")


WRONG = """\
import millstream as ms
from typing import Protocol


class Orders(Protocol):
    def place(self, id: str) -> None: ...


ms.publisher(Orders, "orders").place(7)
"""


@pytest.mark.parametrize("command", [("mypy", "--strict"), ("pyright", "--pythonpath", sys.executable)])
def test_a_wrong_argument_of_a_publisher_is_found(command: tuple[str, ...], tmp_path: Path) -> None:
    """What `ms.publisher` gives has the type of the interface, and not a type that takes anything."""
    (tmp_path / "wrong.py").write_text(WRONG)
    with pytest.raises(AssertionError, match=r"wrong\.py:9:.*\"(str|Literal\[7\]|int)\""):
        check(tmp_path, *command, "wrong.py")
