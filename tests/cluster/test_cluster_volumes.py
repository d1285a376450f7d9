"""Another number of processes on several machines: the commands of the guide, with directories as volumes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from documents import GUIDE
from shapes import TIMEOUT, Shape, command
from supervised import Supervised, wait_for

DOCUMENT = (GUIDE / "several-machines.md").read_text()


def commands() -> tuple[str, str]:
    """What the pod with all volumes does: it divides the state, and replaces the directory of volume N."""
    divide = re.search(r"^3\. In it: `([^`]+)`", DOCUMENT, re.MULTILINE)
    replace = re.search(r"^4\. Replace the directory of each volume: `([^`]+)`", DOCUMENT, re.MULTILINE)
    assert divide is not None and replace is not None
    return divide[1], replace[1]


def sh(script: str, folder: Path) -> None:
    for name in ("/volumes", "/tmp/all"):
        script = script.replace(name, str(folder / name.strip("/").replace("/", "-")))
    done = subprocess.run(
        ["bash", "-ec", script],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, f"{script}: {done.stderr}"


def test_the_commands_of_the_guide_divide_the_state_of_volumes(
    tmp_path: Path, free_port: Callable[[], int]
) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1500)
    out = tmp_path / "out" / "out.txt"
    volumes = tmp_path / "volumes"
    for number in range(4):
        (volumes / str(number)).mkdir(parents=True)

    def start(processes: int, seconds: float) -> list[Supervised]:
        hosts = ",".join(f"127.0.0.1:{free_port()}" for _ in range(processes))
        run = []
        for process in range(processes):
            options = ["--process", process, "--hosts", hosts, "--state", volumes / str(process)]
            options += ["--epoch", "20ms", "--ready-file", tmp_path / f"ready{process}"]
            run.append(Supervised(command(shape.flow, *options), shape.environment(out, seconds)))
        return run

    run = start(3, 20.0)
    for process in range(3):
        wait_for((tmp_path / f"ready{process}").exists, f"process {process}")
    run[0].process.terminate()
    for one in run:
        one.end(0)
    divide, replace = commands()
    assert "--processes 4" in divide
    sh(divide, tmp_path)
    for number in range(4):
        sh(re.sub(r"\bN\b|(?<=p)N", str(number), replace), tmp_path)
    for one in start(4, 0.0):
        one.end(0)
    shape.check(out)
