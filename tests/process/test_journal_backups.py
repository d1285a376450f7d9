"""Backups of a journal that is being written: by its own program, and by others, whose copies may be torn."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import millstream as ms
import pytest
from documents import GUIDE, blocks

#: Appends numbers to small segments until its standard input ends, slower once there are some.
WRITER = """
import select, sys
import millstream as ms

with ms.Journal(sys.argv[1], segment_bytes=64 << 10) as journal:
    number = journal.next
    while not select.select([sys.stdin], [], [], 0 if number < 20_000 else 0.005)[0]:
        journal.append_many([b"%d" % n for n in range(number, number + 50)])
        number += 50
        if number == 20_000:
            print("begun", flush=True)
"""


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Path]:
    """A journal of numbers that is being written."""
    path = tmp_path / "orders"
    arguments = [sys.executable, "-c", WRITER, path]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        yield path
        writer.stdin.close()
    assert writer.returncode == 0


def numbers(path: Path) -> tuple[int, int]:
    """The first and the next number of a journal, each of whose records is its number."""
    with ms.Journal(path, "r") as journal:
        first = journal.first
        following = journal.next
        for record in journal.read(first, following):
            assert record.body == b"%d" % record.sequence
        return first, following


def test_the_chapter_about_backups(orders: Path, tmp_path: Path, millstream_bin: Path) -> None:
    chapter = blocks(GUIDE / "keeping-journals.md", "")
    shell = [block for block in chapter if "backup/" in block or "--salvage" in block]
    backup, salvage, restore = shell

    def run(session: str) -> None:
        environment = os.environ | {"PATH": f"{millstream_bin.parent}:{os.environ['PATH']}"}
        subprocess.run(["sh", "-e", "-c", session], cwd=tmp_path, env=environment, check=True)

    (tmp_path / "backup").mkdir()
    run(backup)
    first, following = numbers(tmp_path / "backup" / "monday")
    assert first == 0 and following >= 20_000
    subprocess.run(["cp", "-a", orders, tmp_path / "torn"], check=False)
    run(salvage)
    assert numbers(tmp_path / "salvaged")[0] == 0
    # The one that is restored is another journal of this name: the writer continues with the old one.
    lineage = (tmp_path / "orders" / "identity").read_bytes()[8:24]
    shutil.copytree(tmp_path / "backup", tmp_path / "elsewhere" / "backup")
    shutil.copytree(tmp_path / "backup" / "monday", tmp_path / "elsewhere" / "orders")
    environment = os.environ | {"PATH": f"{millstream_bin.parent}:{os.environ['PATH']}"}
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(["sh", "-e", "-c", restore], cwd=elsewhere, env=environment, check=True)
    assert numbers(elsewhere / "orders") == (0, following)
    assert (elsewhere / "orders" / "identity").read_bytes()[8:24] == lineage


def advised(message: str) -> str:
    """The command that an error of a damaged journal names."""
    found = re.search(r"To copy what is sound: (millstream journal copy --salvage .+)$", message.strip())
    assert found, message
    return found.group(1)


def test_torn_copies_are_opened_as_they_are_or_salvaged(
    orders: Path, tmp_path: Path, millstream_bin: Path
) -> None:
    for attempt in range(6):
        torn = tmp_path / f"torn {attempt}"
        target = tmp_path / f"salvaged-{attempt}"
        if attempt % 2:
            subprocess.run(["cp", "-a", orders, torn], check=False, capture_output=True)
        else:
            torn.mkdir()
            copy = f"tar -C {orders} -cf - . | tar -C {shlex.quote(str(torn))} -xf -"
            subprocess.run(copy, shell=True, capture_output=True)
        if attempt % 3 == 0:
            # Whatever was lost by the copy: a segment in the middle is, too.
            segments = sorted(torn.glob("segment-*"))
            segments[len(segments) // 2].unlink()
        command = [millstream_bin, "journal", "copy", "--salvage", "--json", torn, target]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        report = json.loads(done.stdout)
        parts = [numbers(Path(part["journal"])) for part in report["parts"]]
        assert parts == [(part["first"], part["next"]) for part in report["parts"]]
        assert parts == sorted(parts) and parts[0][0] == 0
        assert len(parts) == 1 or report["lost"]
        try:
            opened = numbers(torn)
        except ms.JournalDamageError as error:
            # Without a loss: a segment was copied before its end was written, and the next one after that.
            assert report["lost"] or len(parts) == 1
            advice = advised(str(error))
            for verb in ("cat", "tail", "info", "export"):
                command = [millstream_bin, "journal", verb, torn]
                done = subprocess.run(command, capture_output=True, text=True)
                if verb == "tail" and done.returncode == 0:
                    # The loss is in the middle, and the last records are sound: no more is read.
                    assert done.stdout.splitlines()[-1].endswith(f" {parts[-1][1] - 1}")
                    continue
                assert done.returncode == 1
                assert advised(done.stderr) == advice
            environment = os.environ | {"PATH": f"{millstream_bin.parent}:{os.environ['PATH']}"}
            subprocess.run(["sh", "-e", "-c", advice], env=environment, check=True, capture_output=True)
            followed = [
                Path(part["journal"].replace(str(target), f"{torn}.salvaged")) for part in report["parts"]
            ]
            assert [numbers(path) for path in followed] == parts
            # What was made stays: another try goes elsewhere.
            with pytest.raises(ms.JournalDamageError) as again:
                numbers(torn)
            assert advised(str(again.value)) == advice.replace(".salvaged", ".salvaged-2")
        else:
            # As after a loss of power it ends before the first record that is missing; more can be salvaged.
            assert parts[0] == opened
        shutil.rmtree(torn)


SERVICE = """
from typing import Protocol

