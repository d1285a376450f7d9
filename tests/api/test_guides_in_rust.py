"""The programs in Rust of the guides, as rustdoc compiles and runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cargo_build import BUILD, FOLDER
from documents import GUIDE, ROOT, blocks

TIMEOUT = 500
"""Seconds for the programs of a guide: on a busy machine some take minutes to compile."""

DESK = blocks(GUIDE / "services.md", "rust")[1].partition("fn main")[0]
"""The types of services.md."""
WHOLE = (
    "connectors.md",
    "flows.md",
    "joins.md",
    "journal.md",
    "operating.md",
    "outbox.md",
    "queues.md",
    "recovery.md",
    "replay.md",
    "testing.md",
    "testing-services.md",
    "time-and-windows.md",
    "types.md",
)
"""Guides whose programs need nothing and end. Those of the others are only compiled: they wait for others."""
BEFORE = {
    "services.md": DESK,
    "several-machines.md": 'let flow = millstream::flow::Flow::new("a flow");',
    "testing-services.md": DESK,
}
"""What a reader has before the program."""
RUST = sorted(guide.name for guide in GUIDE.glob("*.md") if blocks(guide, "rust"))

END = "Ok::<(), Box<dyn std::error::Error + Send + std::marker::Sync>>(())"


@pytest.fixture(scope="module")
def libraries() -> list[str]:
    """The arguments that let rustdoc find the crate and what its users need."""
    # The examples: what they need is compiled already, and is what the guides need.
    build = [*BUILD, "--examples", "--message-format", "json"]
    built = subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, str] = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        files = [name for name in message.get("filenames", ()) if name.endswith(".rlib")]
        if files:
            found[message["target"]["name"]] = files[0]
    externs = [["--extern", f"{name}={found[name]}"] for name in ("millstream", "serde", "tokio")]
    return ["-L", f"dependency={FOLDER / 'deps'}", *sum(externs, [])]


def test_tables_name_guides_with_programs() -> None:
    assert {*WHOLE, *BEFORE} <= {*RUST}


@pytest.mark.parametrize("name", RUST)
def test_programs_compile_and_run(name: str, libraries: list[str], tmp_path: Path) -> None:
    attribute = "" if name in WHOLE else ",no_run"
    document, programs = tmp_path / name, blocks(GUIDE / name, "rust")
    with document.open("w") as out:
        for program in programs:
            if "fn main" not in program:
                program = f"{BEFORE.get(name, '')}\n{{\n{program}\n}}\n{END}\n"
            out.write(f"```rust{attribute}\n{program}```\n\n")
    # One after the other: programs of a guide may use one directory.
    command = ["rustdoc", "--test", "--test-args=--test-threads=1", "--edition", "2024"]
    command = [*command, *libraries, str(document)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(programs)} passed" in done.stdout
