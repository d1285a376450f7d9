"""Two versions of a flow do not run together: the one that differs waits until all have its version."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from shapes import TIMEOUT, command, output
from supervised import Supervised, wait_for

PRICES = "RATE = {rate}\n"
FLOW = """
import os
import time
import millstream as ms
import prices

flow = ms.Flow("orders"{version})


def price(line):
    time.sleep(0.005)
    return f"{{line}} {step} {{prices.RATE}}"


paths = [f"{{os.environ['IN']}}/{{number}}" for number in range(4)]
keyed = flow.source("in", ms.files.lines(paths)).key_by(str)
keyed.stateful_map("price", lambda state, line: (1, price(line))).items().map(lambda pair: pair[1]).sink(
    "out", ms.files.write(os.environ["OUT"])
)
"""
LINES = 200
PYTHON = sys.executable


class Machines:
    """Two machines, each with the flow in a directory of its own.

    Args:
        folder: where they are.
        ports: of the two processes.
    """

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        self.hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        (folder / "in").mkdir()
        (folder / "out").mkdir()
        for number in range(4):
            lines = "".join(f"{number}-{line}\n" for line in range(LINES))
            (folder / "in" / str(number)).write_text(lines)

    def install(self, machine: int, step: str = "v1", rate: int = 1, version: str = "") -> Path:
        folder = self.folder / f"machine{machine}"
        folder.mkdir(exist_ok=True)
        (folder / "prices.py").write_text(PRICES.format(rate=rate))
        flow = folder / f"orders_{step}.py"
        flow.write_text(FLOW.format(step=step, version=f", version={version!r}" if version else ""))
        return flow

    def start(self, machine: int, flow: Path, *options: object) -> Supervised:
        place = ["--process", machine, "--hosts", self.hosts, "--state", self.folder / f"state{machine}"]
        environment = os.environ | {
            "IN": str(self.folder / "in"),
            "OUT": str(self.folder / "out" / "out.txt"),
        }
        return Supervised(command(flow, *place, "--sync", "never", *options), environment)

    def versions(self) -> set[str]:
        """The versions of the steps whose output there is, without the lines."""
        return {line.partition(" ")[2] for line in output(self.folder / "out" / "out.txt")}


@pytest.fixture
def machines(tmp_path: Path, free_port: Callable[[], int]) -> Machines:
    return Machines(tmp_path, [free_port(), free_port()])


def ended(*processes: Supervised) -> None:
    for process in processes:
        process.process.kill()
        process.process.wait(TIMEOUT)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"step": "v2"}, "main file is"), ({"rate": 2}, 'module "prices" is')],
    ids=["flow", "module"],
)
def test_another_version_is_refused_on_both_sides(
    machines: Machines, change: dict[str, Any], words: str
) -> None:
    first = machines.start(0, machines.install(0), "--meet-within", "40s")
    first.said("waiting for")
    second = machines.start(1, machines.install(1, **change), "--meet-within", "10s")
    text = second.end(75)
    for said in (text, first.end(75)):
        assert words in said and "another version" in said and "install one version" in said, said
    assert not machines.versions()


def test_the_same_sources_in_other_directories_are_one_version(machines: Machines) -> None:
    flows = [machines.install(machine) for machine in range(2)]
    shutil.copy(flows[1], flows[1].with_name("renamed.py"))
    both = [machines.start(0, flows[0]), machines.start(1, flows[1].with_name("renamed.py"))]
    for one in both:
        assert "another version" not in one.end(0)
    assert machines.versions() == {"v1 1"}


def test_an_upgrade_of_one_machine_after_the_other_waits_for_the_last(machines: Machines) -> None:
    options = ["--epoch", "50ms", "--restarts", "100/10m"]
    old = [machines.install(machine) for machine in range(2)]
    ready = machines.folder / "ready"
    first = machines.start(0, old[0], *options, "--ready-file", ready)
    second = machines.start(1, old[1], *options)
    wait_for(ready.exists, "the flow")
    wait_for(lambda: output(machines.folder / "out" / "out.txt").total() > LINES, "commits")
    ended(second)
    second = machines.start(1, machines.install(1, step="v2"), *options)
    first.said("process 1 is refused")
    assert machines.versions() == {"v1 1"}
    before = output(machines.folder / "out" / "out.txt").total()
    ended(first)
    first = machines.start(0, machines.install(0, step="v2"), *options)
    first.end(0)
    second.end(0)
    found = output(machines.folder / "out" / "out.txt")
    assert found.total() == 4 * LINES and machines.versions() == {"v1 1", "v2 1"}
    assert sum(count for line, count in found.items() if line.endswith("v1 1")) <= before


def test_a_name_of_the_version_replaces_the_sources(machines: Machines) -> None:
    first = machines.start(0, machines.install(0, version="7"))
    first.said("waiting for")
    second = machines.start(1, machines.install(1, step="v2", rate=2, version="8"), "--meet-within", "10s")
    assert "version is 8 there, and 7 in process 0" in second.end(75)
    second = machines.start(1, machines.install(1, step="v2", rate=2, version="7"))
    first.end(0)
    second.end(0)
    assert machines.versions() == {"v1 1", "v2 2"}


def test_a_program_that_is_no_file_names_its_version(machines: Machines) -> None:
    """As in a notebook."""
    flow = machines.install(0).read_text().replace("import prices", "class prices: RATE = 1")
    run = f"ms.run(flow, cluster=ms.Cluster(0, {machines.hosts.split(',')!r}, meet_within=0.1))"
    caught = f"try: {run}\nexcept ms.MemberLostError as error: print(error)"
    environment = os.environ | {"IN": str(machines.folder / "in"), "OUT": str(machines.folder / "out.txt")}
    for version, code in (("", 1), (', version="1"', 0)):
        program = flow.replace('("orders")', f'("orders"{version})') + caught
        from_input = f"python3 - <<'END'\n{program}\nEND"
        started = Supervised(["bash", "-c", from_input.replace("python3", PYTHON)], environment)
        text = started.end(code)
        assert ('ms.Flow("orders", version=' in text) == (code == 1), text