import millstream as ms


class Left(Protocol):
    def left(self, number: int) -> None: ...


class Right(Protocol):
    def right(self, number: int) -> None: ...


class States(Protocol):
    def state(self, state: int, number: int) -> None: ...


class Mix(Left, Right):
    def __init__(self, states: States) -> None:
        self.states, self.state = states, 0

    def left(self, number: int) -> None:
        self.state = (self.state * 31 + number) % 1_000_003
        self.states.state(self.state, number)

    def right(self, number: int) -> None:
        self.left(number)

    def snapshot(self) -> object:
        return self.state

    def restore(self, state: int) -> None:
        self.state = state
"""

PUBLISHER = """
import itertools, select, sys
import millstream as ms
from mix import Left, Right

left, right = ms.publisher(Left, "left"), ms.publisher(Right, "right")
for number in itertools.count():
    (left.left if number % 3 else right.right)(number)
    if number == 3_000:
        print("begun", flush=True)
    if number % 20 == 0 and select.select([sys.stdin], [], [], 0.002)[0]:
        break
"""


def outputs(folder: Path, millstream_bin: Path) -> list[tuple[int, int]]:
    command = [millstream_bin, "journal", "export", "--yaml", "out"]
    text = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"state: (\d+)\n\s+number: (\d+)", text)
    return [(int(state), int(number)) for state, number in found]


@pytest.mark.parametrize("rebuild", ["inputs", "snapshot"])
def test_a_service_on_the_backup_of_a_running_one_takes_each_input_once(
    tmp_path: Path, millstream_bin: Path, rebuild: str
) -> None:
    live = tmp_path / "live"
    backup = tmp_path / "backup"
    live.mkdir()
    backup.mkdir()
    for folder in (live, backup):
        (folder / "mix.py").write_text(SERVICE)
    arguments = [
        "--in",
        "left",
        "--in",
        "right",
        "--out",
        "out",
        "--rebuild",
        rebuild,
        "--snapshot-every",
        "500",
    ]
    service = [sys.executable, "-m", "millstream", "service", "run", "mix.py:Mix", *arguments]
    publisher = [sys.executable, "-c", PUBLISHER]
    pipe = subprocess.PIPE
    with subprocess.Popen(publisher, cwd=live, stdin=pipe, stdout=pipe, text=True) as publishing:
        assert publishing.stdin is not None and publishing.stdout is not None
        assert publishing.stdout.readline() == "begun\n"
        with subprocess.Popen(service, cwd=live) as running:
            until(lambda: (live / "out" / "start").is_file() and len(outputs(live, millstream_bin)) > 3_000)
            for name in ("out.snapshots", "out", "out.schedule", "left", "right"):
                if (live / name).is_dir():
                    copy = [millstream_bin, "journal", "copy", live / name, backup / name]
                    subprocess.run(copy, check=True, capture_output=True)
            running.kill()
        publishing.stdin.close()
    subprocess.run([*service, "--drain"], cwd=backup, check=True)
    found = outputs(backup, millstream_bin)
    state = 0
    expected = []
    for _, number in found:
        state = (state * 31 + number) % 1_000_003
        expected.append(state)
    assert [state for state, _ in found] == expected
    taken = [number for _, number in found]
    calls = sum(calls_in(backup / name) for name in ("left", "right"))
    assert len(set(taken)) == len(taken) == calls > 3_000


def calls_in(path: Path) -> int:
    """The records of a journal that are calls, not schemas."""
    with ms.Journal(path, "r") as journal:
        return sum(b"schema" not in record.body for record in journal.read(journal.first))


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.05)
