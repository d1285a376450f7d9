"""Small file systems for tests, on tmpfs or on a loop device.

They need root and the programs that `tests/setup` installs.

XFS and btrfs have a least size that is far above what a test wants to fill: there a file takes the rest.
"""

import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MAKERS: dict[str, tuple[list[str], int]] = {
    "ext4": (["mkfs.ext4", "-q", "-F"], 0),
    "xfs": (["mkfs.xfs", "-q", "-f", "-m", "reflink=1"], 320),
    "btrfs": (["mkfs.btrfs", "-q", "-f", "--data=single", "--metadata=single"], 192),
}
"""The command that makes a file system, and its least size in MiB."""


class SmallDisk:
    """A mounted file system with about so much room."""

    def __init__(self, mounted: Path) -> None:
        self.path = mounted
        self.empty = shutil.disk_usage(mounted).used

    @property
    def used(self) -> int:
        """Bytes that are used by what was written since it was mounted."""
        return shutil.disk_usage(self.path).used - self.empty


@contextmanager
def small_disk(kind: str, megabytes: int, folder: Path) -> Iterator[SmallDisk]:
    """A file system with room for so many MiB, mounted in `folder` until the end of the block.

    Where the kernel does not have this kind, the test is skipped, and a warning in pytest's summary names it.
    """
    mounted = folder / "disk"
    image = folder / "disk.img"
    mounted.mkdir(parents=True)
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", mounted)
    else:
        command, least = _MAKERS[kind]
        _run("truncate", "-s", f"{max(megabytes, least)}M", image)
        _run(*command, image)
        _mount(kind, image, mounted)
    try:
        if kind in ("xfs", "btrfs"):
            _take_room(mounted, megabytes)
        yield SmallDisk(mounted)
    finally:
        _run("umount", mounted)


def _mount(kind: str, image: Path, mounted: Path) -> None:
    try:
        _run("mount", "-o", "loop", image, mounted)
    except subprocess.CalledProcessError as error:
        known = Path("/proc/filesystems").read_text().split()
        if kind in known:
            raise AssertionError(error.stderr) from error
        missing = f"NOT TESTED on {kind}: this kernel has no such file system"
        warnings.warn(missing, stacklevel=1)
        pytest.skip(missing)


def _take_room(mounted: Path, megabytes: int) -> None:
    """Leave about so many MiB: all is taken in pieces of that size, and some are given back."""
    taken: list[Path] = []
    while True:
        piece = mounted / f"taken-{len(taken)}"
        try:
            with piece.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 1 << 20)
        except OSError:
            piece.unlink(missing_ok=True)
            break
        taken.append(piece)
    for piece in taken[:megabytes]:
        piece.unlink()
    _run("sync", "-f", mounted)


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=60)
