"""A message names options as the program has them that shows it, and what it advises works."""

from __future__ import annotations

from pathlib import Path

import millstream as ms
import pytest
from millstream.__main__ import main

FLOW = """
import millstream as ms

flow = ms.Flow("words")
words = flow.source("in", ms.files.lines("{folder}/in"))
words.key_by(str).count("each").sink("out", ms.files.write("{folder}/out", encode=str))
"""


def flow_in(folder: Path) -> Path:
    (folder / "in").write_text("tea\nrum\ntea\n")
    program = folder / "words.py"
    program.write_text(FLOW.format(folder=folder))
    return program


def flow_of(program: Path) -> ms.Flow:
    names: dict[str, ms.Flow] = {}
    exec(program.read_text(), names)
    return names["flow"]


def test_on_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(flow_in(tmp_path)), "--state", str(tmp_path / "state")]
    assert main(command) == 0
    assert main([*command, "--shards", "512"]) == 1
    said = capfd.readouterr().err
    assert "and --shards 512 asks for others" in said and "start from scratch with --fresh" in said, said
    assert main([*command, "--shards", "512", "--fresh"]) == 0
    assert (tmp_path / "out").read_text().split() == ["('tea',", "1)", "('rum',", "1)", "('tea',", "2)"]


def test_in_python_also_after_the_command_line(tmp_path: Path) -> None:
    program = flow_in(tmp_path)
    state = tmp_path / "state"
    assert main(["run", str(program), "--state", str(state)]) == 0
    with pytest.raises(ms.FlowError, match="and shards=512 asks for others.* from scratch with fresh=True"):
        ms.run(flow_of(program), state=state, shards=512)
    ms.run(flow_of(program), state=state, shards=512, fresh=True)
    assert len((tmp_path / "out").read_text().splitlines()) == 3
