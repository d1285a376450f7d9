"""Replay: recorded input through a flow again, from Python and from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

FLOW = """
import millstream as ms

flow = ms.Flow("shout")
words = flow.source("words", ms.tcp.listen("127.0.0.1:1", framing="lines", decode=str))
loud = words.map(str.{verb})
loud.sink("loud", ms.tcp.send_to("127.0.0.1:1", framing="lines"))
words.key_by(len).count(name="count").sink("lengths", ms.files.write("/no/such/folder/out"))
"""


def millstream(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "millstream", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    with ms.Journal(tmp_path / "words") as journal:
        for word in ("to", "be", "or", "not"):
            journal.append(word)
    return tmp_path / "words"


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "flow.py").write_text(FLOW.format(verb="upper"))
    return tmp_path / "flow.py"


def test_lines_come_out_the_same_each_time(flow: Path, words: Path, tmp_path: Path) -> None:
    shown = millstream("run", flow, "--replay", f"words={words}")
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert [line for line in lines if line.startswith("loud\t")] == [
        f"loud\t{w}" for w in ("TO", "BE", "OR", "NOT")
    ]
    assert lines[-2:] == ["lengths\t(2, 3)", "lengths\t(3, 1)"]
    out = tmp_path / "out"
    for _ in range(3):
        done = millstream("run", flow, "--replay", f"words={words}", "--out", out)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert out.read_text() == shown.stdout


def test_a_part_is_chosen_by_number_and_by_time(flow: Path, words: Path) -> None:
    def loud(*options: str) -> list[str]:
        done = millstream("run", flow, "--replay", f"words={words}", *options)
        assert done.returncode == 0, done.stderr
        return [line[5:] for line in done.stdout.splitlines() if line.startswith("loud")]

    assert loud("--from", "1", "--to", "3") == ["BE", "OR"]
    time.sleep(0.01)
    with ms.Journal(words) as journal:
        journal.append("late")
    assert loud("--from", "1h", "--to", "0s") == ["TO", "BE", "OR", "NOT", "LATE"]
    said = ms.testing.replay(str(flow), {"words": words}, start=journal_time(words, 4))
    assert said["loud"] == ["LATE"]


def journal_time(path: Path, sequence: int) -> datetime:
    with ms.Journal(path) as journal:
        time_ns = journal[sequence].time_ns
    return datetime.fromtimestamp(time_ns // 1000 / 1e6, timezone.utc)


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--replay", "words=none"], 1, "there is no journal here"),
        (["--replay", "state"], 1, "no input was recorded here"),
        (["--from", "3"], 2, "--from needs --replay"),
        (["--replay", "words=x", "--state", "y"], 2, "leave out --state"),
        (["--replay", "words=x", "--from", "tomorrow"], 2, "'tomorrow' is no sequence number, no time like"),
        (["--replay", "a", "--replay", "b"], 2, "one state directory, or SOURCE=DIR for each"),
    ],
)
def test_what_cannot_be_replayed_is_reported_in_one_line(
    flow: Path, tmp_path: Path, options: list[str], code: int, said: str
) -> None:
    done = millstream("run", flow, *options)
    assert done.returncode == code and said in done.stderr, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("see https://")]
    assert len(lines) == 1 and "Traceback" not in done.stderr


def test_two_versions_are_compared(flow: Path, words: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(FLOW.format(verb="title"))
    same = millstream("diff", flow, flow, "--replay", f"words={words}")
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.splitlines() == [
        'output "lengths": the same, 2 items',
        'output "loud": the same, 4 items',
    ]
    differs = millstream("diff", flow, other, "--replay", f"words={words}")
    assert (differs.returncode, differs.stderr) == (1, "")
    lines = differs.stdout.splitlines()
    assert lines[1].startswith('output "loud": 4 and 4 items, 4 only in ') and lines[1].endswith(
        "from item 0 on:"
    )
    assert "  - TO" in lines and "  + To" in lines
    report = json.loads(millstream("diff", flow, other, "--replay", f"words={words}", "--json").stdout)
    assert report["differs"] and [sink["same"] for sink in report["sinks"]] == [True, False]
    assert report["sinks"][1]["first"] == {"item": 0, "a": "TO", "b": "To"}
    assert millstream("diff", flow, other).returncode == 2
    broken = millstream("diff", flow, tmp_path / "none.py", "--replay", f"words={words}")
    assert broken.returncode == 2 and "none.py: no such file" in broken.stderr


def test_the_clock_shows_the_times_of_the_records(tmp_path: Path) -> None:
    with ms.Journal(tmp_path / "in") as journal:
        journal.append_many(["a", "b"])
        time.sleep(0.2)
        journal.append("c")
    flow = ms.Flow("lists")
    source = flow.source("in", ms.tcp.listen("127.0.0.1:1", decode=str))
    source.collect(max=10, wait=0.1).sink("out", ms.stdout())
    for workers in (1, 2):
        assert ms.testing.replay(flow, {"in": tmp_path / "in"}, workers=workers) == {
            "out": [["a", "b"], ["c"]]
        }


class Numbers(ms.Source):
    """Objects, which are recorded as pickles."""

    def open(self, partition: str, position: int | None) -> Any:
        self.next = position or 0
        return self

    def next_batch(self) -> list[Any] | None:
        self.next += 3
        return [{"n": n} for n in range(self.next - 3, self.next)] if self.next <= 60 else None

    def next_awake(self) -> None:
        return None

    def position(self) -> int:
        return self.next


def test_what_durable_sources_recorded_gives_the_same_output_again(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{n}\n" for n in range(200)))

    def build(**out: list[Any]) -> ms.Flow:
        flow = ms.Flow("sums")
        lines = flow.source("lines", ms.files.lines(tmp_path / "lines").durable(keep="all")).map(int)
        numbers = flow.source("numbers", Numbers().durable(keep="all")).map(lambda item: item["n"])
        for name, stream in (("line", lines), ("number", numbers)):
            stream.key_by(lambda n: n % 7).sum(emit="each", name=f"sum of {name}").sink(
                name, out.get(name, [])
            )
        return flow

    live: dict[str, list[Any]] = {"line": [], "number": []}
    ms.run(build(**live), state=tmp_path / "state", epoch=0.01, sync=False)
    assert len(live["line"]) == 200 and len(live["number"]) == 60
    for size in (None, 1, 7):
        assert ms.testing.replay(build(), tmp_path / "state", batch_size=size) == live
    shared = ms.testing.replay(build(), tmp_path / "state", workers=2)
    assert {name: sorted(items) for name, items in shared.items()} == {
        name: sorted(items) for name, items in live.items()
    }
    part = {name: tmp_path / "state" / "inputs" / name for name in ("lines", "numbers")}
    assert ms.testing.replay(build(), part) == live
    assert not ms.testing.diff(build(), build(), tmp_path / "state")


def test_a_step_runs_on_the_thread_that_calls(words: Path) -> None:
    threads = []
    flow = ms.Flow("threads")
    source = flow.source("words", ms.tcp.listen("127.0.0.1:1", decode=str))
    source.inspect(lambda word: threads.append(threading.current_thread())).sink("out", ms.stdout())
    ms.testing.replay(flow, {"words": words})
    assert set(threads) == {threading.current_thread()}


def test_an_object_without_a_repr_is_compared_by_what_it_holds(words: Path) -> None:
    class Word:
        def __init__(self, text: str) -> None:
            self.text = text

    def flow() -> ms.Flow:
        flow = ms.Flow("objects")
        flow.source("words", ms.tcp.listen("127.0.0.1:1", decode=str)).map(Word).sink("out", ms.stdout())
        return flow

    found = ms.testing.diff(flow(), flow(), {"words": words})
    assert not found and found.sinks[0].a is not None and found.sinks[0].a[0].endswith("Word(text='to')")


def test_the_fixture_of_pytest(millstream_replay: Any, flow: Path, words: Path) -> None:
    assert millstream_replay(str(flow), {"words": words}, end=1)["loud"] == ["TO"]


def test_mistakes_are_usage_errors(words: Path) -> None:
    flow = ms.Flow("f")
    flow.source("words", ms.tcp.listen("127.0.0.1:1", decode=str)).sink("out", ms.stdout())
    for wrong in (datetime(2026, 1, 1), -1, "1", True):
        with pytest.raises(ms.FlowUsageError, match="start is a"):
            ms.testing.replay(flow, {"words": words}, start=wrong)  # type: ignore[arg-type]
    with pytest.raises(ms.FlowUsageError, match="a replay is one of a Flow"):
        ms.testing.replay(7, {"words": words})  # type: ignore[arg-type]
