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


class Needy:
    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_item(self, key: Any, value: Any) -> None: ...


MISTAKES: dict[str, tuple[Any, str]] = {
    "name twice": (lambda: stream().map(str, name="a").map(str, name="a"), 'name "a" is used by two steps'),
    "count twice": (lambda: stream().key_by(int).count().count(), 'name "count" is used by two steps'),
    "no name": (lambda: stream().key_by(int).stateful("", list, state=list), "needs a name"),
    "no function": (lambda: stream().map(3), "map takes a function, not 3"),
    "no logic": (lambda: stream().key_by(int).stateful("s", dict), "dict has no method on_item"),
    "no state": (lambda: stream().key_by(int).stateful("s", divmod), r"divmod .* needs state="),
    "arguments": (lambda: stream().key_by(int).stateful("s", Needy), "calls Needy without arguments"),
    "connections": (
        lambda: ms.tcp.listen("a:1", max_connections=0),
        "max_connections is a number",
    ),
    "on_error": (lambda: stream().map(str, on_error="ignore"), 'not "ignore"'),
    "emit": (lambda: stream().key_by(int).count(emit="never"), "not 'never'"),
    "merge kinds": (lambda: stream().merge(stream().key_by(int)), "without keys merges"),
    "two flows": (lambda: stream().merge(stream()), "two different flows"),
    "no source": (lambda: ms.Flow("f").source("in", 3), "3 is no source"),  # type: ignore[arg-type]
    "no sink": (lambda: stream().sink("out", 3), "3 is no sink"),
    "sink a name": (
        lambda: stream().map(str, on_error=ms.dead_letter("bad.jsonl")),  # type: ignore[arg-type]
        r"'bad.jsonl' is no sink: ms\.files\.write makes one of a path",
    ),
    "sink a path": (
        lambda: stream().map(str, on_error=ms.dead_letter(Path("bad"))),  # type: ignore[arg-type]
        r"'bad'\) is no sink: ms\.files\.write makes one of a path",
    ),
    "sink a class": (
        lambda: stream().map(str, on_error=ms.dead_letter(ms.Sink)),  # type: ignore[arg-type]
        "it is a class: call it",
    ),
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


def test_a_stream_without_a_reader() -> None:
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


# Format version 1: saved state is laid out by these. The tests of the Rust crate hold the same table;
# the package xxhash gives these values, too.
HASHES: list[tuple[Any, int]] = [
    ("", 0x4DC5B0CC826F6703),
    ("millstream", 0xF6D952798C3AED4A),
    ("ä€🌊", 0xB6123EC6D49C21F3),
    (b"", 0xF36CF7ECD1FCFDA0),
    (b"millstream", 0x25B4B3CF4E1AB17B),
    (0, 0xD4EBD77823C7899A),
    (7, 0xA9395E52E7C50B79),
    (-1, 0xA69296BE964DB6E3),
    (2**63 - 1, 0x42B7C65537A999E0),
    (-(2**63), 0x0F063AEF9D229627),
    (2**63, 0xECE8F935684832AE),
    (2**64 - 1, 0x23565EA83FA3C9F1),
    (-(2**63) - 1, 0x4959491B8F576A7D),
    (2**127 - 1, 0xA0DC9CD4AA0650A8),
    (("a", 7), 0x9E630789AF9BE3F7),
    (("a", b"b", -1), 0x02C5B9D32DE368D7),
    ((("a", 7), 1), 0x660696207DE5F117),
]


@pytest.mark.parametrize(("key", "value"), HASHES)
def test_keys_are_hashed_as_in_rust(key: Any, value: int) -> None:
    assert _millstream.key_hash(key) == value


def test_what_is_equal_has_one_hash_and_what_is_no_key_has_none() -> None:
    key_hash = _millstream.key_hash
    assert key_hash(True) == key_hash(1) and key_hash((False,)) == key_hash((0,))
    for wrong in (1.5, None, ["a"], ("a", 1.5)):
        with pytest.raises(TypeError, match="a key is"):
            key_hash(wrong)


@pytest.mark.parametrize("epoch", [-1.0, float("nan"), float("inf"), 1e300])
def test_an_epoch_has_a_length_that_can_be_meant(tmp_path: Path, epoch: float) -> None:
    flow = ms.Flow("epochs")
    flow.source("in", testing.items([1])).sink("out", testing.collect())
    with pytest.raises(ms.FlowUsageError, match="epoch is a number of seconds from 0 to 200 years, not"):
        ms.run(flow, state=tmp_path / "state", epoch=epoch)
    ms.run(flow, state=tmp_path / "state", epoch=200 * 365 * 86_400)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_generator_has_a_rate_that_can_be_meant(rate: float) -> None:
    with pytest.raises(ValueError, match="rate is a number of items a second above 0, not"):
        ms.generate(lambda: iter(range(3)), rate=rate)
