"""A flow that would write a file twice, or overwrite its own input, is refused before anything is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

SPELLINGS = ["out", "./out", "there/../out"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("link").symlink_to("out")


def two_sinks(one: Any, other: Any, keyed: bool = False) -> ms.Flow:
    flow = ms.Flow("two")
    words = flow.source("words", ms.testing.items(["a", "b"]))
    streams = (words, words.map(str.upper))
    for name, stream, sink in zip(("one", "other"), streams, (one, other), strict=True):
        (stream.key_by(str) if keyed else stream).sink(name, sink)
    return flow


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("state", [None, "state"])
def test_two_sinks_on_one_file_are_refused(spelling: str, state: str | None) -> None:
    flow = two_sinks(ms.files.write("out"), ms.files.write_csv(spelling))
    with pytest.raises(ms.FlowUsageError, match=f'sinks "one" and "other" both write {spelling};'):
        ms.run(flow, state=state)
    assert not Path("out").exists()


@pytest.mark.parametrize("spelling", ["by", "./by"])
def test_two_sinks_by_key_in_one_directory_are_refused(spelling: str) -> None:
    flow = two_sinks(ms.files.write_by_key("by"), ms.files.write_by_key(spelling), keyed=True)
    with pytest.raises(ms.FlowUsageError, match=f'"one" and "other" both write {spelling};'):
        ms.run(flow)
    assert not Path("by").exists()


def test_two_sinks_on_one_journal_are_refused_with_a_state_directory() -> None:
    flow = two_sinks(ms.journals.append("j"), ms.journals.append("./j"))
    with pytest.raises(ms.FlowUsageError, match='"one" and "other" both write ./j;'):
        ms.run(flow, state="state")
    ms.run(flow)
    assert sorted(record.body for record in ms.Journal("j", "r")) == [b"A", b"B", b"a", b"b"]


@pytest.mark.parametrize("spelling", ["out", "./out", "link"])
@pytest.mark.parametrize("read", [ms.files.lines, ms.files.csv])
@pytest.mark.parametrize("state", [None, "state"])
def test_a_sink_on_the_flows_own_input_is_refused(
    spelling: str, read: Callable[[str], Any], state: str | None
) -> None:
    Path("out").write_text("input\n1\n")
    flow = ms.Flow("own")
    flow.source("in", read(spelling)).sink("copy", ms.files.write("out"))
    with pytest.raises(ms.FlowUsageError, match='sink "copy" would overwrite out, which source "in" reads'):
        ms.run(flow, state=state)
    assert Path("out").read_text() == "input\n1\n"


def test_a_sink_that_two_steps_end_in_writes_its_file_once_and_devices_take_all() -> None:
    both = ms.files.write("out")
    ms.run(two_sinks(both, both))
    assert sorted(Path("out").read_text().split()) == ["A", "B", "a", "b"]
    ms.run(two_sinks(ms.files.write("/dev/null"), ms.files.write("/dev/null")))
