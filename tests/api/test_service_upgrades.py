"""A service resumes when its journals have other paths, and when its inputs and timers have changed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import millstream as ms
import pytest
from millstream.service import every, replay

FIXTURES = Path(__file__).parent / "fixtures" / "services"
TIMEOUT = 60


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fixture_desk", FIXTURES / "desk.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


desk: Any = load()


def book(path: Path, *amounts: int) -> None:
    entries = ms.publisher(desk.Entries, path)
    for at, amount in enumerate(amounts):
        entries.book(f"A{at % 3}", amount)


def calls(out: Path) -> list[tuple[str, dict[str, str]]]:
    """The calls of a journal: methods, and arguments by name."""
    text = ms._millstream.service_export(os.fspath(out), 0, None)
    found = []
    for document in text.split("---\n") if text else []:
        _, _, method, *arguments = document.splitlines()
        pairs = dict(line.strip().split(": ") for line in arguments)
        found.append((method.rstrip(":"), pairs))
    return found


def texts(out: Path) -> list[str]:
    """The calls of a journal as a replay returns them."""
    text = ms._millstream.service_export(os.fspath(out), 0, None)
    lines = [document.split("\n", 2)[2] for document in text.split("---\n")] if text else []
    return lines


def drain(component: type, inputs: object, out: Path, **more: Any) -> ms.service.Report:
    return ms.serve(component, inputs, out=out, drain=True, **more)  # type: ignore[arg-type]


def run_for(component: str, inputs: list[Path], out: Path, *more: str, ticks: int = 3) -> None:
    """Has the service run until it has put out some more ticks, and kills it."""
    ms.Journal(out).close()
    before = len(ticks_of(out))
    command = [sys.executable, "-m", "millstream", "service", "run", f"{FIXTURES}/desk.py:{component}"]
    for path in inputs:
        command += ["--in", str(path)]
    running = subprocess.Popen([*command, "--out", str(out), *more], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + TIMEOUT
    while running.poll() is None and time.monotonic() < end:
        if len(ticks_of(out)) >= before + ticks:
            break
        time.sleep(0.05)
    running.kill()
    _, told = running.communicate(timeout=TIMEOUT)
    assert running.returncode == -signal.SIGKILL, told


def ticks_of(out: Path) -> list[dict[str, str]]:
    return [given for method, given in calls(out) if method == "beaten"]


def counted(out: Path) -> list[int]:
    """How many ticks the component had counted at each of them."""
    return [int(given["beats"]) + int(given["tocks"]) for given in ticks_of(out)]


def unpacked(tmp_path: Path, name: str) -> Path:
    """A folder of the fixtures, in another place than it was made in."""
    with tarfile.open(FIXTURES / "services.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / name


# Other paths.


@pytest.mark.parametrize("rebuild", ["inputs", "snapshot", "nothing"])
def test_paths_are_spelled_as_one_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuild: str
) -> None:
    book(tmp_path / "a" / "in", 1, 2, 3)
    (tmp_path / "elsewhere").mkdir()
    spellings = [
        (".", "a/in", "a/out"),
        (".", "./a/in", "./a/../a/out"),
        ("a", "in", "out"),
        ("elsewhere", "../a/in", str(tmp_path / "a/out")),
        ("/", str(tmp_path / "a/in"), str(tmp_path / "a/out")),
    ]
    for cwd, inputs, out in spellings:
        monkeypatch.chdir(tmp_path / cwd)
        drain(desk.Ledger, inputs, Path(out), rebuild=rebuild)
        book(Path(inputs), 4)
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "a", copied)
    shutil.rmtree(tmp_path / "a")
    drain(desk.Ledger, copied / "in", copied / "out", rebuild=rebuild)
    found = texts(copied / "out")
    if rebuild == "nothing":
        # Each entry once: no start takes as many as five, of which one would be quiet.
        assert len(found) == 8
    else:
        assert found == replay(desk.Ledger, copied / "in")


def test_a_journal_and_its_copy_are_not_two_inputs(tmp_path: Path) -> None:
    book(tmp_path / "in", 1)
    shutil.copytree(tmp_path / "in", tmp_path / "copy")
    with pytest.raises(ms.ServiceError, match="in and .*copy are one journal, or copies of one"):
        drain(desk.Ledger, [tmp_path / "in", tmp_path / "copy"], tmp_path / "out")
    # One journal under two paths is one input.
    (tmp_path / "link").symlink_to(tmp_path / "in")
    assert drain(desk.Ledger, [tmp_path / "in", tmp_path / "link"], tmp_path / "out").calls == 1


def test_history_finds_journals_by_their_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    book(Path("set/in"), 1, 2)
    drain(desk.Ledger, "set/in", Path("set/out"))
    command = [sys.executable, "-m", "millstream", "service", "history"]

    def history(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT
        )

    os.rename("set", "moved")
    done = history(Path("/"), str(tmp_path / "moved/out"), "2")
    assert "moved/in, record 1" in done.stdout, done.stderr
    # Another journal of that name is not taken for it.
    os.rename("moved/in", tmp_path / "far")
    book(Path("moved/in"), 9, 9)
    done = history(tmp_path, "moved/out", "2")
    assert done.returncode == 1
    assert "names the journal set/in, which is neither there" in done.stderr
    done = history(tmp_path, "moved/out", "2", "--journals", str(tmp_path))
    assert "far, record 1" in done.stdout, done.stderr


# The fixtures, in another place than they were made in.


def test_a_recorded_service_resumes_under_another_path(tmp_path: Path) -> None:
    kept = unpacked(tmp_path, "single")
    with ms.Journal(kept / "dead", "r") as dead:
        letters = len(dead)
    before = texts(kept / "out")
    drain(desk.Ledger, kept / "in", kept / "out", dead_letters=kept / "dead")
    assert texts(kept / "out") == before
    book(kept / "in", 4, 5)
    moved = kept.rename(tmp_path / "moved")
    drain(desk.Ledger, moved / "in", moved / "out", dead_letters=moved / "dead")
    assert texts(moved / "out") == replay(desk.Ledger, moved / "in", on_error="skip")
    with ms.Journal(moved / "dead", "r") as dead:
        assert len(dead) == letters


def test_a_recorded_snapshot_is_restored_under_another_path(tmp_path: Path) -> None:
    kept = unpacked(tmp_path, "snapshot")
    report = drain(desk.Ledger, kept / "in", kept / "out", rebuild="snapshot")
    # From the snapshot after 17 calls, which was made at the end.
    assert report.calls == 3
    book(kept / "in", 4, 5)
    moved = kept.rename(tmp_path / "moved")
    drain(desk.Ledger, moved / "in", moved / "out", rebuild="snapshot")
    assert texts(moved / "out") == replay(desk.Ledger, moved / "in")


def test_recorded_timers_are_known_by_their_names(tmp_path: Path) -> None:
    kept = unpacked(tmp_path, "timers")
    before = calls(kept / "out")
    drain(desk.Timed, kept / "in", kept / "out")
    assert calls(kept / "out")[: len(before)] == before
    moved = kept.rename(tmp_path / "moved")
    # The name of another timer comes first in the alphabet.
    run_for("More", [moved / "in"], moved / "out")
    assert calls(moved / "out")[: len(before)] == before
    after = ticks_of(moved / "out")
    alarms = int(after[-1]["tocks"]) // 1_000_000
    assert int(after[-1]["beats"]) + int(after[-1]["tocks"]) - alarms * 999_999 == len(after)


def test_a_recorded_service_of_several_inputs_resumes_under_another_path(tmp_path: Path) -> None:
    kept = unpacked(tmp_path, "several")
    before = texts(kept / "out")
    for turn in range(3):
        drain(desk.Ledger, [kept / "b", kept / "a"], kept / "out")
        book(kept / "a", turn, 1)
        book(kept / "b", turn, 2)
        kept = kept.rename(tmp_path / f"moved-{turn}")
    drain(desk.Ledger, [kept / "a", kept / "b"], kept / "out")
    after = texts(kept / "out")
    assert after[: len(before)] == before
    # Of 72 + 12 entries each fifth is quiet.
    assert len(after) == 84 - 16


# Upgrades.


def test_timers_come_and_go(tmp_path: Path) -> None:
    source = tmp_path / "in"
    out = tmp_path / "out"
    book(source, 1, 2, 3)
    drain(desk.Ledger, source, out)
    run_for("Timed", [source], out)  # the first timers
    book(source, 4)
    assert counted(out) == list(range(1, len(counted(out)) + 1))
    drain(desk.Ledger, source, out)  # the last ones are gone
    book(source, 5)
    drain(desk.Ledger, source, out)
    run_for("Timed", [source], out)  # and come back, with what they had counted
    assert counted(out) == list(range(1, len(counted(out)) + 1))
    before = ticks_of(out)
    tocks = [
        given
        for given, last in zip(before, [{"tocks": "0"}, *before], strict=False)
        if given["tocks"] != last["tocks"]
    ]
    # The outputs of the other timer tell how often the one that is gone had fired.
    told = next(given for given in tocks if given["beats"] != "0")
    made = f"and it makes beaten(beats=0, tocks={told['tocks']}, entries={told['entries']})"
    with pytest.raises(ms.ServiceError, match=re.escape(made)):
        drain(desk.Fewer, source, out)
    run_for("Fewer", [source], out, "--on-difference", "warn")
    after = ticks_of(out)[len(before) :]
    # Without the ticks of the timer that is gone.
    assert [given["beats"] for given in after] == ["0"] * len(after)
    assert [int(given["tocks"]) for given in after] == list(
        range(len(tocks) + 1, len(tocks) + len(after) + 1)
    )
    booked = [given for method, given in calls(out) if method == "booked"]
    assert len(booked) == 4  # the fifth entry is quiet


def test_ticks_missing_from_a_snapshot_are_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in"
    out = tmp_path / "out"
    book(source, 1, 2, 3)
    drain(desk.Ledger, source, out, rebuild="snapshot")
    run_for("Timed", [source], out, "--rebuild", "snapshot")  # and no snapshot before it is killed
    capfd.readouterr()
    drain(desk.Timed, source, out, rebuild="snapshot")  # repeats them, and makes one
    assert "tick" not in capfd.readouterr().err
    ticks = ticks_of(out)  # some may have come before that snapshot
    run_for("Timed", [source], out, "--rebuild", "snapshot")
    again = len(ticks_of(out)) - len(ticks)
    capfd.readouterr()
    drain(desk.Ledger, source, out, rebuild="snapshot")
    told = capfd.readouterr().err
    counts = re.findall(r"without the (\d+) tick\(s\) of the timer (\w+) after the last snapshot", told)
    assert again >= 3 and sum(int(count) for count, _ in counts) >= again, told
    assert {timer for _, timer in counts} <= {"beat", "tock"}


def test_a_timer_is_renamed(tmp_path: Path) -> None:
    class Renamed(desk.Ledger):  # type: ignore[misc]
        @every(0.02, renamed_from="beat")
        def a_beat(self, now_ns: int) -> None:
            self.beats += 1

        @every(0.05)
        def tock(self, now_ns: int) -> None:
            self.tocks += 1

        def book(self, account: str, amount: int) -> None:
            self.balances.beaten(self.beats, self.tocks, self.entries)

    source = tmp_path / "in"
    out = tmp_path / "out"
    book(source)
    run_for("Timed", [source], out)
    last = ticks_of(out)[-1]
    book(source, 1)
    # The outputs of the ticks are there, and missed.
    text = r"is beaten\(beats=\d, tocks=\d, entries=0\), and it makes no call"
    with pytest.raises(ms.ServiceError, match=text):
        drain(Renamed, source, out)
    ms.Journal(tmp_path / "other").close()
    shutil.copytree(tmp_path / "out.schedule", tmp_path / "other.schedule")
    drain(Renamed, source, tmp_path / "other")
    found = ticks_of(tmp_path / "other")[-1]
    assert int(found["beats"]) >= int(last["beats"]) > 0
    assert int(found["tocks"]) >= int(last["tocks"])


def test_inputs_come_and_go(tmp_path: Path) -> None:
    one = tmp_path / "one"
    two = tmp_path / "two"
    out = tmp_path / "out"
    book(one, 1, 2)
    drain(desk.Ledger, one, out)
    book(two, 10, 20)
    drain(desk.Ledger, [one, two], out)  # a second one
    book(one, 3, 4)
    drain(desk.Ledger, [two, one], out)
    book(two, 30)
    drain(desk.Ledger, [one, two], out)
    # The fifth entry is quiet.
    balances = ["1", "2", "11", "22", "26", "44"]
    assert [given["balance"] for _, given in calls(out)] == balances
    book(one, 5, 6)
    # And without it, after it had all its effects. The balances and the quiet entries of the other differ.
    with pytest.raises(
        ms.ServiceError, match=r"no call is recorded, and it makes booked\(account=\"A0\", balance=4"
    ):
        drain(desk.Ledger, one, out)
    drain(desk.Ledger, one, out, accept_differences=2)
    # The state is that of the first input alone: 1 + 3 + 5 in A0, the last of them quiet, 2 + 4 + 6 in A1.
    balances += ["12"]
    assert [given["balance"] for _, given in calls(out)] == balances
    drain(desk.Ledger, [two, one], out, on_difference="warn")  # nothing of the second input is taken again
    assert [given["balance"] for _, given in calls(out)] == balances


def test_an_input_whose_effects_may_be_missing_is_not_taken_away(tmp_path: Path) -> None:
    one = tmp_path / "one"
    two = tmp_path / "two"
    out = tmp_path / "out"
    book(one)
    book(two, 10)
    drain(desk.Ledger, [one, two], out)
    book(two, 20)
    command = [sys.executable, "-m", "millstream", "service", "run", f"{FIXTURES}/desk.py:Ledger"]
    command += ["--in", str(one), "--in", str(two), "--out", str(out)]
    running = subprocess.Popen(command)
    end = time.monotonic() + TIMEOUT
    while len(calls(out)) < 2 and time.monotonic() < end:
        time.sleep(0.05)
    running.kill()
    running.wait(TIMEOUT)
    with pytest.raises(ms.ServiceError, match="is no input any more and may have further effects"):
        drain(desk.Ledger, [one], out)
    drain(desk.Ledger, [one, two], out)
    drain(desk.Ledger, [one], out)


# Quiet inputs, cursors, pruned records.


class Quiet(desk.Ledger):  # type: ignore[misc]
    """A ledger with one output: the total of account A9."""

    def book(self, account: str, amount: int) -> None:
        self.entries += amount
        if account == "A9":
            self.balances.booked(account, self.entries)


def fill(path: Path, count: int) -> None:
    """Many segments."""
    if not path.exists():
        ms.Journal(path, segment_bytes=1 << 16).close()
    book(path, *([1] * count))


@pytest.mark.parametrize("rebuild", ["inputs", "nothing", "snapshot"])
def test_a_cursor_keeps_what_a_start_needs(tmp_path: Path, rebuild: str) -> None:
    source = tmp_path / "in"
    out = tmp_path / "out"
    fill(source, 20_000)
    more = {"snapshot_every": 6_000} if rebuild == "snapshot" else {}
    for _ in range(3):
        drain(Quiet, source, out, rebuild=rebuild, **more)
        book(source, *([1] * 7_000))
        with ms.Journal(source) as journal:
            journal.prune(keep_for_cursors=True)
            first = journal.first
        assert (first > 0) == (rebuild != "inputs")
    entries = ms.publisher(desk.Entries, source)
    entries.book("A9", 1)
    drain(Quiet, source, out, rebuild=rebuild)
    ((_, given),) = calls(out)
    if rebuild != "nothing":
        assert given["balance"] == "41001"


def test_pruned_inputs_are_missed_also_by_a_service_without_outputs(tmp_path: Path) -> None:
    source = tmp_path / "in"
    out = tmp_path / "out"
    fill(source, 20_000)
    drain(Quiet, source, out)
    with ms.Journal(source) as journal:
        journal.prune(bytes=1 << 17)
        first = journal.first
    assert first > 0
    with pytest.raises(
        ms.ServiceError, match=f"record 0 is needed and has been pruned, the oldest one left is {first}"
    ):
        drain(Quiet, source, out)
    # A new service begins with the existing records, and resumes with its own state.
    other = tmp_path / "other"
    taken = drain(Quiet, source, other).calls
    assert taken == len(calls(source))
    assert drain(Quiet, source, other).calls == taken
    assert drain(Quiet, source, out, skip_pruned=True).calls == taken


def test_records_that_were_never_taken_are_missed(tmp_path: Path) -> None:
    source = tmp_path / "in"
    out = tmp_path / "out"
    fill(source, 10)
    drain(Quiet, source, out, rebuild="nothing")
    fill(source, 20_000)
    with ms.Journal(source) as journal:
        journal.prune(bytes=1 << 17)
    with pytest.raises(ms.ServiceError, match="record 11 is needed and has been pruned"):
        drain(Quiet, source, out, rebuild="nothing")


def test_a_cursor_shows_the_lag_of_a_service(tmp_path: Path) -> None:
    source = tmp_path / "in"
    out = tmp_path / "out"
    fill(source, 100)
    drain(Quiet, source, out, rebuild="nothing")
    book(source, 1, 2)
    command = [sys.executable, "-m", "millstream", "journal", "info", str(source)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT).stdout
    assert "cursor     service." in told and "at 101, 3 behind" in told, told


# Dead letters.


def letters(path: Path) -> int:
    with ms.Journal(path, "r") as dead:
        return len(dead)


def test_a_dead_letter_is_written_once(tmp_path: Path) -> None:
    source = tmp_path / "in"
    dead = tmp_path / "dead"
    book(source, 1, -13, 2, 3, -13, -13)
    for start in range(3):
        drain(desk.Ledger, source, tmp_path / "out", dead_letters=dead)
        assert letters(dead) == 3, start
    # Another service has letters of its own in the same journal, and one without output too.
    for _ in range(2):
        drain(desk.Ledger, source, tmp_path / "other", dead_letters=dead)
        assert letters(dead) == 6
    for _ in range(2):
        ms.serve(desk.Ledger, source, dead_letters=dead, drain=True)
        assert letters(dead) == 9
    moved = source.rename(tmp_path / "moved")
    drain(desk.Ledger, moved, tmp_path / "out", dead_letters=dead)
    assert letters(dead) == 9


# Methods.


def test_methods_may_change_their_order_within_a_segment(tmp_path: Path) -> None:
    from typing import Protocol

    def interface(*names: str) -> type:
        def method(self: object, amount: int) -> None: ...

        made = type("Turns", (Protocol,), {name: method for name in names})
        return made

    source = tmp_path / "in"
    for names in (("left", "right"), ("right", "left"), ("up", "left", "right"), ("left", "right")):
        turns: Any = ms.publisher(interface(*names), source)
        for name in names:
            getattr(turns, name)(1)
    shown = [method for method, _ in named(source)]
    assert shown == ["left", "right", "right", "left", "up", "left", "right", "left", "right"]

    heard: list[str] = []

    class Both(interface("right", "left", "up")):  # type: ignore[misc]
        def right(self, amount: int) -> None:
            heard.append("right")

        def left(self, amount: int) -> None:
            heard.append("left")

        def up(self, amount: int) -> None:
            heard.append("up")

    ms.serve(Both, source, drain=True)
    assert heard == shown


def named(path: Path) -> list[tuple[str, str]]:
    text = ms._millstream.service_export(os.fspath(path), 0, None)
    lines = [document.splitlines()[2].split(": ") for document in text.split("---\n")]
    return [(line[0], line[1]) for line in lines]


VERSIONS = """
from dataclasses import dataclass
from typing import Protocol


