"""Flows on several processes have the output of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from shapes import SHAPES, Shape, command
from supervised import Supervised

LAYOUTS = ((2, 2), (3, 1))


@pytest.mark.parametrize("name", SHAPES)
def test_the_output_is_that_of_one_process(name: str, tmp_path: Path) -> None:
    shape = Shape(name, tmp_path, seed=1, count=4000)
    for processes, workers in LAYOUTS:
        for state in ([], ["--state", tmp_path / f"state{processes}{workers}", "--epoch", "50ms"]):
            out = tmp_path / f"out{processes}{workers}{len(state)}" / "out.txt"
            options = ["--processes", processes, "--workers", workers, *state]
            text = Supervised(command(shape.flow, *options), shape.environment(out)).end(0)
            assert "died" not in text
            shape.check(out)
