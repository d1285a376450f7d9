"""``millstream service`` as processes: run, kill, restart, test, replay, diff, export, history."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import millstream as ms
import pytest
from flow_traffic import journal_length

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "orders"
TIMEOUT = 60


def service(*arguments: object, cwd: Path = EXAMPLE) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", "service", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journal with an account and orders for it; every fifth is above the limit of a single order."""
    # Another test of this process may have imported another module of this name.
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    monkeypatch.syspath_prepend(EXAMPLE)
    import desk

    journal = tmp_path / "orders"
    out = ms.publisher(desk.Orders, journal)
    out.set_limit("ACCT-1", 1e9)
    for number in range(2_000):
        price = 2e9 if number % 5 == 4 else 1.0
        out.new_order(desk.NewOrder(f"A-{number}", "ACCT-1", "VOD.L", "1", 1.0, price))
    return journal


def test_a_service_is_killed_again_and_again_and_answers_each_order_once(
    orders: Path, tmp_path: Path
) -> None:
    replies = tmp_path / "replies"
    run = ["service", "run", "desk.py:Desk", "--in", str(orders), "--out", str(replies)]
    for kill in range(5):
        process = subprocess.Popen([sys.executable, "-m", "millstream", *run], cwd=EXAMPLE)
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and not replies.exists():
            time.sleep(0.01)
        time.sleep(0.02 * kill)
        process.send_signal(signal.SIGKILL)
        process.wait(TIMEOUT)
    done = service("run", "desk.py:Desk", "--in", orders, "--out", replies, "--drain")
    assert done.returncode == 0, done.stderr
    export = service("export", replies).stdout
    ids = [line.split()[-1] for line in export.splitlines() if line.startswith("  id: ")]
    assert ids == [f"A-{number}" for number in range(2_000)]
    assert export.count("\nrejected:") == 400


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well(number: int, orders: Path, tmp_path: Path) -> None:
    replies = tmp_path / "replies"
    command = [
        "-m",
        "millstream",
        "service",
        "run",
        "desk.py:Desk",
        "--in",
        str(orders),
        "--out",
        str(replies),
    ]
    process = subprocess.Popen([sys.executable, *command], cwd=EXAMPLE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and journal_length(replies) < 2_000:
        time.sleep(0.01)
    process.send_signal(number)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    assert out == "calls 2001, ticks 0, skipped 0, dead letters 0\n"


WAITING = """
import os, time
from typing import Protocol
class Numbers(Protocol):
    def number(self, n: int) -> None: ...
class Doubles(Protocol):
    def double(self, n: int) -> None: ...
class Waiting(Numbers):
    \"\"\"Its call ends when there is a file `go`.\"\"\"
    def __init__(self, doubles: Doubles) -> None:
        self.doubles = doubles
    def number(self, n: int) -> None:
        open(f"in-{n}", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        self.doubles.double(2 * n)
"""


@pytest.mark.parametrize("rebuilding", [False, True])
def test_a_signal_ends_it_after_the_current_call(rebuilding: bool, tmp_path: Path) -> None:
    (tmp_path / "waiting.py").write_text(WAITING)
    program = "import millstream as ms, waiting\nout = ms.publisher(waiting.Numbers, 'numbers')\n"
    program += "for n in range(100): out.number(n)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=TIMEOUT)
    run = ["run", "waiting.py:Waiting", "--in", "numbers", "--out", "doubles"]
    if rebuilding:  # the call is one that the start repeats
        (tmp_path / "go").touch()
        assert service(*run, "--drain", cwd=tmp_path).returncode == 0
        (tmp_path / "go").unlink()
        (tmp_path / "in-0").unlink()
    command = [sys.executable, "-m", "millstream", "service", *run]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and not (tmp_path / "in-0").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    time.sleep(0.1)  # the signal comes before the end of the call
    (tmp_path / "go").touch()
    out, _ = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0
    calls = 0 if rebuilding else 1
    assert out == f"calls {calls}, ticks 0, skipped 0, dead letters 0\n"
    assert service("export", "doubles", cwd=tmp_path).stdout.count("double:") == (100 if rebuilding else 1)


def test_the_example_passes_its_own_test() -> None:
    done = service("test", "tests/limits", "--agitate")
    assert (done.returncode, done.stdout) == (0, "passed 93, failed 0\n"), done.stderr


def test_the_pytest_plugin_collects_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull]
    command += ["--rootdir", str(tmp_path), "-p", "no:cacheprovider", str(EXAMPLE / "tests")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_replay_diff_export_and_history(orders: Path, tmp_path: Path) -> None:
    assert (
        service("run", "desk.py:Desk", "--in", orders, "--out", tmp_path / "replies", "--drain").returncode
        == 0
    )
    done = service("replay", "desk.py:Desk", "--in", orders, "--until", 3)
    assert done.stdout.count("accepted:") == 2
    (tmp_path / "strict.py").write_text(
        "import desk\n"
        "class Strict(desk.Desk):\n"
        "    def objection(self, order, exposure):\n"
        "        return 'no' if order.id == 'A-7' else super().objection(order, exposure)\n"
    )
    strict = f"{tmp_path / 'strict.py'}:Strict"
    done = service("diff", "desk.py:Desk", "desk.py:Desk", "--in", orders)
    assert (done.returncode, done.stdout) == (0, "no difference in 2001 calls\n")
    done = service("diff", "desk.py:Desk", strict, "--in", orders)
    assert done.returncode == 1
    assert "+  reason: 'no'" in done.stdout.replace('"', "'")
    # Only the calls whose outputs differ are shown, each with its method and time.
    assert done.stdout.startswith(f"--- desk.py:Desk\n+++ {strict}\n@@ {orders}, record 9, new_order at 2")
    shown = done.stdout.count("\n@@ ")
    assert re.search(rf"\n{shown} of \d+ calls have other outputs\n$", done.stdout), done.stdout
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "service", "diff", "desk.py:Desk", strict, "--in", orders],
        cwd=EXAMPLE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert (process.stderr.read(), process.wait(60)) == (b"", 0)
    done = service("export", orders, "--from", 1, "--to", 1)
    assert done.stdout.startswith("# record 1\nat: 20") and "set_limit:" in done.stdout
    done = service("history", tmp_path / "replies", 2)
    assert [line.split("  ")[1] for line in done.stdout.splitlines() if line[0] != " "] == [
        f"{tmp_path / 'replies'}, record 2",
        f"{orders}, record 2",
    ]


