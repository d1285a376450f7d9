"""The commands of the guide to several machines, run verbatim, and the example on three processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import GUIDE, ROOT, blocks
from shapes import command
from supervised import Supervised

DOCUMENT = GUIDE / "several-machines.md"
BLOCKS = blocks(DOCUMENT, "sh")
WORDS = {"to": 2, "be": 3, "or": 1, "not": 2, "quick": 1, "now": 1}


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_commands_of_the_guide_run(block: str, free_port: Callable[[], int], tmp_path: Path) -> None:
    (tmp_path / "words.py").write_text(blocks(DOCUMENT, "python")[0])
    for port in ("7701", "7702"):
        block = block.replace(port, str(free_port()))
    script = "set -e; trap 'kill $(jobs -p) 2> /dev/null || :' EXIT\n" + block
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    counts = [line for file in tmp_path.glob("counts*.txt") for line in file.read_text().splitlines()]
    assert Counter(counts) == Counter(f"{word} {count}" for word, count in WORDS.items()), done.stderr


def test_the_example_counts_words_on_three_processes(tmp_path: Path) -> None:
    book = ROOT / "examples" / "word_count" / "book.txt"
    out = tmp_path / "out"
    with out.open("w") as file:
        done = subprocess.run(
            command(ROOT / "examples" / "word_count" / "word_count.py", "--processes", 3),
            env=os.environ | {"BOOK": str(book)},
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    words = Counter(book.read_text().lower().split())
    assert sorted(out.read_text().splitlines()) == sorted(f"{count} {word}" for word, count in words.items())


MAIN = """
import sys
from program import main

main(int(sys.argv[1]), sys.argv[2].split(","))
"""


def test_the_program_of_the_guide_runs(free_port: Callable[[], int], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(blocks(DOCUMENT, "python")[-1])
    (tmp_path / "main.py").write_text(MAIN)
    (tmp_path / "secret").write_text("0123456789abcdef")
    (tmp_path / "a.txt").write_text("to be or not to be\n")
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    program = [sys.executable, str(tmp_path / "main.py")]
    os_path = os.environ | {"PYTHONPATH": str(tmp_path)}
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        run = [Supervised([*program, str(process), hosts], os_path) for process in range(2)]
    finally:
        os.chdir(here)
    for one in run:
        one.end(0)
