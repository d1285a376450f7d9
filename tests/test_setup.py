"""What `tests/setup` says where it cannot install what is missing."""

import shutil
import subprocess
from pathlib import Path

import pytest
from documents import ROOT

BARE = ("bash", "dirname", "id", "grep")
"""The programs of the machine of these tests: it has neither apt-get nor sudo."""


def setup(stage: str, *programs: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs it with a path of the bare programs and of these, each of which succeeds."""
    for name in BARE:
        (folder / name).symlink_to(str(shutil.which(name)))
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": str(folder)}
    return subprocess.run(
        ["bash", ROOT / "tests" / "setup", stage], env=environment, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (
            "demo",
            [
                "Rust 1.95",
                "a C compiler",
                "Python 3.10",
                "apt-get install",
                "build-essential python3 python3-venv\n",
            ],
        ),
        ("lint", ["Rust 1.95", "clippy", "headers of OpenSSL", " libssl-dev pkg-config "]),
        ("test", ["headers of OpenSSL", "javac", "promtool", " prometheus ", " systemd\n"]),
    ],
)
def test_one_line_says_all_that_is_missing(stage: str, says: list[str], tmp_path: Path) -> None:
    done = setup(stage, folder=tmp_path)
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith(f"tests/setup {stage}: missing: ") and done.stderr.count("\n") == 1
    assert [text for text in says if text not in done.stderr] == []


def test_what_is_there_is_not_missing(tmp_path: Path) -> None:
    compilers = ("cargo", "cc", "c++", "python3")
    for name in ("without", "with"):
        (tmp_path / name).mkdir()
    done = setup("lint", *compilers, folder=tmp_path / "without")
    assert done.returncode == 2
    assert done.stderr == (
        "tests/setup lint: missing: headers of OpenSSL; as root, on Debian and Ubuntu: "
        "apt-get install --yes --quiet --no-install-recommends libssl-dev pkg-config\n"
    )
    done = setup("lint", *compilers, "pkg-config", folder=tmp_path / "with")
    assert (done.returncode, done.stderr) == (0, "")
