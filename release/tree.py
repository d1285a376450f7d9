#!/usr/bin/env python3
"""Copies the commit that is released into target/release-tree, and prints its path.

Packages are built there, of what is committed. PyPI and crates.io show README without the files beside it:
its links lead to those of the version's tag.
"""

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "target" / "release-tree"


def version() -> str:
    return re.findall(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text("utf-8"), re.MULTILINE)[0]


def absolute(text: str, version: str) -> str:
    """The text with its relative links led to the repository, outside of blocks of code."""
    place = f"https://github.com/millstream/millstream/blob/v{version}/"
    parts = re.split(r"(^```.*?^```)", text, flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"\]\((?![a-z]+:|#)", f"]({place}", part) for part in parts[::2]]
    return "".join(parts)


def main() -> None:
    shutil.rmtree(TREE, ignore_errors=True)
    archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=ROOT)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(TREE)
    readme = TREE / "README.md"
    readme.write_text(absolute(readme.read_text("utf-8"), version()), "utf-8")
    print(TREE)


if __name__ == "__main__":
    main()
