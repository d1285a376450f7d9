"""Flows on a disk whose syncs fail: no epoch is committed before its output is synced, the last one included.

The calls of the system fail by a library that is loaded before Python, see `failing_sync.c`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

FLOW = """
import sys
from pathlib import Path

import millstream as ms

kind, switch, folder, workers = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])


def fail_from_here(text: str) -> str:
    switch.touch()
    return text


flow = ms.Flow("syncs")
texts = flow.source("in", ms.testing.items(["a", "b", "c"])).map(fail_from_here)
match kind:
    case "file":
        texts.sink("out", ms.files.write(folder / "out"))
    case "journal":
        texts.map(str.encode).sink("out", ms.journals.append(folder / "out"))
# All input is in one epoch, which is committed after the writers have closed.
ms.run(flow, state=folder / "state", epoch=3600, workers=workers)
"""


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["file", "journal"])
def test_the_last_epoch_is_not_committed_before_its_output_is_synced(
    failing: Path, tmp_path: Path, kind: str, workers: int
) -> None:
    program = tmp_path / "flow.py"
    program.write_text(FLOW)
    ran = subprocess.run(
        [sys.executable, program, kind, failing, tmp_path, str(workers)], capture_output=True, text=True
    )
    # Syncs of the state fail too: the one of the output comes first.
    assert ran.returncode == 1 and 'sink "out"' in ran.stderr.splitlines()[-1], ran.stderr


NAMES = """
import sys
from pathlib import Path

import millstream as ms

kind, folder = sys.argv[1], Path(sys.argv[2])
if kind == "queues":
    ms.Queues(folder / "made" / "queues").close()
    sys.exit()
flow = ms.Flow("names")
source = ms.testing.items(["a", "b", "c"])
texts = flow.source("in", source.durable() if kind == "durable" else source)
texts.sink("out", ms.files.write(folder / "new" / "out") if kind == "file" else ms.testing.collect())
ms.run(flow, state=folder / "made" / "state")
"""


@pytest.mark.parametrize(
    ("kind", "synced"),
    [
        ("file", "new"),
        ("state", "."),
        ("state", "made"),
        ("durable", "made/state"),
        ("durable", "made/state/inputs"),
        ("queues", "."),
        ("queues", "made"),
    ],
)
def test_names_of_new_files_and_directories_are_synced(
    failing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, synced: str
) -> None:
    """A loss of power takes a file whose directory was not synced. Each one here gets a new name."""
    (tmp_path / "new").mkdir()
    program = tmp_path / "flow.py"
    program.write_text(NAMES)
    failing.touch()
    monkeypatch.setenv("FAIL_SYNC_OF", str((tmp_path / synced).resolve()))
    ran = subprocess.run([sys.executable, program, kind, tmp_path], capture_output=True, text=True)
    assert ran.returncode == 1 and "Input/output error" in ran.stderr.splitlines()[-1], ran.stderr
