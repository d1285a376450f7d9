"""The programs in Rust of the guides, as rustdoc compiles and runs them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cargo_build import BUILD, FOLDER
from documents import GUIDE, ROOT, blocks

TIMEOUT = 250

FLOW = 'let flow = millstream::flow::Flow::new("a flow");'
WHOLE = ("flows.md", "journal.md", "queues.md", "time-and-windows.md")
"""Guides whose programs need nothing and end."""
BEFORE = {
    "testing.md": f"""{FLOW}
        let readings = flow.source("readings", millstream::flow::testing::items([0.0]));
        let alarms = millstream::flow::testing::Collected::new();
        readings.filter(|reading| *reading > 90.0).sink("alarms", alarms.sink());""",
    "replay.md": f"{FLOW} let start_ns = 0;",
    "services.md": "",
    "several-machines.md": FLOW,
    "systems.md": "",
    "two-machines.md": "",
}
"""What a reader has before the program, which is only compiled: it waits for others, or for a recording."""

END = "Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())"


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
    externs = [["--extern", f"{name}={found[name]}"] for name in ("millstream", "tokio")]
    return ["-L", f"dependency={FOLDER / 'deps'}", *sum(externs, [])]


def test_no_program_is_left_out() -> None:
    assert {guide.name for guide in GUIDE.glob("*.md") if blocks(guide, "rust")} == {*WHOLE, *BEFORE}


@pytest.mark.parametrize("name", [*WHOLE, *BEFORE])
def test_programs_compile_and_run(name: str, libraries: list[str], tmp_path: Path) -> None:
    attribute = "" if name in WHOLE else ",no_run"
    document, programs = tmp_path / name, blocks(GUIDE / name, "rust")
    with document.open("w") as out:
        for program in programs:
            if "fn main" not in program:
                program = f"{BEFORE.get(name, '')}\n{program}\n{END}\n"
            out.write(f"```rust{attribute}\n{program}```\n\n")
    command = ["rustdoc", "--test", "--edition", "2024", *libraries, str(document)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(programs)} passed" in done.stdout