class Entries(Protocol):
    def book(self, amount: int) -> None: ...


class Books(Protocol):
    def total(self, amount: int) -> None: ...


@dataclass
class {state}:
    amount: int


class Book(Entries):
    snapshot_version = {version}

    def __init__(self, books: Books) -> None:
        self.books, self.amount = books, 0

    def book(self, amount: int) -> None:
        self.amount += amount
        self.books.total(self.amount)

    def snapshot(self) -> object:
        return {state}(self.amount)

    def restore(self, state: {state}) -> None:
        self.amount = state.amount
{more}
"""


def version_of_book(folder: Path, name: str, state: str, version: int = 1, more: str = "") -> Any:
    """A version of a component, whose class of the state has this name."""
    (folder / "books.py").write_text(VERSIONS.format(state=state, version=version, more=more))
    spec = importlib.util.spec_from_file_location("books", folder / "books.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["books"] = module
    spec.loader.exec_module(module)
    return module


def test_a_snapshot_with_a_renamed_class_falls_back_to_the_inputs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    entries = tmp_path / "entries"
    out = tmp_path / "out"
    before = version_of_book(tmp_path, "before", "Total")
    publisher = ms.publisher(before.Entries, entries)
    for _ in range(3):
        publisher.book(2)
    drain(before.Book, entries, out, rebuild="snapshot")
    after = version_of_book(tmp_path, "after", "Amount")
    publisher.book(2)
    report = drain(after.Book, entries, out, rebuild="snapshot")
    # Three calls are repeated.
    assert report.calls == 4
    warning = capfd.readouterr().err
    assert "out.snapshots, record 1: the state cannot be read: AttributeError: " in warning
    assert "the state is rebuilt from the inputs\n" in warning
    assert texts(out) == [f"total: {total}\n" for total in (2, 4, 6, 8)]
    # The next start has a snapshot that it can read.
    publisher.book(2)
    assert drain(after.Book, entries, out, rebuild="snapshot").calls == 1


def test_a_state_of_another_version_is_migrated(tmp_path: Path) -> None:
    entries = tmp_path / "entries"
    out = tmp_path / "out"
    first = version_of_book(tmp_path, "first", "Total")
    publisher = ms.publisher(first.Entries, entries)
    publisher.book(2)
    drain(first.Book, entries, out, rebuild="snapshot")
    migrate = """
    def migrate(self, state: Total, version: int) -> Total:
        assert version == 1
        return Total(state.amount * 100)
