"""The output of a flow on several processes while it is written, and the processes themselves."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

__all__ = ["Output", "children", "cpu_seconds", "wait_until"]

LOOK_S = 0.002
LIMIT_S = 120.0


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits until a condition holds."""
    until = monotonic() + seconds
    while not condition():
        if monotonic() > until:
            raise TimeoutError
        sleep(LOOK_S)


def children(pid: int) -> list[int]:
    """The processes that a process has started, in the order of their start."""
    return sorted(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Output:
    """Files to which processes write lines ``pPID NUMBER``, and which a start truncates to the last commit.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.read: dict[Path, int] = {}
        self.latest = -1

    def new_lines(self) -> list[tuple[int, int]]:
        """The lines that have come since the last call."""
        found = []
        for file in self.folder.iterdir():
            size = file.stat().st_size
            begin = self.read.get(file, 0)
            with file.open("rb") as lines:
                lines.seek(min(begin, size))
                text = lines.read()
            # The last line may be incomplete.
            complete = text.rpartition(b"\n")[0]
            self.read[file] = min(begin, size) + len(complete) + bool(complete)
            pairs = [line.split() for line in complete.splitlines()]
            # If the file was truncated meanwhile, the first may be the end of a line.
            found += [(int(pair[0][1:]), int(pair[1])) for pair in pairs if pair[:1] and pair[0][:1] == b"p"]
        self.latest = max(self.latest, *(number for _, number in found), -1)
        return found

    def follow(self, wanted: Callable[[int, int], bool], flow: subprocess.Popen[str]) -> None:
        """Waits for a line; a flow that ends meanwhile is an error."""
        until = monotonic() + LIMIT_S
        while not any(wanted(*line) for line in self.new_lines()):
            if flow.poll() is not None:
                raise RuntimeError(f"the flow has ended with exit code {flow.returncode}")
            if monotonic() > until:
                raise TimeoutError
            sleep(LOOK_S)

    def follow_for(self, seconds: float) -> int:
        """Reads for this time; returns the largest number so far."""
        until = monotonic() + seconds
        while monotonic() < until:
            self.new_lines()
            sleep(LOOK_S)
        self.new_lines()
        return self.latest

    def numbers(self) -> list[int]:
        """The numbers of all lines."""
        lines = [file.read_text().splitlines() for file in self.folder.iterdir()]
        return [int(line.split()[1]) for part in lines for line in part]
