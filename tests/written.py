"""Runs the blocks of a page as they are written: in an empty directory, with the package alone.

    python written.py PAGE...      runs pages with the ``millstream`` and ``python`` of PATH

A block ``sh`` is run by one shell, after those before it; ``sh background`` is what the reader starts in
another terminal; ``python`` is a program. A block with ``title="NAME"`` is a file. A block ``text`` is what
the block before it prints. Each run has a network of its own, and so have its processes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(
    r"^```([a-z]+)( background)?(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE
)
ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
# What a page installs is here; what it starts in the background logs to files.
BEFORE = "set -eu\nexec 2>errors.log\nip link set lo up\npip() { :; }\n"
END = "@@@"
TIMEOUT = 150


class Block(NamedTuple):
    """A block of a page."""

    language: str
    background: bool
    file: str
    text: str

    def command(self) -> str:
        """The block as a part of a shell script."""
        if self.file:
            return f"cat >'{self.file}' <<'{END}'\n{self.text}{END}\n"
        if self.background:
            return f"{{\n{self.text}}} >>background.log 2>&1 &\n"
        if self.language == "python":
            return f"cat >recipe.py <<'{END}'\n{self.text}{END}\npython recipe.py\n"
        return self.text if self.language == "sh" else ""


def blocks(text: str) -> list[Block]:
    """The blocks of a page or a part of it."""
    return [
        Block(language, bool(background), file, body)
        for language, background, file, body in FENCE.findall(text)
    ]


def run(written: Sequence[Block], folder: Path) -> None:
    """Runs the blocks in a new directory of the folder, and compares what they print."""
    script = BEFORE + "".join(f"{block.command()}echo; echo {END}\n" for block in written)
    (folder / "page.sh").write_text(script)
    (folder / "empty").mkdir()
    command = [*ALONE, "bash", str(folder / "page.sh")]
    ran = subprocess.run(command, cwd=folder / "empty", stdout=subprocess.PIPE, text=True, timeout=TIMEOUT)
    logs = "".join(
        f"--- {log.name}\n{log.read_text()}"
        for log in (*folder.rglob("errors.log"), *folder.rglob("background.log"))
    )
    assert ran.returncode == 0, ran.stdout + logs
    outputs = [output.strip() for output in ran.stdout.split(END)]
    for index, block in enumerate(written):
        if block.language == "text":
            printed = outputs[index - 1]
            assert printed == block.text.strip(), f"{printed}\n--- instead of\n{block.text}{logs}"


def main() -> None:
    for page in map(Path, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            run(blocks(page.read_text("utf-8")), Path(folder))


if __name__ == "__main__":
    main()
