"""The programs in Rust of the guides, as rustdoc runs them, and the links of the documentation."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from cargo_build import BUILD, FOLDER
from documents import GUIDE, ROOT, blocks
from packages import published

TIMEOUT = 500
"""Seconds for the programs of a guide: on a busy machine some take minutes to compile."""

DESK = blocks(GUIDE / "services.md", "rust")[1].partition("fn main")[0]
"""The types of services.md."""
WHOLE = (
    "flows.md",
    "joins.md",
    "journal.md",
    "operating.md",
    "queues.md",
    "replay.md",
    "running.md",
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
def built() -> dict[str, str]:
    """The files of the compiled libraries, by name."""
    # The examples: what they need is compiled already, and is what the guides need.
    build = [*BUILD, "--examples", "--message-format", "json"]
    built = subprocess.run(build, cwd=ROOT, check=True, capture_output=True, text=True)
    found: dict[str, str] = {}
    for line in built.stdout.splitlines():
        message = json.loads(line)
        files = [name for name in message.get("filenames", ()) if name.endswith((".rlib", ".so"))]
        if files:
            found[message["target"]["name"]] = files[0]
    return found


def libraries(built: dict[str, str], *names: str) -> list[str]:
    """The arguments that let rustdoc find libraries."""
    externs = [["--extern", f"{name}={built[name]}"] for name in names]
    return ["-L", f"dependency={FOLDER / 'deps'}", *sum(externs, [])]


def test_tables_name_guides_with_programs() -> None:
    assert {*WHOLE, *BEFORE} <= {*RUST}


@pytest.mark.parametrize("name", RUST)
def test_programs_compile_and_run(name: str, built: dict[str, str], tmp_path: Path) -> None:
    attribute = "" if name in WHOLE else ",no_run"
    document = tmp_path / name
    programs = blocks(GUIDE / name, "rust")
    with document.open("w") as out:
        for program in programs:
            if "fn main" not in program:
                program = f"{BEFORE.get(name, '')}\n{{\n{program}\n}}\n{END}\n"
            out.write(f"```rust{attribute}\n{program}```\n\n")
    # One after the other: programs of a guide may use one directory.
    command = ["rustdoc", "--test", "--test-args=--test-threads=1", "--edition", "2024"]
    command = [*command, *libraries(built, "axum", "millstream", "serde", "tokio"), str(document)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(programs)} passed" in done.stdout


FEATURES: dict[str, list[str]] = published()["millstream"]["features"]


def turned_on(*features: str) -> set[str]:
    """These features of the crate, and those that they turn on."""
    on = set(features)
    while more := {other for one in on for other in FEATURES[one] if other in FEATURES} - on:
        on |= more
    return on


@pytest.mark.parametrize("features", [(), *((name,) for name in FEATURES), tuple(FEATURES)], ids="+".join)
def test_links_in_the_documentation_lead_somewhere(
    features: tuple[str, ...], built: dict[str, str], tmp_path: Path
) -> None:
    """With any features; the crates that it shows are compiled with all."""
    crates = [name.replace("-", "_") for name in published() if name != "millstream"]
    command = [
        "rustdoc",
        "--crate-name",
        "millstream",
        "--edition",
        "2024",
        "-D",
        "warnings",
        "-o",
        str(tmp_path),
    ]
    command += libraries(built, *(name for name in crates if name in built))
    for feature in turned_on(*features):
        command += ["--cfg", f'feature="{feature}"']
    done = subprocess.run(
        [*command, str(ROOT / "crates" / "millstream" / "src" / "lib.rs")],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    # What a user of the crate looks for has a page in its documentation.
    pages = {"flow": "flow/struct.Flow.html", "queue": "queue/embedded/struct.Queues.html"}
    pages |= {"service": "service/struct.Service.html"}
    for feature, page in pages.items():
        assert (tmp_path / "millstream" / page).exists() == (feature in turned_on(*features))
    assert (tmp_path / "millstream" / "journal" / "struct.Journal.html").exists()
