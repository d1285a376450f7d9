"""``ms.objects.read``: the order of objects, positions in them, and what is refused."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pyarrow
import pyarrow.parquet
import pytest
from object_places import Directory, Place, compressed

PATIENCE = 60.0


READ: dict[Path | None, list[Any]] = {}
"""What the runs with a state directory have read: a flow that resumes needs the list of the run before."""


def read(place: Place, format: Any = "lines", state: Path | None = None, **options: Any) -> list[Any]:
    """The items that a run reads."""
    flow = ms.Flow("copy")
    out = ms.testing.collect()
    out = READ.setdefault(state, out) if state is not None else out
    before = len(out)
    flow.source("in", ms.objects.read(place.url, format, config=place.config, **options)).sink("out", out)
    ms.run(flow, state=state)
    return list(out[before:])


def parquet(rows: list[dict[str, Any]], group: int = 1000) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), out, row_group_size=group)
    return out.getvalue()


def test_objects_in_the_order_of_their_names(place: Place, tmp_path: Path) -> None:
    for name in ("b", "a/2", "a/10", "é", "a b%41&+=#x", "Z", "a/deep/er/x"):
        place.put(name, f"{name} 1\n{name} 2\r\n{name} 3".encode())
    place.put("empty", b"")
    names = ["Z", "a b%41&+=#x", "a/10", "a/2", "a/deep/er/x", "b", "é"]
    items = [f"{name} {n}" for name in names for n in (1, 2, 3)]
    assert read(place, state=tmp_path / "state") == items
    # Each is read once.
    assert read(place, state=tmp_path / "state") == []
    place.put("é2", b"more\n")
    place.put("a/3", b"and more\n")
    assert read(place, state=tmp_path / "state") == ["and more", "more"]


def test_each_directory_has_its_own_order(place: Place, tmp_path: Path) -> None:
    """A new outbox may have a lower name than the one before."""
    place.put("b/1", b"b1\n")
    assert read(place, state=tmp_path / "state") == ["b1"]
    place.put("a/1", b"a1\n")
    place.put("b/2", b"b2\n")
    assert read(place, state=tmp_path / "state") == ["a1", "b2"]


def test_only_names_of_the_pattern(place: Place) -> None:
    place.put("1.jsonl", b'{"n":1}\n')
    place.put("sub/2.jsonl", b"[2]\n")
    place.put("_SUCCESS", b"x")
    place.put("3.json", b"3\n")
    assert read(place, "json_lines") == [{"n": 1}, [2]]
    assert read(place, "json_lines", pattern="?.json") == [3]


@pytest.mark.parametrize("format", ["parquet", "json_lines", "lines"])
def test_no_objects(place: Place, tmp_path: Path, format: str) -> None:
    if isinstance(place, Directory):
        place.path.mkdir()
    assert read(place, format, state=tmp_path / "state") == []


def test_the_lag_is_the_size_of_what_is_not_read(place: Place) -> None:
    from millstream._connectors.adapter.lag import REPORTER
    from millstream.objects.reader import Reading, ReadOptions
    from millstream.objects.sink import format_of

    lags = []
    for name in ("1", "2"):
        place.put(name, b"a\n" * 50)
    options = ReadOptions(
        place.url, format_of("lines"), "*", None, "", place.config, 10.0, ms.Backoff(tries=1)
    )
    token = REPORTER.set(lambda **lag: lags.append(lag))
    try:
        list(Reading(options, None).run())
    finally:
        REPORTER.reset(token)
    assert lags == [{"bytes": 200}, {"bytes": 100}, {"bytes": 0}]


def test_row_groups_of_parquet(place: Place) -> None:
    rows = [{"n": n, "t": f"ü{n}"} for n in range(5000)]
    place.put("1.parquet", parquet(rows[:4000], group=1500))
    place.put("2.parquet", parquet(rows[4000:]))
    assert read(place, "parquet") == rows


def test_compressed_objects(place: Place) -> None:
    for ending, numbers in {".gz": [1, 2], ".zst": [3, 4], "": [5]}.items():
        # Two members of gzip, and two frames of zstd.
        members = [compressed(ending, f"{number}\n".encode()) for number in numbers]
        place.put(f"{numbers[0]}.jsonl{ending}", b"".join(members))
    assert read(place, "json_lines") == [1, 2, 3, 4, 5]
    assert read(place, "json_lines", pattern="*.gz") == [1, 2]
    assert read(place, "lines", pattern="*.zst") == ["3", "4"]


@pytest.mark.parametrize(("compression", "ending"), [("gzip", ".gz"), ("zstd", ".zst"), (None, "")])
def test_the_compression_of_any_names(place: Place, compression: Any, ending: str) -> None:
    place.put("1.gz", compressed(ending, b"a\nb"))
    place.put("2", compressed(ending, b"c\n"))
    assert read(place, compression=compression) == ["a", "b", "c"]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_objects_that_are_large(place: Place, ending: str) -> None:
    lines = [f"{n} ".ljust(3000, "x") for n in range(3000)]
    place.put(f"1{ending}", compressed(ending, "\n".join(lines).encode()))
    assert read(place) == lines


@pytest.mark.parametrize("format", ["parquet", "lines", "lines.gz", "lines.zst"])
def test_it_resumes_at_each_place_in_an_object(place: Place, format: str) -> None:
    from millstream.objects.reader import Reading, ReadOptions
    from millstream.objects.sink import format_of

    rows = [{"n": n} for n in range(4500)]
    lines = [f"{n} ".ljust(700, "x") for n in range(4500)]
    format, dot, ending = format.partition(".")
    plain = parquet(rows, 1500) if format == "parquet" else "\n".join(lines).encode()
    place.put(f"1{dot}{ending}", compressed(f"{dot}{ending}", plain))
    items = rows if format == "parquet" else lines
    retry = ms.Backoff(tries=1)
    options = ReadOptions(place.url, format_of(format), ("*",), None, "", place.config, 10.0, retry)
    before: list[Any] = []
    steps = list(Reading(options, None).run())
    assert len(steps) > 3
    for step in steps:
        before += step.item
        after = [item for later in Reading(options, step.position).run() for item in later.item]
        assert before + after == items


FOLLOW = """
import millstream as ms

