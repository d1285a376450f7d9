"""Systems of services as processes: started, watched, changed, killed, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from followed import follower

TIMEOUT = 60

COMPONENTS = """
import os
import time
from typing import Protocol

from millstream.service import Clock


class Numbers(Protocol):
    def number(self, n: int) -> None: ...


class Sums(Protocol):
    def sum(self, n: int, total: int) -> None: ...


class Doubles(Protocol):
    def double(self, n: int, total: int) -> None: ...


class Adder(Numbers):
    def __init__(self, sums: Sums) -> None:
        self.sums = sums
        self.total = 0

    def number(self, n: int) -> None:
        if n < 0:
            raise ValueError(f"{n} is below 0")
        self.total += n
        self.sums.sum(n, self.total)


class Slow(Adder):
    # Its calls end when there is a file `go`.
    def number(self, n: int) -> None:
        open("called", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        super().number(n)


class Doubler(Sums):
    def __init__(self, doubles: Doubles) -> None:
        self.doubles = doubles
        print("doubler in", os.path.basename(os.getcwd()), os.environ.get("MODE"))

    def sum(self, n: int, total: int) -> None:
        self.doubles.double(n, 2 * total)


class Late(Doubler):
    # It starts when there is a file `go`.
    def __init__(self, doubles: Doubles) -> None:
        super().__init__(doubles)
        while not os.path.exists("go"):
            time.sleep(0.01)
"""

TWO = """
[services.doubler]
component = "parts.py:Doubler"
in = "sums"
out = "doubles"

[services.adder]
component = "parts.py:Adder"
in = "numbers"
out = "sums"
"""


class System:
    """A folder with a system, and the supervisor that runs it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.up: subprocess.Popen[str] | None = None
        (folder / "parts.py").write_text(COMPONENTS)

    def write(self, text: str) -> None:
        (self.folder / "desk.toml").write_text(text)

    def start(self, text: str = TWO, *options: str) -> None:
        self.write(text)
        self.log = open(self.folder / "log", "a")  # noqa: SIM115
        command = [sys.executable, "-m", "millstream", "service", "up", "desk.toml", *options]
        self.up = subprocess.Popen(
            command, cwd=self.folder, stdout=self.log, stderr=subprocess.STDOUT, text=True
        )

    def verb(self, *words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "millstream", "service", *words]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == code, done.stdout + done.stderr + self.logged()
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.verb("status", "desk.toml", "--json"))
        return found

    def services(self) -> dict[str, dict[str, Any]]:
        return {service["name"]: service for service in self.status()["services"]}

    def wait(self, until: Callable[[dict[str, dict[str, Any]]], object]) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = self.services()
            if until(found):
                return found
            assert time.monotonic() < deadline, f"{found}\n{self.logged()}"

    def wait_running(self) -> None:
        """Waits until the supervisor answers. What is known of services may be of an earlier one before."""
        deadline = time.monotonic() + TIMEOUT
        while not self.status()["running"]:
            assert time.monotonic() < deadline, self.logged()

    def wait_lag(self, *names: str) -> dict[str, dict[str, Any]]:
        """Waits until services have taken all that is there."""
        return self.wait(
            lambda found: all(lag["records"] == 0 for name in names for lag in found[name]["inputs"])
        )

    def publish(self, *numbers: int) -> None:
        sys.path.insert(0, str(self.folder))
        program = "import sys, millstream as ms\nfrom parts import Numbers\n"
        program += "out = ms.publisher(Numbers, 'numbers')\nfor n in sys.argv[1:]: out.number(int(n))"
        command = [sys.executable, "-c", program, *map(str, numbers)]
        subprocess.run(command, cwd=self.folder, check=True, timeout=TIMEOUT)

    def doubles(self) -> list[int]:
        export = self.verb("export", "doubles")
        return [int(total) for total in re.findall(r"^  total: (\d+)$", export, re.MULTILINE)]

    def stop(self, how: int = signal.SIGTERM) -> int:
        assert self.up is not None
        self.up.send_signal(how)
        return self.up.wait(TIMEOUT)

    def logged(self) -> str:
        return (self.folder / "log").read_text() if (self.folder / "log").exists() else ""


def sums(*numbers: int) -> list[int]:
    return [2 * sum(numbers[: end + 1]) for end in range(len(numbers))]


def are_gone(pids: list[int]) -> bool:
    return not any(os.path.exists(f"/proc/{pid}") and "Z" not in stat(pid) for pid in pids)


def stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    made = System(tmp_path)
    yield made
    if made.up is not None:
        made.up.kill()
        made.up.wait()
        made.log.close()


