"""Small file systems for tests, on tmpfs or on a loop device. They need root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(kind: str, megabytes: int, folder: Path) -> Iterator[Path]:
    """A file system of this kind and size, mounted in `folder` until the end of the block."""
    mounted, image = folder / "disk", folder / "disk.img"
    mounted.mkdir(parents=True)
    if kind == "tmpfs":
        _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", mounted)
    else:
        _run("truncate", "-s", f"{megabytes}M", image)
        _run(f"mkfs.{kind}", "-q", image)
        _run("mount", "-o", "loop", image, mounted)
    try:
        yield mounted
    finally:
        _run("umount", mounted)


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=60)
