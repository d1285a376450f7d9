"""Events of the engine arrive in `logging` at the level that Python sets; lines of `millstream run`."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from pathlib import Path

import millstream as ms
import pytest
from millstream._run.logs import emit

PROGRAM = """
import millstream as ms

flow = ms.Flow("ages")
texts = flow.source("texts", ms.testing.items(["31", "x", "27"])).key_by(len, name="by")
texts.map(int, name="age", on_error="skip").sink("out", ms.testing.collect())
"""


def ages(count: int = 1) -> ms.Flow:
    flow = ms.Flow("ages")
    texts = flow.source("texts", ms.testing.items(["x"] * count)).key_by(len, name="by")
    texts.map(int, name="age", on_error="skip").sink("out", ms.testing.collect())
    return flow


def test_a_skipped_item_is_a_record_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="millstream"):
        ms.run(ages())
    (record,) = [record for record in caplog.records if record.name.startswith("millstream")]
    assert (record.name, record.levelname) == ("millstream.flow.policy", "WARNING")
    assert record.getMessage().startswith("skipped: step \"age\", key 1, item 'x'")
    assert (record.step, record.key, record.item) == ("age", "1", "'x'")  # type: ignore[attr-defined]


def test_a_new_logger_leaves_an_iteration_over_the_loggers_alone() -> None:
    table = logging.Logger.manager.loggerDict
    loggers = iter(table.values())
    next(loggers)
    name = "millstream_flow::a_module_without_lines"
    emit(name, logging.DEBUG, "a line", {}, "a.rs", 1)
    assert len(list(loggers)) == len(table) - 1
    assert "millstream.flow.a_module_without_lines" in logging.Logger.manager.loggerDict
    assert logging.getLogger("millstream.flow.a_module_without_lines").parent is not None


def test_logs_without_a_handler_never_reach_python(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream._run import logs

    reached = []
    monkeypatch.setattr(logs, "emit", lambda *about: reached.append(about))
    with caplog.at_level(logging.ERROR, logger="millstream"):
        ms.run(ages(100))
    assert not reached
    with caplog.at_level(logging.WARNING, logger="millstream"):
        ms.run(ages(100))
    assert len(reached) == 10


def test_one_part_may_listen_at_another_level(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.ERROR, logger="millstream"),
        caplog.at_level(logging.WARNING, logger="millstream.flow"),
    ):
        ms.run(ages())
    assert "skipped" in caplog.text


def program(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "ages.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "millstream", "run", str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_program_logs_text_or_json_or_nothing(tmp_path: Path) -> None:
    text = program(tmp_path)
    assert text.returncode == 0
    skipped = " WARNING flow.policy: skipped: step \"age\", key 1, item 'x'"
    assert re.match(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{{6}}Z{skipped}", text.stderr), text.stderr
    assert ' step="age" ' in text.stderr and text.stderr.count("\n") == 1
    line = json.loads(program(tmp_path, "--log-format", "json").stderr)
    assert (line["level"], line["target"]) == ("warning", "flow.policy")
    assert (line["step"], line["key"], line["item"]) == ("age", "1", "'x'")
    assert line["message"].startswith("skipped: ")
    assert program(tmp_path, "--log-level", "error").stderr == ""
    assert program(tmp_path, "--log-level", "off").stderr == ""
    assert program(tmp_path, "--log-level", "loud").returncode == 2


def lines(ended: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stderr.splitlines()]


def test_modules_have_levels_of_their_own(tmp_path: Path) -> None:
    assert lines(program(tmp_path, "--log", "json", "--log-level", "info,flow=error")) == []
    assert lines(program(tmp_path, "--log", "json", "--log-level", "off,flow.policy=warning"))
    state = ("--state", str(tmp_path / "state"))
    found = lines(program(tmp_path, "--log", "json", "--log-level", "error,flow.checkpoint=debug", *state))
    commits = [line for line in found if "epoch" in line]
    assert commits and {line["flow"] for line in commits} == {"ages"}
    assert {line["level"] for line in found} == {"debug"}
    for wrong in ("info,queues=debug", "info,debug", "flow=loud", ""):
        refused = program(tmp_path, "--log-level", wrong)
        assert refused.returncode == 2 and "--log-level" in refused.stderr, wrong


def test_the_lines_of_a_worker_name_it_and_its_flow(tmp_path: Path) -> None:
    (line,) = lines(program(tmp_path, "--log", "json"))
    assert (line["flow"], line["worker"], line["step"]) == ("ages", "0", "age")


HOSTILE = "a\nb\x1b[2J\x9b"
NAMES = f"""
import millstream as ms

flow = ms.Flow({HOSTILE!r})
texts = flow.source("texts", ms.testing.items(["x"])).key_by(len, name="by")
texts.map(int, name={HOSTILE!r}, on_error="skip").sink("out", ms.testing.collect())
"""


@pytest.mark.parametrize("format", ["text", "json"])
def test_no_control_character_of_a_name_reaches_the_log(format: str, tmp_path: Path) -> None:
    file = tmp_path / "names.py"
    file.write_text(NAMES)
    command = [sys.executable, "-m", "millstream", "run", str(file), "--log", format]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    (line,) = ended.stderr.splitlines()
    assert not [character for character in line if ord(character) < 32 or 127 <= ord(character) < 160]
    assert r"a\nb\u001b[2J\u009b" in line
    if format == "json":
        assert json.loads(line)["step"] == json.loads(line)["flow"] == HOSTILE


def test_a_traceback_follows_its_line() -> None:
    from millstream._run.logs import Lines

    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.getLogger("millstream.mine").makeRecord(
            "millstream.mine", logging.ERROR, "a.py", 1, "it %s", ("fails",), sys.exc_info(), extra={"n": 3}
        )
    head, *traceback = Lines("text", 2).format(record).splitlines()
    assert head.endswith(" ERROR   mine: it fails process=2 n=3")
    assert traceback[0] == "Traceback (most recent call last):" and traceback[-2:] == ["ValueError: a", "b"]
    line = json.loads(Lines("json", 2).format(record))
    assert (line["target"], line["process"], line["n"]) == ("mine", 2, 3)
    assert line["exception"].endswith("ValueError: a\nb")


def test_a_flow_that_is_started_logs_too(tmp_path: Path) -> None:
    """In a process without another run."""
    program = tmp_path / "started.py"
    program.write_text(
        "import logging, time\n"
        "import millstream as ms\n"
        "class Slow(logging.Handler):\n"
        "    lines = []\n"
        "    def emit(self, record): time.sleep(0.2); self.lines.append(record.getMessage())\n"
        "logging.getLogger('millstream').addHandler(Slow())\n"
        "flow = ms.Flow('ages')\n"
        "ages = flow.source('in', ms.testing.items(['x'])).map(int, name='age', on_error='skip')\n"
        "ages.sink('out', ms.testing.discard())\n"
        "flow.start().wait()\n"
        "print(Slow.lines)\n"
    )
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert ran.returncode == 0 and 'skipped: step "age"' in ran.stdout, ran.stdout + ran.stderr
