"""One list has the options of a run: Python, the command line and type checkers show what it says."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream.__main__ import VERBS
from millstream._run.arguments import CommandOptions, flags_passed, parse
from millstream._run.options import RunOptions

PLACES = [(ms.run, RunOptions), (ms.Flow.start, RunOptions)]


@pytest.mark.parametrize(("function", "options"), PLACES)
def test_python_shows_the_options(function: object, options: type[RunOptions]) -> None:
    assert callable(function)
    _, *shown = inspect.signature(function).parameters.values()
    assert [(each.name, each.default) for each in shown] == [
        (each.name, each.default) for each in options.ALL.values()
    ]
    described = inspect.getdoc(function) or ""
    assert all(f"    {each.name}: {each.help}" in described for each in options.ALL.values())


def test_the_command_line_has_the_defaults_of_python(tmp_path: Path) -> None:
    assert vars(parse(["flow.py"])).items() >= vars(RunOptions()).items()
    token = tmp_path / "token"
    token.write_text("secret\n")
    given = parse(
        ["flow.py", "--workers", "2", "--state", "s", "--epoch", "50ms", "--sync", "never", "--fresh"]
        + ["--drop-state", "a", "--drop-state", "b", "--http", "127.0.0.1:0", "--http-token-file", str(token)]
    )
    python = RunOptions(
        2,
        state=Path("s"),
        epoch=0.05,
        sync=False,
        fresh=True,
        drop_state=("a", "b"),
        http="127.0.0.1:0",
        http_token="secret",
    )
    assert vars(given).items() >= vars(python).items()


def test_the_help_shows_each_option_of_the_command_line() -> None:
    command = [sys.executable, "-m", "millstream", "run", "--help"]
    said = subprocess.check_output(command, text=True)
    shown = set(re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE))
    flags = {each.flag for each in CommandOptions.ALL.values() if each.flags != () and each.group != "-"}
    assert shown == flags
    headings = re.findall(r"^(\w[\w ]+):$", said, re.MULTILINE)
    assert headings[-1] == "several processes" and len(headings) == 8


WRONG = [
    (
        {"workers": 0},
        "workers is a number from 1 to 256, not 0",
        "--workers is a number from 1 to 256, not 0",
    ),
    ({"fresh": True}, "fresh needs the directory that holds the state: state=", "--fresh needs --state"),
    ({"epoch": -1.0}, "epoch is a number of seconds from 0 to 200 years, not -1.0", "--epoch is a number"),
]


@pytest.mark.parametrize(("given", "in_python", "on_command_line"), WRONG)
def test_an_error_names_the_option_as_its_user_gives_it(
    given: dict[str, object], in_python: str, on_command_line: str
) -> None:
    with pytest.raises(ms.FlowUsageError, match=re.escape(in_python)):
        RunOptions(**given)  # type: ignore[arg-type]
    with pytest.raises(ms.FlowUsageError, match=re.escape(on_command_line)):
        CommandOptions(**given)  # type: ignore[arg-type]


def test_options_are_checked_before_a_run() -> None:
    flow = ms.Flow("f")
    with pytest.raises(TypeError, match=r"run\(\) got an unexpected keyword argument 'wokers'"):
        ms.run(flow, wokers=2)  # type: ignore[call-arg]
    with pytest.raises(ms.FlowUsageError, match="spin is True or False, not 'yes'"):
        flow.start(spin="yes")  # type: ignore[arg-type]
    assert RunOptions(state="s", drop_state="count").drop_state == ["count"]
    with pytest.raises(AttributeError, match="frozen"):
        RunOptions().workers = 2  # type: ignore[misc]


def test_a_supervisor_passes_what_the_list_says() -> None:
    assert flags_passed("once") == {"--drop-state": 1, "--fresh": 0, "--reset-clock": 0, "--open": 0}
    assert flags_passed("never") == {"--processes": 1, "--restarts": 1, "--ready-file": 1, "--keep-page": 0}


def test_the_program_lists_the_verbs_that_are_python() -> None:
    said = subprocess.check_output([sys.executable, "-m", "millstream", "--help"], text=True)
    assert all(re.search(rf"^  {verb} +[A-Z]", said, re.MULTILINE) for verb in VERBS), said


ODD = [
    {"epoch": "soon"},
    {"workers": True},
    {"spin": "yes"},
    {"clock": 5},
    {"state": 5},
    {"state": __file__},
    {"drop_state": [1], "state": "state"},
    {"shards": 3},
    {"http": True},
    {"http": "70000"},
    {"http_token": 5, "http": "8080"},
    {"on_metrics": 5},
    {"metrics_interval": "soon"},
]


@pytest.mark.parametrize("given", ODD, ids=str)
@pytest.mark.parametrize("start", [ms.run, ms.Flow.start], ids=["run", "start"])
def test_a_value_that_does_not_fit_is_named(start: Any, given: dict[str, Any]) -> None:
    flow = ms.Flow("odd")
    flow.source("in", ms.testing.items([1])).sink("out", ms.testing.collect())
    with pytest.raises(ms.FlowUsageError) as raised:
        start(flow, **given)
    name = next(iter(given))
    assert name in str(raised.value) or str(given[name]) in str(raised.value)
    assert "Options" not in str(raised.value)


def test_a_port_is_an_address_in_python_too() -> None:
    flow, out = ms.Flow("paged"), ms.testing.collect()
    flow.source("in", ms.testing.items([1])).sink("out", out)
    with flow.start(http=0) as running:
        assert str(running.address).startswith("127.0.0.1:")
        running.wait()
    ms.run(flow, http=0)
    assert out == [1, 1]


def test_a_started_flow_has_all_options(tmp_path: Path) -> None:
    calls: list[Any] = []
    flow, out = ms.Flow("started"), ms.testing.collect()
    ticks = flow.source("ticks", ms.generate(lambda: range(40), rate=200))
    ticks.key_by(lambda n: n % 4).count("each").values().sink("out", out)
    state = tmp_path / "state"
    options: dict[str, Any] = {"shards": 64, "on_metrics": calls.append, "metrics_interval": 0.02}
    with flow.start(state=state, **options) as running:
        report = running.wait()
    assert len(out) == 40 and len(calls) > 1
    assert calls[-1].step("out")["items_in"] == report.step("out")["items_in"] == 40
    with pytest.raises(ms.FlowError, match="divided into 64 shards"):
        flow.start(state=state, shards=32)


@pytest.mark.parametrize("verb", ["map", "count"])
def test_an_error_of_python_names_the_class_of_a_stream(verb: str) -> None:
    stream: Any = ms.Flow("f").source("in", ms.testing.items([1]))
    stream = stream.key_by(str) if verb == "count" else stream
    with pytest.raises(TypeError, match=rf"^(Keyed)?Stream\.{verb}\(\) got an unexpected keyword argument"):
        getattr(stream, verb)(colour=1)
