"""``millstream doctor``: what it finds on this machine, and what it leaves behind."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import millstream as ms


def findings(*arguments: str) -> dict[str, Any]:
    command = ["millstream", "doctor", "--json", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(ran.stdout)
    assert ran.returncode == (1 if any("advice" in finding for finding in found) else 0), ran
    return {finding["name"]: finding for finding in found}


def test_the_directory_is_tried_and_nothing_stays(tmp_path: Path) -> None:
    found = findings(str(tmp_path))
    assert str(tmp_path) in found["directory"]["value"] and "free" in found["directory"]["value"]
    assert "sync=always" in found["sync"]["value"]
    assert list(tmp_path.iterdir()) == []


def test_python_and_its_clients_are_those_of_this_interpreter() -> None:
    found = findings()
    assert platform.python_version() in found["python"]["value"]
    assert ms.__version__ in found["program"]["value"]
    assert "redis " in found["clients"]["value"]


def test_memory_is_not_a_disk() -> None:
    directory = findings("/dev/shm")["directory"]
    assert "tmpfs" in directory["value"] and "nothing survives" in directory["advice"]


def test_a_directory_that_does_not_exist_has_a_remedy() -> None:
    directory = findings("/no/such/directory")["directory"]
    assert "/no/such/directory" in directory["value"] and directory["advice"].startswith("name a directory")


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    directory = findings(str(tmp_path / "file"))["directory"]
    assert directory["value"].endswith("is a file") and "name a directory" in directory["advice"]


def test_few_open_files_are_marked() -> None:
    command = "ulimit -n 100; exec millstream doctor"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    printed = ran.stdout
    assert ran.returncode == 1 and "should be changed" in ran.stderr
    (line,) = [line for line in printed.splitlines() if "open files" in line]
    assert line.startswith("! limits") and "100 open files" in line and "ulimit -n 65536" in printed


def test_the_native_program_without_python_says_so(tmp_path: Path) -> None:
    command = [shutil.which("millstream") or "", "doctor", "--json"]
    environment = {"PATH": "/usr/bin:/bin", "MILLSTREAM_PYTHON": "/no/python"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    (python,) = [finding for finding in json.loads(ran.stdout) if finding["name"] == "python"]
    assert "/no/python" in python["value"] and "pip install millstream" in python["advice"]


def test_an_interpreter_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nsleep 1000 & echo $! > $0.pid; wait\n")
    python.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "MILLSTREAM_PYTHON": str(python)}
    command = [shutil.which("millstream") or "", "doctor"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1 and f"{python} does not answer within 10 s" in ran.stdout
    left = int((tmp_path / "python.pid").read_text())
    assert not Path(f"/proc/{left}").exists() or "Z" in Path(f"/proc/{left}/stat").read_text()
