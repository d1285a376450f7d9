"""A sink that is gathered: all processes write one file, exactly once, over kills and scaling."""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import millstream as ms
import pytest
from millstream.__main__ import main
from shapes import Shape, command
from supervised import Supervised, children, wait_for

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "2"))
SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)


def gathered(tmp_path: Path, seed: int, count: int) -> Shape:
    """The counts of words, in one file."""
    shape = Shape("words", tmp_path, seed, count)
    shape.flow.write_text(shape.flow.read_text().replace("write(OUT))", "write(OUT), gather=True)"))
    return shape


def check(shape: Shape, out: Path) -> None:
    shape.check(out)
    assert [file.name for file in out.parent.iterdir()] == ["out.txt"]


def test_killed_processes_write_one_file(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    shape = gathered(tmp_path, SEED, 2000)
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    environment = shape.environment(out, seconds=4.0 * min(KILLS, 300))
    options = ["--processes", 2, "--workers", 2, "--state", tmp_path / "state"]
    options += ["--epoch", "20ms", "--sync", "never", "--ready-file", ready, "--restarts", "1000/10m"]
    running = Supervised(command(shape.flow, *options), environment)
    for _ in range(KILLS):
        running.is_ready(ready)
        time.sleep(chance.random() * 0.5)
        victims = children(running.process.pid)
        if running.process.poll() is None and victims:
            running.kill(chance.choice(victims))
    text = running.end(0)
    assert re.search(rf'sink "out": this process writes the output of all processes \(.*{out}', text)
    assert 'sink "out": process 0 writes the output of all processes' in text
    check(shape, out)


def test_other_numbers_of_processes_continue_the_file(tmp_path: Path) -> None:
    shape = gathered(tmp_path, 1, 2000)
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    state = tmp_path / "state"
    for at, processes in enumerate([1, 3, 1]):
        last = at == 2
        if at:
            assert main(["scale", str(state), "--processes", str(processes)]) == 0
        environment = shape.environment(out, seconds=0.0 if last else 20.0)
        options = ["--state", state, "--epoch", "20ms", "--ready-file", ready]
        if processes > 1:
            options += ["--processes", processes]
        running = Supervised(command(shape.flow, *options), environment)
        if not last:
            wait_for(ready.exists, "the flow")
            size = out.stat().st_size
            wait_for(lambda size=size: out.stat().st_size > size, "output")
            running.process.terminate()
        running.end(0)
    check(shape, out)


def test_a_sink_that_changes_is_refused_in_words(tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, 1, 200)
    out = tmp_path / "out" / "out.txt"
    options = ["--processes", 2, "--state", tmp_path / "state"]
    Supervised(command(shape.flow, *options), shape.environment(out)).end(0)
    shape.flow.write_text(shape.flow.read_text().replace("write(OUT))", "write(OUT), gather=True)"))
    text = Supervised(command(shape.flow, *options), shape.environment(out)).end(1)
    assert 'sink "out" was written by each process in the run before, and is gathered now' in text
    assert "--drop-state" in text and "started again" not in text
    text = Supervised(command(shape.flow, *options, "--drop-state", "out"), shape.environment(out)).end(0)
    assert out.exists()


QUEUE = """
import os
import millstream as ms

flow = ms.Flow("to a queue")
lines = flow.source("lines", ms.files.lines([os.environ["IN"] + f"/{n}" for n in range(4)]))
lines.sink("out", ms.queues.write(os.environ["DIR"], "work"))
"""


def test_a_queue_is_gathered_without_the_option(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for n in range(4):
        (tmp_path / "in" / str(n)).write_text("".join(f"{n}-{m}\n" for m in range(100)))
    flow = tmp_path / "flow.py"
    flow.write_text(QUEUE)
    environment = os.environ | {"IN": str(tmp_path / "in"), "DIR": str(tmp_path / "queues")}
    text = Supervised(
        command(flow, "--processes", 2, "--workers", 2, "--state", tmp_path / "state"), environment
    ).end(0)
    assert 'sink "out": process 0 writes the output of all processes' in text
    drain = ms.Flow("drain")
    found = ms.testing.collect()
    queue = ms.queues.read(str(tmp_path / "queues"), "work", decode=bytes.decode, until_empty=True)
    drain.source("in", queue).sink("out", found)
    ms.run(drain)
    assert sorted(found) == sorted(f"{n}-{m}" for n in range(4) for m in range(100))


def test_one_process_has_one_writer_too(tmp_path: Path) -> None:
    opened: list[int] = []

    class Counting(ms.Sink[int]):
        def open(self, worker: int) -> Counting:
            opened.append(worker)
            return self

        def write_batch(self, items: list[int]) -> None:
            written.extend(items)

        def flush(self) -> None:
            pass

        def close(self) -> None:
            pass

    written: list[int] = []
    flow = ms.Flow("one")
    numbers = flow.source("in", ms.testing.items(range(100))).redistribute()
    numbers.sink("out", Counting(), gather=True)
    assert "gathered from" in flow.describe()
    ms.run(flow, workers=3)
    assert opened == [0] and sorted(written) == list(range(100))


def test_keyed_streams_are_gathered(tmp_path: Path) -> None:
    flow = ms.Flow("keyed")
    out = ms.testing.collect()
    flow.source("in", ms.testing.items("abcabc")).key_by(str).count("each", name="n").sink(
        "out", out, gather=True
    )
    ms.run(flow, workers=2)
    assert sorted(out) == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]


@pytest.mark.parametrize("gather", [False, True])
def test_files_by_key_have_one_directory(tmp_path: Path, gather: bool) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(
        "import os\nimport millstream as ms\nflow = ms.Flow('by key')\n"
        "lines = flow.source('in', ms.testing.items([('a', 1), ('b', 2), ('c', 3)])).redistribute()\n"
        "lines.key_by(lambda row: row[0]).sink('out', ms.files.write_csv_by_key('out', ['key', 'line']), "
        f"gather={gather})\n"
    )
    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        running = Supervised(command(flow, "--processes", 2))
    finally:
        os.chdir(here)
    running.end(0)
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == ({"out"} if gather else {"out.p0", "out.p1"})
