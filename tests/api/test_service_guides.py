"""The guides of services, as a new user would follow them: the blocks are run in their order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from documents import GUIDE, ROOT, blocks
from servers import free_port

TIMEOUT = 60


def millstream(folder: Path, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "millstream", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def python(folder: Path, program: str) -> None:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr


def session(block: str) -> list[tuple[list[str], str]]:
    """The commands of a block, without comments, each with what it prints."""
    parts = re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
    pairs = (part.split("\n", 1) for part in parts)
    return [(line.split("#")[0].split(), printed) for line, printed in pairs]


def timeless(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with the component of the guide, and an order in a journal."""
    interface, component, publish = blocks(GUIDE / "services.md", "python")[:3]
    (tmp_path / "desk.py").write_text(interface + component)
    python(tmp_path, publish)
    return tmp_path


def test_the_desk_in_rust_is_the_example() -> None:
    program = (ROOT / "examples" / "desk" / "main.rs").read_text()
    assert (
        program
        == "//! An order desk and a client of it: the program of docs/guide/services.md.\n\n"
        + blocks(GUIDE / "services.md", "rust")[1]
    )


def test_the_desk_in_rust_resumes_where_it_was_killed(rust_examples: Path, tmp_path: Path) -> None:
    program = rust_examples / "desk"
    export = [sys.executable, "-m", "millstream", "service", "export", "replies"]
    for life in (1, 2):
        subprocess.run([program, "place"], cwd=tmp_path, check=True, timeout=TIMEOUT)
        deadline = time.monotonic() + TIMEOUT
        totals: list[str] = []
        desk = subprocess.Popen([program], cwd=tmp_path)
        try:
            while len(totals) < 3 * life:
                assert time.monotonic() < deadline and desk.poll() is None
                time.sleep(0.05)
                # There may be no journal yet.
                shown = subprocess.run(export, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
                totals = re.findall(r"total: ([\d.]+)", shown.stdout)
        finally:
            desk.kill()
            desk.wait()
        assert [float(total) for total in totals] == [725.0 * (n + 1) for n in range(3 * life)]


def test_the_first_service_prints_what_the_guide_says(desk: Path) -> None:
    shell = [block for block in blocks(GUIDE / "services.md", "") if block.startswith("$")]
    ((run, _),) = session(shell[0])
    assert run[0] == "millstream"
    millstream(desk, *run[1:], "--drain")
    for command, printed in session(shell[1]):
        found = timeless(millstream(desk, *command[1:]))
        # Dots stand for the rest of a call.
        for line in timeless(printed).replace("      ...\n", "").splitlines(keepends=True):
            assert line in found, command


def test_a_union_is_written_as_the_guide_says(desk: Path) -> None:
    imports = (
        "from dataclasses import dataclass\nfrom typing import Annotated, Protocol\nimport millstream as ms\n"
    )
    union = blocks(GUIDE / "services.md", "python")[3]
    python(desk, f"{imports}{union}ms.publisher(Events, 'events').happened(Placed('A-1', 7))")
    found = millstream(desk, "service", "export", "events")
    assert "happened:\n  Placed:\n    id: A-1\n" in found


def test_a_durable_publisher_as_the_guide_says(desk: Path) -> None:
    program = blocks(GUIDE / "service-recovery.md", "python")[2]
    assert 'sync="always"' in program
    python(desk, program)
    assert "id: A-2" in millstream(desk, "service", "export", "orders")


def test_a_gateway_runs_as_the_guide_says(desk: Path) -> None:
    """The shell session of the guide to the gateway, on a port that is free."""
    (file,) = blocks(GUIDE / "gateway.md", "toml")
    (session,) = blocks(GUIDE / "gateway.md", "sh")
    port = str(free_port())
    (desk / "desk.toml").write_text(file.replace("8080", port))
    shell = in_shell(desk, session.replace("8080", port))
    assert shell.returncode == 0, shell.stdout + shell.stderr
    assert re.search(r'^{"journal":"orders","sequence":\d+}$', shell.stdout, re.MULTILINE), shell.stdout
    assert 'new_order.order.quantity: expected f64, found "many"\n' in shell.stdout
    assert '"method":"accepted","arguments":{"id":"A-2","total":' in (desk / "feed").read_text()


def in_shell(desk: Path, session: str) -> subprocess.CompletedProcess[str]:
    """Runs a session in which `millstream` and `python` are those of the tests."""
    (desk / "millstream").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m millstream "$@"\n')
    (desk / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    for name in ("millstream", "python"):
        (desk / name).chmod(0o755)
    return subprocess.run(
        ["timeout", "-k", "1", str(TIMEOUT), "bash", "-e", "-c", session],
        cwd=desk,
        env=os.environ | {"PATH": f"{desk}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )


def test_a_system_runs_as_the_guide_says(desk: Path) -> None:
    """The shell session of the guide, from the start of the system to its end."""
    (report,) = blocks(GUIDE / "systems.md", "python")
    (file,) = blocks(GUIDE / "systems.md", "toml")
    (session,) = blocks(GUIDE / "systems.md", "sh")
    (desk / "report.py").write_text(report)
    (desk / "desk.toml").write_text(file)
    shell = in_shell(desk, session)
    assert shell.returncode == 0, shell.stdout + shell.stderr
    # The order of the fixture, and that of the session.
    for pattern in (r"^service +state", r"^desk +running", r"^report +running", r"Z INFO    desk: stopped$"):
        assert re.search(pattern, shell.stdout, re.MULTILINE), shell.stdout
    assert millstream(desk, "service", "export", "totals").count("counted:") == 2
    status = [block for block in blocks(GUIDE / "systems.md", "") if block.startswith("service  state")]
    shown = millstream(desk, "service", "status", "desk.toml")
    assert shown.splitlines()[0].split() == status[0].splitlines()[0].split()
    latency = [block for block in blocks(GUIDE / "systems.md", "") if block.startswith("hop ")]
    found = millstream(desk, "service", "history", "--latency", "totals")
    names = [re.split(r"  +", line)[:2] for line in found.splitlines()[:4]]
    assert names == [re.split(r"  +", line)[:2] for line in latency[0].splitlines()[:4]]
    assert "2 calls, 0 of them from outside" in found


def test_the_keys_that_the_guide_lists_are_those_that_there_are(desk: Path) -> None:
    text = (GUIDE / "system-file.md").read_text()
    parts = re.split(r"^## `\[(\w+)[^\n]*$", text, flags=re.MULTILINE)
    for table, part in zip(parts[1::2], parts[2::2], strict=True):
        listed = set(re.findall(r"^\| `(\w+)` \|", part.split("\n## ")[0], re.MULTILINE))
        head = {"services": "services.x", "journals": "journals.b", "processes": "processes.x"}
        service = '[services.x]\ncomponent = "desk.py:Desk"\nin = "a"\nout = "b"\n'
        service = service if table != "services" else service + "unknown = 1\n"
        more = "" if table == "services" else f"[{head.get(table, table)}]\nunknown = 1\n"
        more += 'listen = "unix:socket"\n' if table == "gateway" else ""
        (desk / "desk.toml").write_text(service + more)
        command = [sys.executable, "-m", "millstream", "service", "up", "desk.toml"]
        done = subprocess.run(command, cwd=desk, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 2, done.stderr
        known = set(done.stderr.split("known are ")[1].strip().split(", "))
        assert known == listed, table


@pytest.mark.parametrize("rebuild", ["snapshot", "outputs"])
def test_a_state_comes_back_as_the_guide_says(desk: Path, rebuild: str) -> None:
    publish = blocks(GUIDE / "services.md", "python")[2]
    for block in blocks(GUIDE / "service-recovery.md", "python")[:2]:
        with (desk / "more.py").open("a") as file:
            file.write(block)
    name = {"snapshot": "Keeping", "outputs": "Rebuilt"}[rebuild]
    run = ["service", "run", f"more.py:{name}", "--in", "orders", "--out", "replies", "--rebuild", rebuild]
    for total in (7250.0, 14500.0, 21750.0):
        assert millstream(desk, *run, "--drain").startswith("calls ")
        assert f"total: {total}" in millstream(desk, "service", "export", "replies")
        python(desk, publish)


def test_replay_and_diff_as_the_guide_says(desk: Path) -> None:
    replay, diff = re.findall(
        r"`(millstream service (?:replay|diff) [^`]*)`", (GUIDE / "service-versions.md").read_text()
    )
    assert millstream(desk, *replay.split()[1:]) == "accepted:\n  id: A-1\n  total: 7250.0\n"
    (desk / "new.py").write_text(
        "import desk\n\n\nclass Desk(desk.Desk):\n"
        "    def new_order(self, order: desk.NewOrder) -> None:\n"
        "        self.replies.rejected(order.id, 'closed')\n"
    )
    found = millstream(desk, *diff.split()[1:], code=1)
    assert "-accepted:" in found and "+  reason: closed" in found


def test_a_unit_test_as_the_guide_says(desk: Path) -> None:
    units = blocks(GUIDE / "testing-services.md", "python")
    assert len(units) == 2
    for unit in units:
        python(desk, unit)


def test_tests_as_data_as_the_guide_says(desk: Path) -> None:
    test = desk / "tests" / "limits"
    test.mkdir(parents=True)
    (desk / "tests" / "component").write_text("../desk.py:Desk\n")
    (test / "in.yaml").write_text("new_order: {id: A-1, quantity: 100, price: 72.5}\n")
    (test / "out.yaml").write_text("accepted:\n  id: A-1\n  # what the guide says\n  total: 7200.0\n")
    found = millstream(desk, "service", "test", "tests/limits", code=1)
    shown = next(block for block in blocks(GUIDE / "testing-services.md", "") if block.startswith("$"))
    for line in (
        "tests/limits/out.yaml:",
        "--- expected",
        "+++ found",
        "-  total: 7200.0",
        "+  total: 7250.0",
    ):
        assert line in shown and line in found
    millstream(desk, "service", "test", "tests/limits", "--update")
    assert "# what the guide says\n  total: 7250.0\n" in (test / "out.yaml").read_text()
    assert millstream(desk, "service", "test", "tests/limits", "--agitate", "--update")
    assert "failed 0" in millstream(desk, "service", "test", "tests/limits", "--agitate")


def test_a_recorded_journal_becomes_a_test_as_the_guide_says(desk: Path) -> None:
    (command,) = re.findall(
        r"`millstream (journal export [^`]*--out ([^`]*))`", (GUIDE / "testing-services.md").read_text()
    )
    publish = blocks(GUIDE / "services.md", "python")[2]
    python(desk, f"for _ in range(250):\n    {publish.replace(chr(10), chr(10) + '    ')}")
    target = desk / command[1]
    target.parent.mkdir(parents=True)
    # Each process wrote the schema before its call.
    millstream(desk, *command[0].split())
    assert target.read_text().count("new_order:") == 50
    (target.parent / "component").write_text("../../desk.py:Desk\n")
    millstream(desk, "service", "test", str(target.parent), "--update")
    assert "passed 1, failed 0" in millstream(desk, "service", "test", str(target.parent))
    assert (target.parent / "out.yaml").read_text().count("accepted:") == 50