def test_the_log_of_a_system_is_json_if_it_is_asked_for(system: System) -> None:
    system.publish(1, 2, 3)
    system.start(TWO, "--log", "json")
    system.wait_lag("adder", "doubler")
    assert system.stop() == 0
    lines = [json.loads(line) for line in system.logged().splitlines()]
    assert {"adder", "doubler"} <= {line["target"] for line in lines}, lines


def test_a_system_runs_until_it_is_stopped(system: System) -> None:
    system.publish(1, 2, 3)
    system.start()
    found = system.wait_lag("adder", "doubler")
    assert {name: service["state"] for name, service in found.items()} == {
        "adder": "running",
        "doubler": "running",
    }
    assert found["adder"]["calls"] == 3 and found["adder"]["pid"] != found["doubler"]["pid"]
    assert found["adder"]["inputs"][0]["position"] == found["adder"]["inputs"][0]["next"] == 4
    table = system.verb("status", "desk.toml").splitlines()
    assert table[0].split() == "service state pid restarts busy calls/s behind last error".split()
    assert [line.split()[:2] for line in table[1:]] == [["adder", "running"], ["doubler", "running"]]
    assert all(re.fullmatch(r"\d+%", line.split()[4]) for line in table[1:])
    assert system.stop() == 0
    assert system.doubles() == sums(1, 2, 3)
    # The status names existing records also when nothing runs.
    system.publish(4)
    status = system.status()
    adder, doubler = status["services"]
    assert not status["running"] and adder["state"] == doubler["state"] == "stopped"
    assert adder["pid"] is None and adder["inputs"][0]["records"] == 2  # the note of a writer, and its call
    assert adder["inputs"][0]["seconds"] > 0 and doubler["inputs"][0]["seconds"] == 0
    line = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z INFO    (adder|doubler|desk.toml): .+")
    assert all(line.fullmatch(text) for text in system.logged().splitlines()), system.logged()
    assert f" doubler: doubler in {system.folder.name} None" in system.logged()


def test_an_input_that_is_not_there_is_waited_for(system: System) -> None:
    system.start()
    found = system.wait(lambda found: found["adder"]["state"].startswith("waiting"))
    assert found["adder"]["state"] == "waiting for numbers"
    assert not (system.folder / "numbers").exists(), "nothing is made by one who reads"
    system.publish(5)
    system.wait(lambda found: found["doubler"]["calls"] == 1)
    assert system.stop(signal.SIGINT) == 0
    assert system.doubles() == [10]


def test_what_dies_is_started_again_and_does_nothing_twice(system: System) -> None:
    system.start()
    numbers: list[int] = []
    for life in range(3):
        new = list(range(life * 100, life * 100 + 100))
        numbers += new
        system.publish(*new)
        found = system.wait(
            lambda found, life=life: found["adder"]["restarts"] == life and found["adder"]["pid"]
        )
        os.kill(found["adder"]["pid"], signal.SIGKILL)
        system.wait(lambda found, life=life: found["adder"]["restarts"] == life + 1)
    found = system.wait(lambda found: found["doubler"]["calls"] == 300)
    assert found["adder"]["error"] == "killed by SIGKILL" and found["doubler"]["restarts"] == 0
    assert system.stop() == 0
    assert system.doubles() == sums(*numbers)
    assert " adder: killed by SIGKILL; it is started again in 0.1 s" in system.logged()


def test_what_dies_again_and_again_stays_down_and_the_others_go_on(system: System) -> None:
    system.publish(1, -1, 2)
    system.start(TWO + '[processes.adder]\nrestart = { first = "10ms", limit = 2 }\n')
    found = system.wait(lambda found: found["adder"]["state"] == "failed" and found["doubler"]["calls"] == 1)
    assert found["adder"]["restarts"] == 2 and found["doubler"]["state"] == "running"
    assert "numbers, record 2" in found["adder"]["error"] and "-1 is below 0" in found["adder"]["error"]
    assert 'parts.py", line' in system.logged(), "the traceback"
    # The file is changed: what is bad is skipped.
    skipping = TWO.replace('out = "sums"', 'out = "sums"\non_error = "skip"')
    system.write(skipping)
    assert system.verb("up", "desk.toml").splitlines() == ["adder: restarted", "doubler: unchanged"]
    # Each process writes what it has done in its own time.
    found = system.wait(lambda found: found["doubler"]["calls"] == 2 and found["adder"]["skipped"])
    assert found["adder"]["skipped"] == 1 and found["adder"]["state"] == "running"
    assert system.stop() == 0
    assert system.doubles() == sums(1, 2)


