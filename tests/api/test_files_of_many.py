"""A file for each key, CSV files, and the files of a directory."""

from __future__ import annotations

import contextlib
import csv
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing
from millstream._run.trial import run_crashing

MOMENTS = ["before", "within", "after"]


def crash_often(flow: ms.Flow, state: Path, commits: int = 2, workers: tuple[int, ...] = (1,)) -> int:
    """Runs until it ends, crashing at each moment of each n-th commit; returns how often it crashed."""
    for crashes in range(1000):
        try:
            crash = (MOMENTS[crashes % 3], commits)
            run_crashing(flow, workers[crashes % len(workers)], state, crash)
        except ms.SimulatedCrash:
            continue
        return crashes
    raise AssertionError("it gets nowhere")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".")}


ODD = ["", ".", "..", "a/b", "../../x", "a b", "größe", "\0", "A" * 5000, "A" * 5001, "/", "%2F", "-1"]


def test_each_key_of_any_kind_has_a_file_of_its_own(tmp_path: Path) -> None:
    kinds: list[list[Any]] = [
        ODD,
        [key.encode() for key in ODD],
        [0, 1, -1, 10**38],
        [(), ("",), ("a",), ("a,b",), ("a", "b"), (1,), ("1",), (b"1",), (("1",),), ("\\1",), (1, (2, "x"))],
    ]
    for number, keys in enumerate(kinds):
        flow = ms.Flow("keys")
        folder = tmp_path / str(number)
        pairs = [(key, place) for place, key in enumerate(keys)] * 2
        keyed = flow.source("in", testing.items(pairs)).key_by(lambda pair: pair[0]).map(lambda pair: pair[1])
        keyed.sink("out", ms.files.write_by_key(folder, max_open=3))
        ms.run(flow, workers=2)
        assert sorted(contents(folder).values()) == sorted(f"{n}\n{n}\n" for n in range(len(keys)))
    assert [path.name for path in tmp_path.iterdir() if not path.name.isdigit()] == []


def test_keys_that_would_have_one_file_are_an_error(tmp_path: Path) -> None:
    flow = ms.Flow("keys")
    keyed = flow.source("in", testing.items([7, "7"])).key_by(lambda key: key)
    keyed.sink("out", ms.files.write_by_key(tmp_path / "out"))
    with pytest.raises(
        ms.StepError, match='step "out": .*/7: the key "7" would write to the file of another'
    ):
        ms.run(flow)


def test_a_sink_by_key_wants_keys(tmp_path: Path) -> None:
    flow = ms.Flow("keys")
    flow.source("in", testing.items(["a"])).sink("out", ms.files.write_by_key(tmp_path / "out"))
    with pytest.raises(ms.StepError, match="item 'a': TypeError: the sink takes pairs of key and value"):
        ms.run(flow)
    with pytest.raises(ms.FlowUsageError, match="max_open is a number, 1 or more, not 0"):
        ms.files.write_by_key(tmp_path, max_open=0)


def by_key(source: Path, out: Path) -> ms.Flow:
    flow = ms.Flow("by key")
    rows = flow.source("in", ms.files.csv(source))
    keyed = rows.key_by(lambda row: row["key"])
    keyed.count("each").sink("counts", ms.files.write_by_key(out / "counts", max_open=4))
    keyed.sink("rows", ms.files.write_csv_by_key(out / "rows", ["n", "key", "text"], max_open=4))
    return flow


def rows(count: int) -> list[dict[str, str]]:
    return [{"key": f"k/{n * n % 13}", "n": str(n), "text": 'a "b",\nc' * (n % 3)} for n in range(count)]


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["key", "n", "text"])
        writer.writeheader()
        writer.writerows(rows)


def check_by_key(out: Path, rows: list[dict[str, str]]) -> None:
    of_key: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        of_key.setdefault(row["key"].replace("/", "%2F"), []).append(row)
    counts = contents(out / "counts")
    assert counts.keys() == of_key.keys()
    for key, due in of_key.items():
        assert counts[key].split() == [str(n + 1) for n in range(len(due))]
        with (out / "rows" / f"{key}.csv").open(newline="") as file:
            assert list(csv.DictReader(file)) == due
    assert len(contents(out / "rows")) == len(of_key)