def test_a_shell_may_name_all_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "component").write_text(f"{EXAMPLE / 'desk.py'}:Desk")
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "in.yaml").write_text("set_limit: {account: A, value: 1.0}\n")
    (tmp_path / "one" / "out.yaml").write_text("")
    done = service("test", *sorted(tmp_path.iterdir()))
    assert (done.returncode, done.stdout) == (0, "passed 1, failed 0\n"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["run", "desk.py", "--in", "x"], 2, "service run: desk.py: expected MODULE:CLASS"),
        (["run", "desk.py:Nobody", "--in", "x"], 2, "service run: desk has no class Nobody"),
        (["run", "no.py:Desk", "--in", "x"], 2, "no.py: no such file"),
        (
            ["replay", "desk.py:Desk", "--in", "no-such-journal"],
            1,
            "no-such-journal: there is no journal here",
        ),
        (["export", "no-such-journal"], 1, "no-such-journal: there is no journal here"),
        (["history", "no-such-journal", "x"], 2, "'x' is no number"),
        (["test", "no-such-folder"], 2, "no-such-folder: no such folder"),
        (["test", "."], 2, "give --component"),
        (["fly"], 2, "invalid choice: 'fly'"),
        (["run", "desk.py:NewOrder", "--in", "x"], 1, "NewOrder derives from no interface"),
    ],
)
def test_bad_usage_is_one_clear_line(arguments: list[str], code: int, text: str) -> None:
    done = service(*arguments)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_component_that_raises_shows_its_own_traceback(orders: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import desk\n"
        "class Broken(desk.Desk):\n"
        "    def new_order(self, order):\n"
        "        raise LookupError('no book for ' + order.symbol)\n"
    )
    done = service("run", f"{tmp_path / 'broken.py'}:Broken", "--in", orders, "--drain")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert "broken.py" in done.stderr and "service.py" not in done.stderr
    assert (
        lines[-1] == f"millstream service run: {orders}, record 2: new_order: LookupError: no book for VOD.L"
    )


def test_services_follow_each_other_in_processes_of_their_own(orders: Path, tmp_path: Path) -> None:
    (tmp_path / "audit.py").write_text(
        "import desk\n"
        "class Audit(desk.Replies):\n"
        "    def __init__(self, replies: desk.Replies):\n"
        "        self.replies = replies\n"
        "    def accepted(self, id, exposure, at): self.replies.accepted(id, exposure, at)\n"
        "    def rejected(self, id, reason, at): self.replies.rejected(id, reason, at)\n"
        "    def canceled(self, id, exposure): self.replies.canceled(id, exposure)\n"
    )
    replies = tmp_path / "replies"
    audit = tmp_path / "audit"
    chain = [
        [
            f"{tmp_path / 'audit.py'}:Audit",
            "--in",
            replies,
            "--out",
            audit,
            "--until",
            2_000,
            "--wait-for-inputs",
        ],
        ["desk.py:Desk", "--in", orders, "--out", replies, "--until", 2_001],
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "millstream", "service", "run", *map(str, arguments)], cwd=EXAMPLE
        )
        for arguments in chain
    ]
    assert [process.wait(TIMEOUT) for process in running] == [0, 0]
    exports = [service("export", journal).stdout.splitlines() for journal in (replies, audit)]
    same = [[line for line in export if line[:1] != "#" and line[:3] != "at:"] for export in exports]
    assert same[0] == same[1] and len(same[0]) > 6_000