def test_when_nothing_is_left_it_ends(system: System) -> None:
    system.start('[services.adder]\ncomponent = "parts.py:Nobody"\nin = "numbers"\nout = "sums"\n')
    assert system.up is not None and system.up.wait(TIMEOUT) == 1
    adder = system.services()["adder"]
    assert adder["state"] == "failed" and adder["restarts"] == 0
    assert "parts has no class Nobody" in adder["error"]


def test_a_change_restarts_only_what_changed(system: System) -> None:
    system.publish(1)
    third = '\n[services.third]\ncomponent = "parts.py:Doubler"\nin = "sums"\nout = "thirds"\n'
    system.start(TWO + third)
    before = system.wait(lambda found: all(service["calls"] == 1 for service in found.values()))
    fourth = third.replace("third", "fourth")
    changed = TWO.replace('in = "sums"', 'in = "sums"\nwait = "back-off"')
    system.write(changed + fourth)
    assert system.verb("up", "desk.toml").splitlines() == [
        "third: stopped",
        "doubler: restarted",
        "fourth: started",
        "adder: unchanged",
    ]
    system.publish(2)
    found = system.wait(lambda found: all(service["calls"] == 2 for service in found.values()))
    assert set(found) == {"adder", "doubler", "fourth"}
    assert found["adder"]["pid"] == before["adder"]["pid"] and found["adder"]["restarts"] == 0
    assert found["doubler"]["pid"] != before["doubler"]["pid"]
    assert are_gone([before["third"]["pid"], before["doubler"]["pid"]])
    # A file that is wrong changes nothing.
    system.write(changed + fourth.replace("out", "outs"))
    assert "outs: is not known here" in system.verb("up", "desk.toml", code=2)
    system.write(changed + fourth)
    assert {line.split(": ")[1] for line in system.verb("up", "desk.toml").splitlines()} == {"unchanged"}
    assert system.services()["fourth"]["pid"] == found["fourth"]["pid"]
    assert system.verb("down", "desk.toml") == ""
    assert system.up is not None and system.up.wait(TIMEOUT) == 0
    assert system.verb("down", "desk.toml") == "nothing is running\n"
    assert system.doubles() == sums(1, 2)


def test_when_the_supervisor_is_killed_all_ends_and_can_be_started_at_once(system: System) -> None:
    numbers = []
    for life in range(3):
        system.publish(life)
        numbers.append(life)
        system.start()
        found = system.wait(lambda found, life=life: found["doubler"]["calls"] == life + 1)
        assert system.stop(signal.SIGKILL) == -signal.SIGKILL
        pids = [service["pid"] for service in found.values()]
        if life == 1:
            deadline = time.monotonic() + TIMEOUT
            while not are_gone(pids):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            status = system.status()
            assert not status["running"] and status["services"][0]["state"] == "stopped"
    system.start()
    system.wait_running()
    system.wait(lambda found: found["doubler"]["calls"] == len(numbers))
    assert system.stop() == 0
    assert system.doubles() == sums(*numbers)
    assert "another service is running" not in system.logged()


def test_what_is_printed_when_the_supervisor_is_killed_is_no_fault_of_a_call(system: System) -> None:
    talking = COMPONENTS.replace("self.total += n\n", "self.total += n\n        print('adding', n)\n")
    assert talking != COMPONENTS
    (system.folder / "parts.py").write_text(talking)
    numbers = range(3_000)
    system.publish(*numbers)
    for calls in (1, 1_500):
        system.start(TWO.replace('out = "sums"', 'out = "sums"\non_error = "skip"'))
        system.wait(lambda found, calls=calls: found["adder"]["calls"] >= calls)
        system.stop(signal.SIGKILL)
    system.start()
    system.wait_running()
    system.wait(lambda found: found["doubler"]["calls"] == 3_000)
    assert system.stop() == 0
    assert system.doubles() == sums(*numbers)


def test_one_file_has_one_supervisor(system: System) -> None:
    system.publish(1)
    system.start()
    before = system.wait(lambda found: found["doubler"]["calls"] == 1)
    again = system.verb("up", "desk.toml")
    assert again.splitlines() == ["adder: unchanged", "doubler: unchanged"]
    assert [service["pid"] for service in system.services().values()] == [
        service["pid"] for service in before.values()
    ]


