"""What crates need: what features of ``millstream`` bring with them, by ``cargo tree``, and which Rust."""

import re
import subprocess
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def brought(*features: str) -> set[str]:
    """The crates of a program that uses ``millstream`` with these features alone."""
    tree = ["cargo", "tree", "--offline", "--edges", "normal,build", "--prefix", "none"]
    options = ["--package", "millstream", "--no-default-features", "--features", ",".join(features)]
    done = subprocess.run(tree + options, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {line.split()[0] for line in done.stdout.splitlines() if line}


def compile_c(crates: set[str]) -> set[str]:
    """Those that need a C compiler; the numbers of the kernel are Rust."""
    return {name for name in crates if name == "cc" or re.search(r"-sys$", name)} - {"linux-raw-sys"}


def test_a_journal_brings_no_format_of_text() -> None:
    crates = brought()
    assert "millstream-journal" in crates
    assert not crates & {"jiff", "saphyr", "saphyr-parser", "serde", "serde_json", "toml"}


def test_a_flow_needs_neither_yaml_nor_a_c_compiler() -> None:
    crates = brought("flow")
    assert "timely" in crates
    assert not crates & {"jiff", "saphyr", "saphyr-parser"}
    assert not compile_c(crates)
    assert "zstd-sys" in compile_c(brought("compression"))


def test_the_set_up_asks_for_the_rust_that_the_manifest_promises() -> None:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))
    promised = workspace["workspace"]["package"]["rust-version"]
    assert f"Rust {promised} or newer" in (ROOT / "tests" / "setup").read_text("utf-8")