flow = ms.Flow("copy")
source = ms.objects.read({url!r}, "lines", config={config!r}, follow=0.02)
flow.source("in", source).sink("out", ms.files.write({out!r}))
"""


class Following:
    """A flow in a process that follows a place, until the end of the block; what it has read is in a file."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.out = folder / "out"
        self.errors = folder / "errors"
        (folder / "flow.py").write_text(FOLLOW.format(url=place.url, config=place.config, out=str(self.out)))
        self.command = [sys.executable, "-m", "millstream", "run", str(folder / "flow.py")]
        self.command += ["--state", str(folder / "state"), "--epoch", "20ms", "--sync", "never"]

    def __enter__(self) -> Following:
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(self.command, stderr=errors)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            assert self.process.wait(PATIENCE) == 0, self.errors.read_text()
        finally:
            self.process.kill()

    def items(self) -> list[str]:
        return self.out.read_text().splitlines() if self.out.exists() else []

    def wait(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None and time.monotonic() < until, self.errors.read_text()
            time.sleep(0.02)


def test_new_objects_are_found(place: Place, tmp_path: Path) -> None:
    place.put("mark", b"")
    with Following(place, tmp_path) as following:
        for number in range(5):
            place.put(f"{number}", f"{number}\n".encode())
            following.wait(lambda: len(following.items()) > number)  # noqa: B023
    assert following.items() == ["0", "1", "2", "3", "4"]


def test_late_objects_are_warned_of(place: Place, tmp_path: Path) -> None:
    place.put("a/3", b"3\n")
    with Following(place, tmp_path) as following:
        following.wait(lambda: following.items() == ["3"])
        place.put("a/5", b"5\n")
        following.wait(lambda: following.items() == ["3", "5"])
        place.put("a/4", b"4\n")
        following.wait(lambda: "1 objects have appeared" in following.errors.read_text())
        place.put("a/6", b"6\n")
        following.wait(lambda: following.items() == ["3", "5", "6"])
    assert following.errors.read_text().count("have appeared") == 1


# Damage.


@pytest.mark.parametrize(
    ("format", "content", "parts"),
    [
        ("json_lines", b'{"n":1}\n{"n":\n', ["offset 8", "JSONDecodeError"]),
        ("json_lines", b"1\n\n2\n", ["offset 2"]),
        ("lines", b"a\n\xff\xfe\n", ["offset 2", "UnicodeDecodeError"]),
        ("lines", b"a\n" + b"x" * 200, ["offset 2", "100 bytes", "max_line"]),
        ("lines", b"a\n" + b"x" * (3 << 20) + b"\nb", ["offset 2", "100 bytes", "max_line"]),
        ("parquet", b"PAR1 no parquet PAR1", ["not Parquet"]),
        ("parquet", b"x", ["not Parquet"]),
        ("parquet", parquet([{"n": n} for n in range(9)])[:-9], ["not Parquet"]),
    ],
)
def test_damaged_objects(place: Place, format: str, content: bytes, parts: list[str]) -> None:
    ending = {"parquet": ".parquet", "json_lines": ".jsonl", "lines": ""}[format]
    place.put(f"damaged{ending}", content)
    with pytest.raises(ms.FlowError) as error:
        read(place, format, max_line=100)
    cause = error.value.__cause__
    assert isinstance(cause, ms.objects.ObjectError)
    for part in [f"damaged{ending}", *parts]:
        assert part in str(cause)
    assert "\n" not in str(cause)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_damaged_compression(place: Place, ending: str) -> None:
    whole = compressed(ending, "".join(f"{n}\n" for n in range(100_000)).encode())
    damaged = {"ends": whole[:-3], "middle": whole[: len(whole) // 2], "flipped": bytearray(whole)}
    # pyarrow writes frames of zstd without a checksum: damage in the text of one is not noticed.
    damaged["flipped"][len(whole) // 2 if ending == ".gz" else 2] ^= 0xFF  # type: ignore[index]
    for name, content in damaged.items():
        place.put(f"{name}/1{ending}", bytes(content))
        with pytest.raises(ms.FlowError) as error:
            read(place, pattern=f"1{ending}", retry=ms.Backoff(tries=1))
        cause = error.value.__cause__
        assert isinstance(cause, ms.objects.ObjectError)
        assert f"{name}/1{ending}" in str(cause) and "\n" not in str(cause)
        place.put(f"{name}/1{ending}", b"")


def test_damaged_pages_of_parquet(place: Place) -> None:
    content = bytearray(parquet([{"n": n} for n in range(1000)]))
    content[8:60] = b"\xff" * 52
    place.put("damaged.parquet", bytes(content))
    with pytest.raises(ms.FlowError) as error:
        read(place, "parquet")
    assert "damaged.parquet" in str(error.value.__cause__)


def test_an_object_that_is_replaced_while_it_is_read(place: Place) -> None:
    from millstream.objects.formats import JsonLines
    from millstream.objects.reader import Reading, ReadOptions

    place.put("1", b"".join(json.dumps(n).encode() + b"\n" for n in range(500_000)))
    options = ReadOptions(place.url, JsonLines(), ("*",), None, "", place.config, 10.0, ms.Backoff(tries=1))
    step = next(iter(Reading(options, None).run()))
    place.put("1", b"1\n")
    with pytest.raises(ms.objects.ObjectError, match="was replaced while it was read"):
        list(Reading(options, step.position).run())


def test_an_object_that_is_removed(place: Place, tmp_path: Path) -> None:
    """After it was read, or before: nothing is missing. In the middle it is an error."""
    from millstream.objects.formats import Lines
    from millstream.objects.reader import Reading, ReadOptions

    options = ReadOptions(place.url, Lines(), ("*",), None, "", place.config, 10.0, ms.Backoff(tries=1))
    place.put("1", b"a\n")
    place.put("2", b"".join(b"%d\n" % n for n in range(500_000)))
    steps = iter(Reading(options, None).run())
    first = next(step for step in steps if step.item == [] and step.position)
    place.remove("1")
    step = next(iter(Reading(options, first.position).run()))
    assert step.item[:2] == ["0", "1"]
    place.remove("2")
    assert list(Reading(options, first.position).run()) == []
    with pytest.raises(ms.objects.ObjectError, match='2" was removed while it was read'):
        list(Reading(options, step.position).run())


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ms.FlowError) as error:
        read(Directory(tmp_path / "missing"))
    assert "missing: there is no such directory" in str(error.value.__cause__)


@pytest.mark.parametrize(
    ("arguments", "options", "part"),
    [
        (("s3://bucket", "csv"), {}, "csv"),
        (("s3://bucket", "lines"), {"pattern": "a/*"}, "pattern"),
        (("s3://bucket", "lines"), {"follow": 0}, "follow"),
        (("s3://bucket", "lines"), {"compression": "lz4"}, "compression"),
        (("s3://bucket", "parquet"), {"compression": "zstd"}, "compression is for lines"),
        (("s3://bucket", "lines"), {"max_line": 0}, "max_line"),
        (("s3://bucket", "lines"), {"config": {"nonsense": "1"}}, "nonsense"),
        ((object(), "lines"), {}, "a store of obstore"),
    ],
)
def test_wrong_options(arguments: Any, options: Any, part: str) -> None:
    with pytest.raises(ms.FlowUsageError) as error:
        ms.objects.read(*arguments, **options)
    assert part in str(error.value) and "\n" not in str(error.value)
