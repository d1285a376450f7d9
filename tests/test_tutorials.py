"""The tutorials, run as they are written: each page in an empty directory, with the package alone.

A block ``sh`` is run by one shell, after those before it; ``sh background`` is what the reader starts in
another terminal. A block ``text`` is what the block before it prints. Each page has a network of its own, and
so have its processes.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT

TUTORIALS = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```([a-z ]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
# What a tutorial installs is here; what it starts in the background logs to files.
BEFORE = "set -eu\nexec 2>errors.log\nip link set lo up\npip() { :; }\n"
END = "@@@"
TIMEOUT = 150


def script(blocks: list[tuple[str, str]]) -> str:
    """The blocks as one program, which prints a line after the output of each."""
    parts = [BEFORE]
    for kind, text in blocks:
        if kind == "sh":
            parts.append(text)
        elif kind == "sh background":
            parts.append(f"{{\n{text}}} >>background.log 2>&1 &\n")
        parts.append(f"echo; echo {END}\n")
    return "".join(parts)


@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_runs_as_written(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert {kind for kind, _ in blocks} <= {"sh", "sh background", "text"}
    (tmp_path / "page.sh").write_text(script(blocks))
    (tmp_path / "empty").mkdir()
    command = [*ALONE, "bash", str(tmp_path / "page.sh")]
    ran = subprocess.run(command, cwd=tmp_path / "empty", stdout=subprocess.PIPE, text=True, timeout=TIMEOUT)
    logs = "".join(
        f"--- {log.name}\n{log.read_text()}"
        for log in (*tmp_path.rglob("errors.log"), *tmp_path.rglob("background.log"))
    )
    assert ran.returncode == 0, ran.stdout + logs
    outputs = [output.strip() for output in ran.stdout.split(END)]
    for index, (kind, text) in enumerate(blocks):
        if kind == "text":
            assert outputs[index - 1] == text.strip(), logs


@pytest.mark.parametrize("kind", ["alerts", "queue", "service"])
def test_a_new_folder_passes_its_own_tests(kind: str, tmp_path: Path) -> None:
    subprocess.run(["millstream", "new", kind], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(command, cwd=tmp_path / kind, capture_output=True, text=True, timeout=TIMEOUT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\b[1-9]\d* passed", ran.stdout)


def test_a_folder_that_has_one_of_the_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "alerts.py").write_text("mine")
    command = ["millstream", "new", "alerts", "mine"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1 and "mine has alerts.py already" in ran.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["alerts.py"]
    assert (tmp_path / "mine" / "alerts.py").read_text() == "mine"


def test_a_kind_that_does_not_exist_is_bad_usage(tmp_path: Path) -> None:
    command = ["millstream", "new", "alrts"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2 and "there is no 'alrts': the kinds are alerts, queue, service" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_a_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in ("file", "file/inside", "/proc/inside"):
        command = ["millstream", "new", "alerts", directory]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 1 and ran.stderr.count("\n") == 1, ran.stderr
        assert ran.stderr.startswith(f"millstream new: {directory}: ")