"""
    second = version_of_book(tmp_path, "second", "Total", 2, migrate)
    publisher.book(3)
    assert drain(second.Book, entries, out, rebuild="snapshot").calls == 1
    assert texts(out) == ["total: 2\n", "total: 203\n"]
    publisher.book(3)
    drain(second.Book, entries, out, rebuild="snapshot")
    assert texts(out)[2:] == ["total: 206\n"]
    failing = version_of_book(tmp_path, "failing", "Total", 3, migrate)
    with pytest.raises(ms.ServiceError, match=r"remove the directory .*out.snapshots: a start then rebuilds"):
        drain(failing.Book, entries, out, rebuild="snapshot")
    shutil.rmtree(f"{out}.snapshots")
    # The advice is right for a component that makes the same calls: this one does not any more.
    with pytest.raises(ms.ServiceError, match="snapshot_version=0: it is a number from 1 on"):
        drain(version_of_book(tmp_path, "none", "Total", 0).Book, entries, out, rebuild="snapshot")


def test_an_input_that_was_replaced_is_an_error(tmp_path: Path) -> None:
    entries = tmp_path / "entries"
    out = tmp_path / "out"
    book(entries, 1, 2)
    drain(desk.Ledger, entries, out)
    shutil.rmtree(entries)
    book(entries, 1, 2, 3)
    with pytest.raises(
        ms.ServiceError, match="entries: is another journal than the one of which"
    ) as replaced:
        drain(desk.Ledger, entries, out)
    # To begin anew, what the message names is removed.
    assert f"remove {out} and the directories beside it that begin with this name" in str(replaced.value)
    for path in tmp_path.glob("out*"):
        shutil.rmtree(path)
    assert drain(desk.Ledger, entries, out).calls == 3
