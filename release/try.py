#!/usr/bin/env python3
"""Installs the package as users do, with each of these interpreters, and runs release/smoke.py in it.

    release/try.py [--root DIR] [--from DIST] [--pages] [PYTHON...]      without: each python3.N in PATH

pip chooses the wheel of DIST (dist/). The environment is new and has no other programs in its path: there is
no compiler. With --pages, README and the tutorials run in it as they are written, with the programs of the
system and `ip` of iproute2, since each page has a network of its own. With --root, interpreters are those of
another root directory, as debootstrap makes it; of another processor if binfmt runs its programs by qemu.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "tutorial").glob("*.md"))]


def attempt(python: str, dist: Path, root: Path | None, pages: list[Path]) -> str:
    """One line of what was installed and what ran."""
    with tempfile.TemporaryDirectory(dir=root and root / "tmp") as name:
        folder = Path(name)
        for file in [ROOT / "release" / "smoke.py", ROOT / "tests" / "written.py", *pages]:
            shutil.copy(file, folder)
        shutil.copytree(
            dist, folder / "dist", ignore=lambda _, names: {one for one in names if not one.endswith(".whl")}
        )
        inside = "/" / folder.relative_to(root) if root else folder
        enter = ["chroot", str(root)] if root else []

        def run(*command: str | Path, path: str = f"{inside}/venv/bin") -> str:
            words = [
                *enter,
                "env",
                "-i",
                f"HOME={inside}",
                f"PATH={path}",
                f"TMPDIR={inside}",
                *map(str, command),
            ]
            done = subprocess.run(
                words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            if done.returncode != 0:
                sys.exit(f"release/try.py: {python}: {command[-1]} failed:\n{done.stdout}")
            return done.stdout

        run(python, "-m", "venv", inside / "venv", path="/usr/bin")
        pip = [inside / "venv" / "bin" / "python", "-m", "pip", "install", "--only-binary", ":all:"]
        if "3.10." in run(inside / "venv" / "bin" / "python", "--version"):
            run(*pip, "tomli>=2")
        # Not a package of this name elsewhere.
        said = run(*pip, "--no-index", "--find-links", inside / "dist", "millstream")
        wheel = re.findall(r"millstream-\S+\.whl", said)[0]
        size = (dist / wheel).stat().st_size
        tried = run("python", inside / "smoke.py").strip()
        if pages:
            # What the tutorials install.
            run(*pip, "pytest", "pymemcache")
            path = f"{inside}/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            run("python", inside / "written.py", *(inside / page.name for page in pages), path=path)
            tried += f"; {len(pages)} pages as written"
        return f"{wheel} ({size / 1e6:.1f} MB): {tried}"


def runs(python: str) -> bool:
    """Whether there is this interpreter; a shim of pyenv may be one that is not chosen."""
    return (
        bool(shutil.which(python))
        and subprocess.run([python, "--version"], capture_output=True).returncode == 0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Installs the package with interpreters, and tries it.")
    parser.add_argument("--root", type=Path, help="another root directory, in which the interpreters are")
    parser.add_argument(
        "--from", dest="dist", type=Path, default=ROOT / "dist", help="the folder of the wheels"
    )
    parser.add_argument("--pages", action="store_true", help="run README and the tutorials too")
    parser.add_argument("python", nargs="*", help="an interpreter, such as python3.13 (default: all of PATH)")
    options = parser.parse_args()
    names = [f"python3.{minor}" for minor in range(10, 20)]
    for python in options.python or filter(runs, names):
        found = python if options.root else shutil.which(python)
        if found is None:
            sys.exit(f"release/try.py: there is no {python} in PATH")
        root = options.root and options.root.resolve()
        print(attempt(found, options.dist.resolve(), root, PAGES if options.pages else []), flush=True)


if __name__ == "__main__":
    main()
