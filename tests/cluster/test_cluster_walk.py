"""The first week with a flow on several processes: certificates, moved folders, new versions, full disks,
slow steps, signals at each stage, odd names."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from authorities import certificates, of_process
from shapes import TIMEOUT, Shape, command, output
from small_disk import small_disk
from supervised import Supervised, wait_for


def hosts(free_port: Callable[[], int]) -> str:
    return f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"


def test_certificates_authenticate_both_sides(tmp_path: Path, free_port: Callable[[], int]) -> None:
    ours = tmp_path / "ours"
    theirs = tmp_path / "theirs"
    certificates(ours)
    certificates(theirs)
    shape = Shape("words", tmp_path, seed=1, count=300)
    out = tmp_path / "out" / "out.txt"
    options = ["--hosts", hosts(free_port), "--state", tmp_path / "state"]

    def start(process: int, folder: Path) -> Supervised:
        place = ["--process", process, *options, *of_process(folder, process)]
        return Supervised(command(shape.flow, *place), shape.environment(out))

    first = start(0, ours)
    unknown = start(1, theirs)
    # Its own authority does not know process 0 either, and that is what it says.
    unknown.said("certificate")
    unknown.process.terminate()
    unknown.end(0)
    assert first.process.poll() is None, first.text
    second = start(1, ours)
    for one in (first, second):
        one.end(0)
    shape.check(out)


def test_the_full_disk_of_one_process_ends_the_run_and_it_resumes(tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1500)
    out = tmp_path / "out" / "out.txt"
    state = tmp_path / "state"
    with small_disk("tmpfs", 64, tmp_path) as disk:
        state.mkdir()
        (state / "p1").symlink_to(disk.path / "p1")
        (disk.path / "p1").mkdir()
        options = ["--processes", 2, "--state", state, "--epoch", "20ms", "--ready-file", tmp_path / "ready"]
        environment = shape.environment(out, seconds=6.0)
        running = Supervised(command(shape.flow, *options), environment)
        wait_for((tmp_path / "ready").exists, "the flow")
        fill(disk.path / "ballast")
        text = running.end(1)
        last = text.splitlines()[-1]
        assert "process 1" in last and re.search("No space left|disk", last), text
        (disk.path / "ballast").unlink()
        Supervised(command(shape.flow, *options), shape.environment(out)).end(0)
        shape.check(out)


def fill(ballast: Path) -> None:
    """Takes all room of a file system."""
    with ballast.open("wb", buffering=0) as file:
        for length in (1 << 20, 4096):
            try:
                while True:
                    file.write(bytes(length))
            except OSError:
                pass


VERSION = """
import os
import time
import millstream as ms


def paced(line):
    time.sleep(float(os.environ["PAUSE"]))
    return line


flow = ms.Flow("versions")
lines = flow.source("lines", ms.files.lines([os.environ["IN"] + f"/{n}" for n in range(2)])).map(paced)
counts = lines.key_by(str).count("each", name="COUNTS").items()
counts.map(str)ADDED.sink("out", ms.files.write(os.environ["OUT"]))
"""


def test_the_next_version_of_a_flow(tmp_path: Path) -> None:
    """A step is added, renamed, and renamed back."""
    (tmp_path / "in").mkdir()
    for n in range(2):
        (tmp_path / "in" / str(n)).write_text("a\nb\nc\n" * 200)
    flow = tmp_path / "flow.py"
    out = tmp_path / "out" / "out.txt"
    ready = tmp_path / "ready"
    out.parent.mkdir()
    options = ["--processes", 2, "--state", tmp_path / "state", "--epoch", "20ms", "--ready-file", ready]

    def start(counts: str, added: str, pause: str) -> Supervised:
        flow.write_text(VERSION.replace("COUNTS", counts).replace("ADDED", added))
        environment = os.environ | {"IN": str(tmp_path / "in"), "OUT": str(out), "PAUSE": pause}
        return Supervised(command(flow, *options), environment)

    def stop(running: Supervised) -> None:
        wait_for(ready.exists, "the flow")
        size = output(out).total()
        wait_for(lambda: output(out).total() > size, "output")
        running.process.terminate()
        running.end(0)

    stop(start("counts", "", "0.02"))
    stop(start("counts", ".map(str.lower, name='added')", "0.02"))
    text = start("renamed", "", "0").end(1)
    assert '"counts"' in text and "--drop-state" in text, text
    start("counts", "", "0").end(0)
    expected = Counter(str((key, n)) for key in "abc" for n in range(1, 401))
    assert output(out) == expected


def test_a_flow_moves_with_its_folder(tmp_path: Path) -> None:
    """Relative paths, from another working directory, in a copy of the folder."""
    before = tmp_path / "before"
    after = tmp_path / "after it"
    before.mkdir()
    (before / "a.txt").write_text("".join(f"{n}\n" for n in range(400)))
    (before / "flow.py").write_text(
        "import time\nimport millstream as ms\nflow = ms.Flow('moves')\n"
        "def slowly(line):\n    time.sleep(0.01)\n    return line\n"
        "lines = flow.source('lines', ms.files.lines('a.txt')).map(slowly)\n"
        "keys = lines.key_by(str).count('each', name='n').items().map(lambda pair: pair[0])\n"
        "keys.sink('out', ms.files.write('out.txt'), gather=True)\n"
    )
    options = ["--processes", 2, "--state", "state", "--epoch", "20ms", "--ready-file", "ready"]
    running = at(before, Path("flow.py"), options)
    wait_for((before / "ready").exists, "the flow")
    wait_for(lambda: (before / "out.txt").stat().st_size > 0, "output")
    running.process.terminate()
    running.end(0)
    shutil.copytree(before, after)
    at(after, Path("flow.py"), options).end(0)
    assert Counter((after / "out.txt").read_text().split()) == Counter(map(str, range(400)))
    assert (before / "out.txt").stat().st_size < (after / "out.txt").stat().st_size


def at(folder: Path, flow: Path, options: list[object]) -> Supervised:
    """A run in this working directory."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        return Supervised(command(flow, *options))
    finally:
        os.chdir(here)


