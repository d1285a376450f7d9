"""The container file without a tool for containers: its steps in a copy of this machine's root.

The program is process 1 there. The step that installs the package is left out: the one under test is there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from documents import ROOT
from shapes import TIMEOUT
from supervised import wait_for

FLOW = """
import itertools
import millstream as ms

flow = ms.Flow("contained")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=1000))
numbers.map(str).sink("out", ms.files.write("/state/out.txt"))
"""

PREPARE = """
set -e
mkdir root work upper lower
mount -t tmpfs tmpfs upper
mkdir upper/u upper/w
mount -t overlay overlay -o lowerdir=/,upperdir="$PWD/upper/u",workdir="$PWD/upper/w" root
for each in /dev /proc {root}; do mkdir -p root$each; mount --rbind $each root$each; done
mkdir -p root/flow root{context}
# The interpreter may be in a directory of one user; the change is in the copy.
for each in {python}; do chmod o+x "root$each"; done
"""


def program(*words: str) -> str:
    return " ".join(f"'{word}'" for word in words)


def script(context: Path, volume: Path) -> str:
    """The steps of the file, in a new root."""
    python = [*map(str, Path(sys.base_prefix).resolve().parents)]
    lines = [PREPARE.format(root=ROOT, context=context, python=program(*python))]
    user = "0:0"
    entry = []
    command = []
    in_root = f"chroot root env PATH={Path(sys.executable).parent}:$PATH"
    for line in (ROOT / "contrib" / "container" / "Containerfile").read_text().splitlines():
        step, _, rest = line.partition(" ")
        match step:
            case "RUN" if not rest.startswith("pip install"):
                lines.append(f"{in_root} sh -c {program(rest)}")
            case "COPY":
                source, target = rest.replace("${FLOW}", "flow.py").split()
                lines.append(f"cp '{context / source}' root{target}")
            case "VOLUME":
                # A new volume has the owner of the directory that it covers.
                lines.append(f"chown --reference=root{rest} '{volume}'; mount --bind '{volume}' root{rest}")
            case "USER":
                user = rest
            case "ENTRYPOINT":
                entry = yaml.safe_load(rest)
            case "CMD":
                command = yaml.safe_load(rest)
    start = in_root.replace("chroot root", f"chroot --userspec={user} root")
    return "\n".join([*lines, f"exec {start} HOME=/ {program(*entry, *command)}"])


def test_the_steps_of_the_container_file_run(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("a new root needs the rights of root: run this test with `sudo -E`")
    context = tmp_path / "context"
    volume = tmp_path / "volume"
    place = tmp_path / "place"
    for folder in (context, volume, place):
        folder.mkdir()
    (context / "flow.py").write_text(FLOW)
    out = volume / "out.txt"
    log = tmp_path / "log"
    run = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", script(context, volume)]
    sizes = []
    for _ in range(2):
        with log.open("w") as said:
            outer = subprocess.Popen(run, cwd=place, stdout=said, stderr=said)
        before = out.stat().st_size if out.exists() else 0
        wait_for(lambda run=outer, before=before: is_larger(out, before) or run.poll() is not None, "output")
        assert outer.poll() is None, log.read_text()
        assert out.stat().st_uid == 65532
        [inner] = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        os.kill(int(inner), signal.SIGTERM)
        assert outer.wait(TIMEOUT) == 0, log.read_text()
        sizes.append(out.stat().st_size)
        for folder in place.iterdir():
            folder.rmdir()
    # The second container has resumed from the volume.
    assert sizes[0] < sizes[1]
    numbers = [int(line) for line in out.read_text().split()]
    assert numbers == list(range(len(numbers)))


def is_larger(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size > size
