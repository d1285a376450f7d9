"""How verbs end: exit codes, the last line of standard error, closed and broken pipes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

PROGRAM = """
import asyncio
import time

import millstream as ms

flow = ms.Flow("numbers")
numbers = flow.source("in", ms.testing.items(range(1000)))
numbers.key_by(lambda n: n % 3, name="key").count("each", name="count").items().sink("out", ms.stdout())

failing = ms.Flow("failing")
failing.source("in", ms.testing.items([1])).map(lambda n: 1 // 0, name="divide").sink("out", ms.stdout())


def cancel(n):
    raise asyncio.CancelledError("gone")


cancelled = ms.Flow("cancelled")
cancelled.source("in", ms.testing.items([7])).map(cancel, name="call").sink("out", ms.stdout())

odd = ms.Flow("odd")
odd.source("in", ms.testing.items(["a\\x1b[2J\\r"])).map(int, name="n\\x07").sink("out", ms.stdout())

endless = ms.Flow("endless")
endless.source("in", ms.generate(lambda: iter(int, 1), rate=100)).sink("out", ms.testing.discard())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(PROGRAM)
    return tmp_path


def verb(folder: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=30, **more)


BAD_USAGE = [
    (["run", "flow.py", "--http", "70000"], "'70000' is no address like 8080"),
    (["run", "flow.py", "--state", "flow.py"], "--state DIR: flow.py is a file, not a directory"),
    (["run", "flow.py", "--epoch", "soon"], "'soon' is no length of time"),
    (["run", "flow.py", "--shards", "3"], "--shards is a power of two"),
    (["queue", "serve", "--dir", "queues", "--http", "70000"], "'70000' is no address like 8080"),
    (["top", "70000"], "'70000' is no address like 8080, :8080 or 127.0.0.1:8080, and no directory"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_USAGE)
def test_bad_usage_exits_with_2(arguments: list[str], message: str, folder: Path) -> None:
    done = verb(folder, *arguments)
    assert done.returncode == 2 and message in done.stderr, done
    assert len(done.stderr.splitlines()) == 1 or arguments[0] in ("queue", "top")


def test_a_misspelt_name_drops_nothing(folder: Path) -> None:
    assert verb(folder, "run", "flow.py", "--state", "state").returncode == 0
    done = verb(folder, "run", "flow.py", "--state", "state", "--drop-state", "cuont")
    assert done.returncode == 2, done
    assert "--drop-state cuont" in done.stderr.replace('"', "") and '"count", ' in done.stderr
    done = verb(folder, "run", "flow.py", "--state", "state", "--drop-state", "count")
    assert done.returncode == 0, done


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "flow.py:failing"], 1),
        (["run", "flow.py:nothing"], 2),
        (["run", "flow.py:failing", "--state", "state", "--processes", "2"], 1),
        (["queue", "serve", "--dir", "flow.py"], 1),
        (["journal", "serve", "flow.py"], 1),
        (["service", "run", "flow.py:Nothing", "--in", "in"], 2),
        (["service", "gateway", "nowhere", "--feed", "nothing"], 1),
    ],
)
def test_the_last_error_is_json_in_a_log_of_json(arguments: list[str], code: int, folder: Path) -> None:
    done = verb(folder, *arguments, "--log", "json")
    assert done.returncode == code, done
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    last = lines[-1]
    name = " ".join(arguments[:2]) if arguments[0] in ("queue", "journal", "service") else arguments[0]
    assert (last["level"], last["verb"], last["exit_code"]) == ("error", name, code), last
    if arguments[1] == "flow.py:failing":
        assert "ZeroDivisionError" in last["message"]
        assert any("Traceback" in line.get("exception", "") for line in lines), lines
    text = verb(folder, *arguments).stderr.partition("\nsee https:")[0].splitlines()[-1]
    assert text == f"millstream {name}: {last['message']}"