def test_services_of_one_process_are_threads_on_their_cores(system: System) -> None:
    core = max(os.sched_getaffinity(0))
    system.publish(*range(50))
    shared = TWO.replace("component", f'process = "engine"\ncores = [{core}]\ncomponent')
    system.start(shared + '[processes.engine]\nenvironment = { MODE = "test" }\n')
    found = system.wait(lambda found: found["doubler"]["calls"] == 50)
    pid = found["adder"]["pid"]
    assert found["doubler"]["pid"] == pid and found["adder"]["process"] == "engine"
    pinned = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        allowed = re.search(r"Cpus_allowed_list:\s*(\S+)", (task / "status").read_text())
        pinned.append(allowed is not None and allowed[1] == str(core))
    if len(os.sched_getaffinity(0)) > 1:
        assert pinned.count(True) == 2, "the two services, and nothing else"
    assert f" engine: doubler in {system.folder.name} test" in system.logged()
    # One that fails takes the others of its process with it, and all go on together.
    os.kill(pid, signal.SIGKILL)
    system.publish(7)
    found = system.wait(
        lambda found: found["doubler"]["inputs"][0]["records"] == 0 and found["adder"]["restarts"]
    )
    assert system.stop() == 0
    assert system.doubles() == sums(*range(50), 7)


def test_what_has_been_put_out_is_taken_before_the_next_service_stops(system: System) -> None:
    system.publish(*range(2_000))
    system.start(TWO + '[system]\ndrain = "60s"\n')
    system.wait(lambda found: found["adder"]["calls"] > 0)
    assert system.stop() == 0
    for service in system.services().values():
        if service["name"] == "doubler":
            assert service["inputs"][0]["records"] == 0
    count = len(system.doubles())
    assert count == len(re.findall("^sum:", system.verb("export", "sums"), re.MULTILINE)) > 0


def test_a_service_that_is_starting_takes_what_was_put_out_before_it_stops(system: System) -> None:
    system.publish(*range(20))
    system.start(TWO.replace("parts.py:Doubler", "parts.py:Late") + '[system]\ndrain = "60s"\n')
    system.wait(lambda found: found["adder"]["calls"] == 20)
    assert system.up is not None
    system.up.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + TIMEOUT
    while "adder: stopped" not in system.logged():
        assert time.monotonic() < deadline, system.logged()
    time.sleep(0.5)  # it would be stopped meanwhile
    (system.folder / "go").touch()
    assert system.up.wait(TIMEOUT) == 0
    assert system.doubles() == sums(*range(20))


@pytest.mark.parametrize("ends", [True, False])
def test_down_waits_for_the_current_call_and_says_when_it_has_not_ended(system: System, ends: bool) -> None:
    system.publish(*range(1_000))
    system.start(
        TWO.replace("parts.py:Adder", "parts.py:Slow") + f'[system]\nstop = "{60 if ends else 1}s"\n'
    )
    deadline = time.monotonic() + TIMEOUT
    while not (system.folder / "called").exists():
        assert time.monotonic() < deadline, system.logged()
    command = [sys.executable, "-m", "millstream", "service", "down", "desk.toml"]
    down = subprocess.Popen(command, cwd=system.folder, stderr=subprocess.PIPE, text=True)
    if ends:
        while "stopping" not in system.logged():
            assert time.monotonic() < deadline, system.logged()
        time.sleep(0.2)  # the signal comes before the end of the call
        (system.folder / "go").touch()
    _, told = down.communicate(timeout=TIMEOUT)
    assert system.up is not None
    if ends:
        assert (down.returncode, told, system.up.wait(TIMEOUT)) == (0, "", 0)
        assert system.verb("export", "sums").count("sum:") == 1
        return
    assert (down.returncode, system.up.wait(TIMEOUT)) == (1, 1)
    wrong = "the call of adder has not ended within 1 s (stop); the next start makes it again"
    assert told == f"millstream service down: adder: {wrong}\n"
    assert "adder: broken off: " in system.logged()
    (system.folder / "go").touch()
    system.start(system.folder.joinpath("desk.toml").read_text())
    system.wait_running()
    system.wait_lag("adder", "doubler")
    assert system.stop() == 0
    assert system.doubles() == sums(*range(1_000))


def test_options_of_journals_reach_them(system: System) -> None:
    system.publish(*range(1_000))
    options = (
        '[journals.sums]\nsync = "always"\nwait_follower = 1\n[journals.numbers]\nretain_for_cursors = true\n'
    )
    system.start(TWO + options)
    found = system.wait(lambda found: found["adder"]["calls"] == 256)
    assert found["adder"]["inputs"][0]["records"] == 1_000 - 256
    with ms.Journal(system.folder / "sums", "r") as out:
        assert out.durable == out.next
    with ms.Journal(system.folder / "sums") as out:
        backup = follower(out, "backup")
        found = system.services()
        while found["adder"]["calls"] < 1_000:
            backup.position = out.next
            found = system.services()
        backup.position = out.next
    assert system.stop() == 0
    assert system.doubles() == sums(*range(1_000))