@pytest.mark.parametrize("workers", [(1,), (2, 1, 3)])
def test_a_crash_at_every_commit_changes_no_file_of_a_key(tmp_path: Path, workers: tuple[int, ...]) -> None:
    write_rows(tmp_path / "in.csv", rows(20_000))
    crashes = crash_often(by_key(tmp_path / "in.csv", tmp_path), tmp_path / "state", workers=workers)
    assert crashes > 6
    check_by_key(tmp_path, rows(20_000))


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
import millstream as ms
from test_files_of_many import by_key
ms.run(by_key(Path({source!r}), Path({out!r})), workers=int(sys.argv[1]), state={state!r}, epoch=0.02)
"""


def test_a_flow_that_is_killed_leaves_each_row_once_in_the_file_of_its_key(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.csv", rows(150_000))
    names = {"tests": str(Path(__file__).parent), "source": str(tmp_path / "in.csv")}
    program = PROGRAM.format(**names, out=str(tmp_path), state=str(tmp_path / "state"))
    kills = 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", program, str(1 + kills % 3)])
        if kills < 6:
            before = progress(tmp_path)
            deadline = time.monotonic() + 60
            while process.poll() is None and progress(tmp_path) == before and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.03)
            process.send_signal(signal.SIGKILL)
        if process.wait(120) == 0:
            break
        assert process.returncode == -signal.SIGKILL
        kills += 1
    assert kills > 1
    check_by_key(tmp_path, rows(150_000))


def progress(out: Path) -> int:
    """The bytes in the files.

    A file whose first row was not committed may be removed meanwhile, by the start of the flow.
    """
    total = 0
    for path in (out / "rows").glob("*.csv"):
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def test_csv_is_read_as_python_reads_it(tmp_path: Path) -> None:
    texts = [
        "a,b\nc,d",
        'x,"y\r\nz"\r\n"1 ""2""",3\r\n',
        'a"b,c"\n"d"e,f\n',
        " ,\t\n\n,\n",
        "ä,ö\n",
        '"",""\n""\n',
    ]
    path = tmp_path / "in.csv"
    for text in texts:
        path.write_bytes(text.encode())
        flow = ms.Flow("csv")
        out = testing.collect()
        flow.source("in", ms.files.csv(path, header=False)).sink("out", out)
        ms.run(flow)
        with path.open(newline="") as file:
            assert out == [row for row in csv.reader(file) if row], text