def test_a_cancelled_call_names_step_and_item(folder: Path) -> None:
    done = verb(folder, "run", "flow.py:cancelled")
    last = done.stderr.partition("\nsee https:")[0].splitlines()[-1]
    assert done.returncode == 1 and 'step "call", item 7' in last and "CancelledError: gone" in last, done
    assert 'raise asyncio.CancelledError("gone")' in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "run flow.py",
        "demo --seconds 1 --rate 1000 --json",
        "doctor --json",
        "run --help",
        "service --help",
        "queue --help",
        "completions bash",
    ],
)
def test_a_closed_output_is_none(command: str, folder: Path) -> None:
    done = verb(folder, "--version")
    line = f"{sys.executable} -m millstream {command} >&-"
    done = subprocess.run(["bash", "-c", line], cwd=folder, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == (1 if command.startswith("doctor") and "changed" in done.stderr else 0), done
    assert "Error" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "code"),
    [("run flow.py", 141), ("demo --seconds 1 --rate 1000", 0), ("completions zsh", 0), ("run --help", 0)],
)
def test_a_reader_that_ends_is_no_error(command: str, code: int, folder: Path) -> None:
    line = f"{sys.executable} -m millstream {command} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=folder, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == code, done
    assert "Broken" not in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_an_export_shows_its_progress_on_a_terminal_and_clears_it(folder: Path) -> None:
    with ms.Journal(folder / "journal") as journal:
        journal.append_many([b"x"] * 10_000)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "millstream", "journal", "export", "journal", "--out", "lines"]
    with subprocess.Popen(command, cwd=folder, stderr=theirs) as export:
        os.close(theirs)
        shown = b""
        # A terminal that nobody has open any more is an error of reading.
        with contextlib.suppress(OSError):
            while some := os.read(ours, 65536):
                shown += some
    os.close(ours)
    assert export.returncode == 0
    assert shown.startswith(b"\r\x1b[K4096 of 10000 records, 40%") and shown.endswith(b"%\r\x1b[K"), shown
    assert len((folder / "lines").read_text().splitlines()) == 10_000


def test_a_killed_supervisor_leaves_no_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The name of a Unix socket is short: below a long TMPDIR there would be none.
    with tempfile.TemporaryDirectory(dir="/tmp") as places:
        monkeypatch.setenv("TMPDIR", places)
        ready = folder / "ready"
        command = [sys.executable, "-m", "millstream", "run", "flow.py:endless", "--processes", "2"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([*command, "--ready-file", str(ready)], cwd=folder, **quiet) as supervisor:
            try:
                while not ready.exists():
                    assert supervisor.poll() is None
                    time.sleep(0.02)
                assert list(Path(places).glob("millstream-*"))
            finally:
                supervisor.kill()
        while list(Path(places).glob("millstream-*")):
            time.sleep(0.02)


def test_the_rate_of_the_demo_may_be_any_number(folder: Path) -> None:
    done = verb(folder, "demo", "--rate", "1e300", "--seconds", "1", "--json")
    assert "panicked" not in done.stderr and done.returncode in (0, 1), done


@pytest.mark.parametrize("name", ["two words", "plain"])
def test_the_next_command_of_new_can_be_pasted(name: str, folder: Path) -> None:
    done = verb(folder, "new", "alerts", name)
    said = done.stderr.splitlines()[-1].removeprefix("next: ").partition(", ")[0]
    assert done.returncode == 0
    subprocess.run(["bash", "-c", f"{said} && test -f alerts.py"], cwd=folder, check=True)


@pytest.mark.parametrize("log", ["text", "json"])
def test_no_control_character_reaches_the_terminal(log: str, folder: Path) -> None:
    done = verb(folder, "run", "flow.py:odd", "--log", log)
    assert done.returncode == 1 and "2J" in done.stderr
    assert not [sign for sign in done.stderr if ord(sign) < 32 and sign != "\n"], done.stderr
