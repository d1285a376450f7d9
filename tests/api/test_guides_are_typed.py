"""Every block of Python in the guides, the cookbook and the README passes type checkers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import written
from documents import GUIDE, ROOT, blocks

TIMEOUT = 240

# The guides that define `desk`, which other blocks import, and in how many of their first blocks.
DESKS = {"services.md": 2, "when-a-machine-is-lost.md": 1}
COOKBOOK = ROOT / "docs" / "cookbook"
DOCUMENTS = sorted([*GUIDE.glob("*.md"), *COOKBOOK.glob("*.md"), ROOT / "README.md"])
# Clients without types of their own. Everything else has types.
MYPY = """
[mypy]
strict = True
python_version = 3.10
[mypy-pymemcache.*,aws_msk_iam_sasl_signer.*,pyarrow.*]
ignore_missing_imports = True
"""
PYRIGHT = {"typeCheckingMode": "standard", "pythonVersion": "3.10"}


def programs(definer: str) -> dict[str, str]:
    """The files of a reader with this `desk`, or without one: by their names, what is in them."""
    count = DESKS[definer]
    made = {"desk.py": "".join(blocks(GUIDE / definer, "python")[:count])}
    others = [document for document in DOCUMENTS if document.name not in DESKS]
    for document in [GUIDE / definer, *(others if definer == "services.md" else [])]:
        begin = count if document.name == definer else 0
        for number, block in enumerate(blocks(document, "python")[begin:], begin):
            made[f"{document.stem.replace('-', '_')}_{number}.py"] = block
        for block in written.blocks(document.read_text()):
            if block.file.endswith(".py"):
                assert made.setdefault(block.file, block.text) == block.text, "two files of one name"
    return made


@pytest.fixture(params=DESKS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the programs, which one run checks together, and what configures the checkers."""
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