def test_csv_headers_and_dialects(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("\ufeffa;b\n1;'2;3'\n", encoding="utf-8")

    def read(**options: Any) -> list[Any]:
        flow = ms.Flow("csv")
        out = testing.collect()
        flow.source("in", ms.files.csv(path, delimiter=";", **options)).sink("out", out)
        ms.run(flow)
        return out

    assert read(quote="'") == [{"a": "1", "b": "2;3"}]
    assert read(quote=None, header=False) == [["a", "b"], ["1", "'2", "3'"]]
    assert read(quote="'", header=["x", "y"]) == [{"x": "a", "y": "b"}, {"x": "1", "y": "2;3"}]
    for options, said in (
        ({"quote": "ab"}, 'quote is one ASCII character that ends no line, not "ab"'),
        ({"header": ["a", "a"]}, "header is True, False or the names of the fields, each once"),
        ({"header": "a"}, "header is True or False or a list of texts"),
    ):
        with pytest.raises(ms.FlowUsageError, match=said):
            read(**options)


def test_a_bad_row_does_as_on_error_says(tmp_path: Path, caplog: Any) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(b'a,b\n1,"2\n3"\n4\n5,\xff\n6,7\n')
    letters = testing.collect()

    def run(on_error: Any) -> list[Any]:
        flow = ms.Flow("csv")
        out = testing.collect()
        flow.source("in", ms.files.csv(path), on_error=on_error).sink("out", out)
        ms.run(flow)
        return out

    with pytest.raises(
        ms.StepError, match=r'step "in", item .*in.csv, line 4, column 2: the row has 1 fields'
    ):
        run("fail")
    good = [{"a": "1", "b": "2\n3"}, {"a": "6", "b": "7"}]
    assert run("skip") == good
    assert "line 5, column 3: the field is not UTF-8" in caplog.text
    assert run(ms.dead_letter(letters)) == good
    assert [letter.item for letter in letters] == [b"4", b"5,\xff"]
    path.write_text('a,b\n1,"2\n')
    with pytest.raises(ms.StepError, match="line 2, column 3: the quote is not closed"):
        run("skip")
    with pytest.raises(FileNotFoundError, match="none.csv"):
        path = tmp_path / "none.csv"
        run("fail")


def test_csv_files_are_written_as_python_writes_them(tmp_path: Path) -> None:
    values: list[Any] = ["a", "a,b", 'say "x"', "a\nb", "a\rb", "", None, 1, 2.5, "ä", " "]
    table = [[a, b] for a in values for b in values]
    flow = ms.Flow("csv")
    path = tmp_path / "out.csv"
    flow.source("in", testing.items(table)).sink("out", ms.files.write_csv(path, ["x", "y"]))
    ms.run(flow)
    with path.open(newline="") as file:
        read = list(csv.reader(file))
    assert read == [["x", "y"], *[["" if v is None else str(v) for v in row] for row in table]]


@pytest.mark.parametrize(
    ("row", "fields", "said"),
    [
        ({"a": 1, "c": 2}, ["a", "b"], "the row has 'c', which is no field of the file"),
        ({"a": 1}, None, "a row that is a dict needs fields="),
        ([1, 2, 3], ["a", "b"], "the row has 3 fields, the header 2"),
        ("text", ["a"], "a row is a dict or a sequence, not str"),
        (7, None, "a row is a dict or a sequence, not int"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path: Path, row: Any, fields: Any, said: str) -> None:
    flow = ms.Flow("csv")
    flow.source("in", testing.items([row])).sink("out", ms.files.write_csv(tmp_path / "out", fields))
    with pytest.raises(ms.StepError, match=said):
        ms.run(flow)


def test_a_directory_is_read_in_order_and_resumed_in_each_file(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    table = rows(9_000)
    for number in range(9):
        write_rows(folder / f"{number}.csv", table[number * 1000 : (number + 1) * 1000])
    (folder / "notes.txt").write_text("none of them")
    flow = ms.Flow("directory")
    source = ms.files.csv_directory(folder)
    flow.source("in", source).sink("out", ms.files.write_csv(tmp_path / "out.csv", ["key", "n", "text"]))
    assert crash_often(flow, tmp_path / "state", commits=1) > 6
    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == table


def test_a_directory_is_read_however_its_path_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "d[1]"
    (folder / "below").mkdir(parents=True)
    (folder / "a.log").write_text("1\n")
    (folder / "below" / "b.log").write_text("2\n")
    spellings = ["d[1]", "./d[1]", ".//./d[1]", "d[1]/", "./d[1]/.", "d[1]/../d[1]", folder]
    for pattern, expected in (("*.log", ["1"]), ("**/*.log", ["1", "2"]), ("./*.log", ["1"])):
        for path in spellings:
            flow = ms.Flow("read")
            out = ms.testing.collect()
            flow.source("in", ms.files.directory(path, pattern)).sink("out", out)
            ms.run(flow)
            assert out == expected, (path, pattern)
    monkeypatch.chdir(folder)
    for path in (".", "./", "../d[1]", "below/.."):
        flow = ms.Flow("read")
        out = ms.testing.collect()
        flow.source("in", ms.files.directory(path)).sink("out", out)
        ms.run(flow)
        assert out == ["1"], path


def test_a_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "1.log").write_text("1\n")
    flow = ms.Flow("directory")
    seen = []

    def see(line: str) -> None:
        seen.append(line)
        number = len(seen) + 1
        if number < 6:
            (tmp_path / ".new").write_text(f"{number}\n")
            (tmp_path / ".new").rename(tmp_path / f"{number}.log")
        else:
            signal.raise_signal(signal.SIGINT)

    source = ms.files.directory(tmp_path, "*.log", follow=0.005)
    flow.source("in", source).inspect(see).sink("out", testing.discard())
    ms.run(flow)
    assert seen == ["1", "2", "3", "4", "5"]


def test_a_directory_says_what_it_is_asked_wrongly(tmp_path: Path) -> None:
    with pytest.raises(ms.FlowUsageError, match="partitions is a number, 1 or more, not 0"):
        ms.files.directory(tmp_path, partitions=0)
    with pytest.raises(ms.FlowUsageError, match="follow is a number of seconds above 0"):
        ms.files.directory(tmp_path, follow=0)
    with pytest.raises(ms.FlowUsageError, match="files are durable already"):
        ms.files.directory(tmp_path).durable()
    flow = ms.Flow("directory")
    flow.source("in", ms.files.directory(tmp_path / "none")).sink("out", testing.discard())
    with pytest.raises(FileNotFoundError, match="none"):
        ms.run(flow)