SLOW = """
import time
import millstream as ms


def slow(n):
    if n == 5:
        time.sleep(3)
    if n == 6:
        sum(range(60_000_000))
    return n


flow = ms.Flow("slow")
numbers = flow.source("in", ms.testing.items(range(20))).redistribute()
numbers.map(slow).sink("out", ms.testing.discard())
"""


def test_a_slow_step_is_no_death(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(SLOW)
    text = Supervised(command(flow, "--processes", 2, "--dead-after", "1s")).end(0)
    assert "died" not in text


@pytest.mark.parametrize("supervised", [False, True])
def test_a_signal_while_it_waits_for_the_others(
    supervised: bool, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    shape = Shape("words", tmp_path, seed=1, count=10)
    options = ["--process", 0, "--hosts", hosts(free_port), "--state", tmp_path / "state"]
    options += ["--restarts", "3/1m"] if supervised else []
    running = Supervised(command(shape.flow, *options), shape.environment(tmp_path / "out" / "out.txt"))
    running.said("waiting for 1 of 2 processes")
    running.process.send_signal(signal.SIGINT)
    text = running.end(0)
    assert "Traceback" not in text


LOADING = """
import os
import time
import millstream as ms

open(os.environ["LOADING"], "w").close()
time.sleep(600)
"""


def test_a_signal_while_the_file_is_loaded(tmp_path: Path) -> None:
    flow = tmp_path / "flow.py"
    loading = tmp_path / "loading"
    flow.write_text(LOADING)
    running = Supervised(command(flow, "--processes", 2), os.environ | {"LOADING": str(loading)})
    wait_for(loading.exists, "the file")
    running.process.send_signal(signal.SIGINT)
    running.process.wait(TIMEOUT)
    assert running.process.returncode in (0, 130), running.text


def test_standard_input_may_be_closed(tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, seed=1, count=100)
    out = tmp_path / "out" / "out.txt"
    run = " ".join(command(shape.flow, "--processes", 2))
    done = subprocess.run(
        ["bash", "-c", f"exec 0<&-; exec {run}"],
        env=shape.environment(out),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    shape.check(out)


ODD = """
import millstream as ms

flow = ms.Flow("odd \\N{SNOWMAN} 'n\\"a/me %s{}")
lines = flow.source("the lines/of it", ms.files.lines("in file.txt"))
counts = lines.key_by(str).count("each", name="count/er \\N{SNOWMAN} %s")
counts.items().map(str).sink("out ../put", ms.files.write("out file.x.txt"), gather=True)
"""


def test_odd_names(tmp_path: Path) -> None:
    folder = tmp_path / "fol der \N{SNOWMAN}"
    folder.mkdir()
    (folder / "in file.txt").write_text("a\nb\na\n")
    (folder / "flow file.py").write_text(ODD)
    options = ["--processes", 2, "--state", "state d\N{SNOWMAN}r", "--metrics"]
    text = at(folder, Path("flow file.py"), options).end(0)
    assert "\N{SNOWMAN}" in text
    assert sorted((folder / "out file.x.txt").read_text().splitlines()) == [
        "('a', 1)",
        "('a', 2)",
        "('b', 1)",
    ]
    scale = [
        sys.executable,
        "-m",
        "millstream",
        "scale",
        str(folder / "state d\N{SNOWMAN}r"),
        "--processes",
        "3",
    ]
    done = subprocess.run(scale, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    at(folder, Path("flow file.py"), [*options[:1], 3, *options[2:]]).end(0)
