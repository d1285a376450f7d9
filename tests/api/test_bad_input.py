"""Mistakes in a description raise at the call that makes them; in a flow file they are one clear line."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import _millstream, testing


def stream() -> Any:
    return ms.Flow("f").source("in", testing.items([1]))


MISTAKES: dict[str, tuple[Any, str]] = {
    "name twice": (lambda: stream().map(str, name="a").map(str, name="a"), 'name "a" is used by two steps'),
    "count twice": (lambda: stream().key_by(int).count().count(), 'name "count" is used by two steps'),
    "no name": (lambda: stream().key_by(int).stateful("", list, state=list), "needs a name"),
    "no function": (lambda: stream().map(3), "map takes a function, not 3"),
    "no logic": (lambda: stream().key_by(int).stateful("s", dict), "dict has no method on_item"),
    "on_error": (lambda: stream().map(str, on_error="ignore"), 'not "ignore"'),
    "emit": (lambda: stream().key_by(int).count(emit="never"), "not 'never'"),
    "merge kinds": (lambda: stream().merge(stream().key_by(int)), "without keys merges"),
    "two flows": (lambda: stream().merge(stream()), "two different flows"),
    "no source": (lambda: ms.Flow("f").source("in", 3), "3 is no source"),
    "no sink": (lambda: stream().sink("out", 3), "3 is no sink"),
    "framing": (lambda: ms.tcp.listen("a:1", framing="u64"), "u64"),
    "workers": (lambda: ms.run(ms.Flow("f"), workers=0), "workers is a number from 1 to 256, not 0"),
    "empty": (lambda: ms.run(ms.Flow("f")), "has no source"),
    "describe": (lambda: ms.Flow("f").describe("xml"), 'not "xml"'),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_raises_where_it_is_made(name: str) -> None:
    make, says = MISTAKES[name]
    with pytest.raises(ms.FlowUsageError, match=says):
        make()


def test_a_stream_nobody_reads() -> None:
    unread = stream()
    flow = ms.Flow("f")
    flow.source("in", testing.items([1])).map(str, name="lost")
    with pytest.raises(ms.FlowUsageError, match='nothing reads the output of "lost"'):
        ms.run(flow)
    assert unread is not None


FLOW = """
import millstream as ms
def fails(item):
    raise ValueError("no good")
flow = ms.Flow("f")
flow.source("in", ms.testing.items([1, 2])).map({f}).sink("out", ms.stdout())
"""
FILES: dict[str, tuple[str, list[str], int, str]] = {
    "fine": (FLOW.format(f="str"), [], 0, ""),
    "two workers": (FLOW.format(f="str"), ["--workers", "2"], 0, ""),
    "metrics": (FLOW.format(f="str"), ["--metrics"], 0, "p99 us"),
    "no flow": ("x = 1", [], 2, "no flow in this file"),
    "two flows": ("import millstream as ms\na, b = ms.Flow('a'), ms.Flow('b')", [], 2, "several flows"),
    "syntax": ("def", [], 1, "SyntaxError"),
    "raises": ("1 / 0", [], 1, "ZeroDivisionError"),
    "no workers": (FLOW.format(f="str"), ["--workers", "0"], 2, "--workers is a number from 1 to 256"),
    "flag": (FLOW.format(f="str"), ["--fast"], 2, "--fast"),
    "fails": (FLOW.format(f="fails"), [], 1, 'step "map-1", item 1: ValueError: no good'),
}


@pytest.mark.parametrize("name", FILES)
def test_a_flow_file(name: str, tmp_path: Path) -> None:
    text, arguments, code, says = FILES[name]
    path = tmp_path / "flow.py"
    path.write_text(text)
    command = [sys.executable, "-m", "millstream", "run", str(path), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == code and says in ended.stderr, ended
    assert code != 0 or ended.stdout == "1\n2\n"
    lines = ended.stderr.splitlines()
    assert code != 2 or (len(lines) == 1 and lines[0].startswith("millstream run: ")), lines
    assert "python/millstream" not in ended.stderr and "runpy" not in ended.stderr
    if name == "fails":
        assert "in fails" in ended.stderr and "Traceback" in ended.stderr


def test_no_such_file() -> None:
    command = [sys.executable, "-m", "millstream", "run", "none.py"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (2, "millstream run: none.py: no such file\n")


def test_keys_are_hashed_as_in_rust() -> None:
    key_hash = _millstream.key_hash
    assert key_hash(7) == key_hash(True * 7) and key_hash(1) == key_hash(True)
    assert len({key_hash(key) for key in ["a", b"a", 97, ("a",), ("a", "b"), ("b", "a"), -1, 2**64 - 1]}) == 8
    # Constants of format version 1: a change here moves saved state.
    assert key_hash(2**63) != key_hash(-(2**63))
    for wrong in (1.5, None, ["a"], ("a", 1.5)):
        with pytest.raises(TypeError, match="a key is"):
            key_hash(wrong)
