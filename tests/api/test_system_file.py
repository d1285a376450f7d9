"""What a system file may contain, and how its errors name file, line, table and key."""

from __future__ import annotations

from pathlib import Path

import millstream as ms
import pytest
from millstream._errors.command import UsageError
from millstream._system.file import Restart, read
from millstream._system.system import SystemSupervisor

GOOD = """
[system]
drain = "1s"

[services.report]
component = "report:Report"
in = ["./b", "c"]
process = "engine"

[services.desk]
component = "desk:Desk"
in = "a"
out = "b"
wait = "spin"
cores = [0]
rebuild = "snapshot"
snapshot_every = 10
on_error = "skip"
dead_letters = "dead"
process = "engine"

[journals.b]
sync = "10ms"
wait_follower = 1
retain_bytes = "1.5 MiB"
retain_age = "7d"
retain_for_cursors = true

[processes.engine]
command = ["python3", "-c", "pass"]
environment = { MODE = "test" }
restart = { first = "50ms", limit = 2 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, text: str) -> str:
    (folder / "desk.toml").write_text(text)
    return str(folder / "desk.toml")


def test_a_file_is_read_as_it_is_written(folder: Path) -> None:
    system = read(written(folder, GOOD))
    assert [service.name for service in system.services] == ["desk", "report"]
    assert system.services[1].inputs == ("b", "c")
    assert (system.drain_s, system.stop_s, system.state) == (1.0, 10.0, str(folder / "desk.state"))
    (engine,) = system.processes
    assert engine.restart == Restart(first_s=0.05, limit=2)
    desk, report = engine.order(system)["services"]
    assert desk == {
        "name": "desk",
        "component": "desk:Desk",
        "inputs": ("a",),
        "out": "b",
        "wait": "spin",
        "cores": (0,),
        "rebuild": "snapshot",
        "snapshot_every": 10,
        "on_difference": "fail",
        "accept_differences": 0,
        "on_error": "skip",
        "dead_letters": "dead",
        "sync": "10ms",
        "wait_follower": 1,
        "retain_bytes": 3 << 19,
        "retain_age_s": 7 * 86400.0,
        "retain_for_cursors": True,
    }
    assert report["sync"] == "never" and report["out"] is None


SERVICE = '[services.desk]\ncomponent = "desk:Desk"\nin = "a"\nout = "b"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "desk.toml: services is missing"),
        ("[services]", "line 1, [services]: is empty"),
        (
            "a = 1\n" + SERVICE,
            "line 1, a: is not known here; known are system, services, journals, processes",
        ),
        ("[services]\ndesk = 1\n", "line 2, [services], desk: is a table, not 1"),
        ("[services.desk]\nin = 'a'\n", "line 1, [services.desk]: component is missing"),
        (SERVICE + "inn = 'c'\n", "line 5, [services.desk], inn: is not known here; known are in, out,"),
        (
            SERVICE + "wait = 'sleep'\n",
            "line 5, [services.desk], wait: is one of block, back-off, spin, not 'sleep'",
        ),
        (
            SERVICE + "snapshot_every = 0\n",
            "line 5, [services.desk], snapshot_every: is a whole number from 1 on",
        ),
        (SERVICE + "snapshot_every = true\n", "snapshot_every: is a whole number from 1 on, not True"),
        (SERVICE + "cores = [5000]\n", "line 5, [services.desk], cores: is a list of cores of this machine"),
        (SERVICE + "process = 3\n", "line 5, [services.desk], process: is a text, not 3"),
        (SERVICE.replace('"a"', "7"), "line 3, [services.desk], in: is a text or a list of texts, not 7"),
        (SERVICE.replace('"a"', "[]"), "[services.desk], in: a service has an input"),
        (SERVICE.replace('"a"', '["a", "./a"]'), "[services.desk], in: an input is named twice"),
        (SERVICE.replace('"b"', '"./a"'), "line 4, [services.desk], out: a is an input of the service too"),
        (
            SERVICE.replace("desk:Desk", "desk.py:Desk"),
            "line 2, [services.desk], component: there is no file desk.py",
        ),
        (
            SERVICE.replace("desk:Desk", "Desk"),
            "line 2, [services.desk], component: Desk: expected MODULE:CLASS",
        ),
        (
            SERVICE.replace('out = "b"', 'rebuild = "outputs"'),
            '[services.desk], rebuild: "outputs" needs an out',
        ),
        (
            SERVICE + '[services.two]\ncomponent = "desk:Two"\nin = "c"\nout = "./x/../b"\n',
            "line 8, [services.two], out: b is written by desk too",
        ),
        (
            SERVICE + '[services.two]\ncomponent = "desk:Two"\nin = ["x", "b"]\nout = "a"\n',
            "in: services feed each other: desk -> two -> desk",
        ),
        (
            SERVICE + '[services.two]\ncomponent = "desk:Two"\nin = "c"\nout = "b.schedule"\n',
            "line 8, [services.two], out: b.schedule belongs to the output of desk",
        ),
        (SERVICE + "dead_letters = 'b'\n", "line 5, [services.desk], dead_letters: b is written by desk"),
        (SERVICE + "[journals.x]\nsync = 'always'\n", "line 5, [journals.x]: no service has this journal"),
        (
            SERVICE + '[journals."b.schedule"]\nretain_bytes = "1 GiB"\n',
            'line 5, [journals."b.schedule"]: its service removes what no start needs',
        ),
        (
            SERVICE + "[journals.a]\nsync = 'always'\n",
            "line 6, [journals.a], sync: no service of this file writes",
        ),
        (
            SERVICE + "[journals.b]\nsync = 'often'\n",
            "line 6, [journals.b], sync: is never, always, or a time",
        ),
        (SERVICE + "[journals.b]\nretain_age = 5\n", "line 6, [journals.b], retain_age: is a time like"),
        (
            SERVICE + "[journals.b]\nretain_bytes = '5 miles'\n",
            "retain_bytes: is a number of bytes, or a text like",
        ),
        (SERVICE + "[journals.b]\nretain_for_cursors = 1\n", "retain_for_cursors: is true or false, not 1"),
        (SERVICE + '[journals."./b"]\nsinc = 1\n', 'line 6, [journals."./b"], sinc: is not known here'),
        (SERVICE + "[processes.x]\n", "line 5, [processes.x]: no service has the process x"),
        (
            SERVICE + "[processes.desk]\ncommand = 'ls'\n",
            "line 6, [processes.desk], command: is a list of texts",
        ),
        (
            SERVICE + "[processes.desk]\ncommand = ['./nothing']\n",
            "line 6, [processes.desk], command: there is no program ./nothing",
        ),
        (
            SERVICE + "[processes.desk]\nenvironment = {A = 1}\n",
            "[processes.desk.environment], A: is a text, not 1",
        ),
        (
            SERVICE + "[processes.desk.restart]\nlimits = 1\n",
            "line 6, [processes.desk.restart], limits: is not known",
        ),
        ("[services.desk\n", "desk.toml: "),
    ],
)
def test_a_mistake_is_reported_with_its_place(folder: Path, text: str, told: str) -> None:
    path = written(folder, text)
    with pytest.raises(UsageError) as error:
        read(path)
    shown = str(error.value)
    assert shown.startswith(path) and told in shown and "\n" not in shown


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(UsageError, match="nothing.toml: No such file or directory"):
        read(str(folder / "nothing.toml"))


def test_a_loop_over_several_services_names_all_of_them(folder: Path) -> None:
    parts = ""
    for name, from_, to in (("x", "c", "a"), ("y", "a", "b"), ("z", "b", "c")):
        parts += f'[services.{name}]\ncomponent = "m:C"\nin = "{from_}"\nout = "{to}"\n'
    with pytest.raises(UsageError, match="services feed each other: x -> y -> z -> x"):
        read(written(folder, parts))


DESK = """
[services.desk]
component = "desk:Desk"
in = "a"
out = "b"
"""
BOTH = """
[services.desk]
component = "desk:Desk"
in = ["a", "c"]
out = "b"
"""
PROGRAM = """
[processes.desk]
command = ["python3"]
"""


def test_a_gateway_has_the_external_inputs_and_the_outputs(folder: Path) -> None:
    text = """
        [gateway]
        listen = "127.0.0.1:8080"

        [services.report]
        component = "report:Report"
        in = ["b", "c"]
        out = "x/d"
    """
    system = read(written(folder, text + DESK))
    gateway = system.gateway
    assert gateway is not None
    calls = [(it.journal, it.classes, it.without) for it in gateway.calls]
    assert calls == [("a", ("desk:Desk",), ()), ("c", ("report:Report",), ("desk:Desk",))]
    assert gateway.feeds == ("b", "x/d")
    assert (gateway.sync, gateway.max_body, gateway.token_file) == ("always", 1 << 20, None)
    assert gateway.idempotency_keep_s == 86400.0
    assert [process.name for process in system.processes] == ["gateway", "desk", "report"]
    assert system.processes[0].order(system)["gateway"]["listen"] == "127.0.0.1:8080"
    assert "gateway" not in system.processes[1].order(system)


def test_a_gateway_may_be_given_what_it_serves(folder: Path) -> None:
    (folder / "token").write_text("x")
    text = """
        [gateway]
        listen = "unix:socket"
        token_file = "token"
        origins = ["https://a.example"]
        sync = "10ms"
        max_body = "2 MiB"
        idempotency_keep = "2h"
        feeds = ["./a"]

        [gateway.calls]
        "./a" = ["desk:Orders", "desk:Desk"]
        c = "desk:Limits"

        [processes.gateway]
        restart = { limit = 7 }
    """
    system = read(written(folder, text + BOTH + PROGRAM))
    gateway = system.gateway
    assert gateway is not None
    assert [(it.journal, it.classes) for it in gateway.calls] == [
        ("a", ("desk:Orders", "desk:Desk")),
        ("c", ("desk:Limits",)),
    ]
    assert (gateway.feeds, gateway.origins, gateway.token_file) == (("a",), ("https://a.example",), "token")
    assert (gateway.sync, gateway.max_body, gateway.idempotency_keep_s) == ("10ms", 2 << 20, 7200.0)
    assert system.processes[0].restart.limit == 7


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[gateway]" + DESK, "line 1, [gateway]: listen is missing"),
        ("gateway = 3" + DESK, "gateway: is a table, not 3"),
        ("[gateway]\nlisten = 3" + DESK, "line 2, [gateway], listen: is a text, not 3"),
        ("gateway.listen = 'x'\ngateway.port = 3" + DESK, "[gateway], port: is not known here"),
        ("gateway.listen = 'x'\ngateway.token_file = 'no'" + DESK, "token_file: there is no file no"),
        ("gateway.listen = 'x'\ngateway.sync = 'often'" + DESK, "sync: is never, always, or a time"),
        ("gateway.listen = 'x'\ngateway.max_body = '1 GiB'" + DESK, "max_body: is from 1 byte to 16 MiB"),
        ("gateway.listen = 'x'\ngateway.idempotency_keep = '1ms'" + DESK, "keep: is from 1s to 366d"),
        ("gateway.listen = 'x'\ngateway.idempotency_keep = 3" + DESK, "keep: is a time like 100ms, 5s or 7d"),
        ("gateway.listen = 'x'\ngateway.feeds = ['z']" + DESK, "feeds: no service has z as"),
        ("gateway.listen = 'x'\ngateway.calls.b = 'desk:X'" + DESK, "b: is not an input that no service"),
        ("gateway.listen = 'x'\ngateway.calls.a = 'desk'" + DESK, "a: desk: expected MODULE:CLASS"),
        (
            "gateway.listen = 'x'" + BOTH,
            "[gateway]: desk has the inputs a and c; name the interfaces of each",
        ),
        ("gateway.listen = 'x'" + DESK + PROGRAM, "[gateway]: the interfaces of desk are those of a program"),
        (
            "gateway.listen = 'x'" + DESK + "process = 'gateway'",
            "process: gateway is the process of [gateway]",
        ),
        (
            "gateway.listen = 'x'" + DESK + PROGRAM.replace("desk", "gateway"),
            "command: the gateway is no program",
        ),
        (DESK + "[processes.gateway]", "[processes.gateway]: no service has the process gateway"),
    ],
)
def test_a_mistake_in_a_gateway_is_named(folder: Path, text: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(written(folder, text))
    assert error in str(raised.value)


def test_dead_letters_are_pruned_as_the_file_says(folder: Path) -> None:
    system = read(written(folder, GOOD + '[journals.dead]\nretain_bytes = "64 KiB"\n'))
    assert system.journals["dead"].retain_bytes == 64 << 10
    with ms.Journal(folder / "dead", segment_bytes=64 << 10) as journal:
        journal.append_many([bytes(1000)] * 500)
    SystemSupervisor(system, lock=-1).prune()
    with ms.Journal(folder / "dead", "r") as journal:
        assert journal.first > 300
