"""Flows that write objects and read them again, killed with -9: each item is there once.

``make kills`` kills more often (``MILLSTREAM_KILLS``). A failure prints the seed.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed
from object_places import Directory, Place, items_of

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)
ENDLESS = 1 << 41
FLOW = """
import os
import millstream as ms

end = int(os.environ["END"])
flow = ms.Flow("numbers")
source = ms.generate(lambda: range(end), rate=20_000 if end > 1 << 40 else None, batch_size=50)
numbers = flow.source("in", source).key_by(lambda n: n % 7).map(lambda n: n, name="spread").values()
options = {"retry": ms.Backoff(first=0.02, most=0.2), "config": eval(os.environ["CONFIG"])}
options |= {"batch": 500, "batch_age": 0.02} | eval(os.environ.get("OPTIONS", "{}"))
objects = ms.objects.write(os.environ["URL"], os.environ["FORMAT"], **options)
numbers.map(eval(os.environ["ITEM"])).sink("objects", objects)
numbers.sink("expected", ms.files.write(os.environ["EXPECTED"]))
"""
COPY = """
import os
import millstream as ms

follow = float(os.environ["FOLLOW"]) or None
retry = ms.Backoff(first=0.02, most=0.2)
flow = ms.Flow("copy")
options = {"config": eval(os.environ["CONFIG"]), "retry": retry, "follow": follow}
source = ms.objects.read(os.environ["URL"], os.environ["FORMAT"], **options)
flow.source("in", source).map(eval(os.environ["NUMBER"])).sink("out", ms.files.write(os.environ["OUT"]))
"""
ITEM = {"parquet": "lambda n: {'n': n, 'kind': 'a'}", "json_lines": "lambda n: {'n': n}", "lines": "str"}
NUMBER = {"parquet": "lambda row: row['n']", "json_lines": "lambda row: row['n']", "lines": "int"}


def command(folder: Path, name: str, text: str, workers: int = 1) -> list[str]:
    (folder / f"{name}.py").write_text(text)
    command = [sys.executable, "-m", "millstream", "run", str(folder / f"{name}.py")]
    command += ["--workers", str(workers), "--state", str(folder / f"state of {name}")]
    return [*command, "--epoch", "20ms", "--sync", "never"]


def finish(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


PARTITIONED = "{'partition_by': {'rest': lambda row: row['n'] % 3, 'kind': 'kind'}}"


def data(names: Iterable[str]) -> list[str]:
    """Names of objects, without the markers of a partitioned dataset."""
    return [name for name in names if not name.startswith("_")]


def kill_writers(tmp_path: Path, place: Place, format: str, workers: int, options: str) -> list[str]:
    """Kills a flow, and returns the names of the objects: they have each item once."""
    print(f"seed {SEED}")
    environment = os.environ | {"URL": place.url, "CONFIG": repr(place.config), "FORMAT": format}
    environment |= {"ITEM": ITEM[format], "END": str(ENDLESS), "EXPECTED": str(tmp_path / "expected")}
    environment |= {"OPTIONS": options}
    write = command(tmp_path, "writer", FLOW, workers)
    killed = Killed(write, environment, lambda: len(data(place.names())), random.Random(SEED))
    killed.kill(KILLS)
    finish(write, environment | {"END": "1"})
    contents = place.contents()
    objects = {name: contents[name] for name in data(contents)}
    found = Counter(row["n"] for row in items_of(objects))
    given = Counter(map(int, (tmp_path / "expected").read_text().splitlines()))
    assert sorted(given) == list(range(len(given)))
    figures = {"items": len(given), "lost": (given - found).total(), "twice": (found - given).total()}
    figures |= {"objects": len(objects)}
    print(json.dumps({"destination": f"objects, {format}", "seed": SEED} | figures | killed.figures()))
    assert figures["lost"] == figures["twice"] == 0, figures
    assert figures["items"], "nothing was written"
    return list(objects)


@pytest.mark.parametrize(("format", "workers"), [("parquet", 1), ("json_lines", 2)])
def test_killed_writers(tmp_path: Path, place: Place, format: str, workers: int) -> None:
    names = kill_writers(tmp_path, place, format, workers, "{}")
    assert len({name.partition("/")[0] for name in names}) == 1


def test_killed_writers_of_partitions(tmp_path: Path) -> None:
    names = kill_writers(tmp_path, Directory(tmp_path / "objects"), "parquet", 2, PARTITIONED)
    assert {name.rpartition("/")[0] for name in names} == {f"rest={rest}/kind=a" for rest in range(3)}


@pytest.mark.parametrize("format", ["parquet", "lines"])
def test_killed_readers(tmp_path: Path, place: Place, format: str) -> None:
    """The writer is not killed, and writes the next object while the reader reads."""
    print(f"seed {SEED}")
    from test_read import parquet

    stopping = threading.Event()
    given = []

    def write() -> None:
        for first in range(0, 1 << 30, 5000):
            numbers = list(range(first, first + 5000))
            rows = parquet([{"n": n} for n in numbers], 1500) if format == "parquet" else None
            content = rows or "".join(f"{n:0500}\n" for n in numbers).encode()
            place.put(f"dir/{first:020}.{format}", content)
            given.extend(numbers)
            if stopping.wait(0.02 if len(given) < 100_000 else 0.5):
                return

    out = tmp_path / "out"
    environment = os.environ | {"URL": place.url, "CONFIG": repr(place.config), "FORMAT": format}
    environment |= {"NUMBER": NUMBER[format], "OUT": str(out), "FOLLOW": "0.02"}
    read = command(tmp_path, "reader", COPY)
    writer = threading.Thread(target=write)
    place.put("dir/first", b"")
    writer.start()
    killed = Killed(read, environment, lambda: out.stat().st_size if out.exists() else 0, random.Random(SEED))
    try:
        killed.kill(KILLS)
    finally:
        stopping.set()
        writer.join()
    finish(read, environment | {"FOLLOW": "0"})
    found = list(map(int, out.read_text().splitlines()))
    print(json.dumps({"source": f"objects, {format}", "seed": SEED, "items": len(given)} | killed.figures()))
    assert len(found) == len(given)
    assert found == given


def kill_at_once(tmp_path: Path, place: Place, format: str, options: str, times: int) -> None:
    """Kills a flow when an object of it is there, which it does not know yet."""
    environment = os.environ | {"URL": place.url, "CONFIG": repr(place.config), "FORMAT": format}
    environment |= {"ITEM": ITEM[format], "END": str(ENDLESS), "EXPECTED": str(tmp_path / "expected")}
    environment |= {"OPTIONS": options}
    write = command(tmp_path, "writer", FLOW)
    for _ in range(times):
        before = len(data(place.names()))
        running = subprocess.Popen(write, env=environment, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + PATIENCE
        while len(data(place.names())) <= before:
            assert running.poll() is None, running.communicate()[1]
            assert time.monotonic() < until, "no object is written"
        running.kill()
        running.communicate()
    finish(write, environment | {"END": "1"})
    contents = place.contents()
    items = items_of({name: contents[name] for name in data(contents)})
    found = [item["n"] if format == "parquet" else item for item in items]
    given = (tmp_path / "expected").read_text().splitlines()
    assert sorted(map(int, found)) == sorted(map(int, given))


def test_writers_that_are_killed_at_once_after_an_object(tmp_path: Path, place: Place) -> None:
    kill_at_once(tmp_path, place, "lines", "{}", KILLS)


def test_writers_that_are_killed_within_a_delivery(tmp_path: Path) -> None:
    """Some partitions of the delivery have their object, and others not."""
    place = Directory(tmp_path / "objects")
    kill_at_once(tmp_path, place, "parquet", PARTITIONED, max(2, KILLS // 2))
