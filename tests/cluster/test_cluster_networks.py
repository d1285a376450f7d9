"""The network between two machines fails: packets are dropped both ways or one way, connections are reset,
some packets are lost, round trips take 200 ms. The run starts again when the network is back; its output is
that of one process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from namespaces import Machine, two_machines
from shapes import Shape, command
from soak import variations
from supervised import Supervised, wait_for


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    with two_machines() as both:
        yield both


CUTS: dict[str, Callable[[Machine, Machine], None]] = {
    "both ways": lambda first, second: (first.drop_incoming(), second.drop_incoming())[0],
    "to process 0": lambda first, second: first.drop_incoming(),
    "to process 1": lambda first, second: second.drop_incoming(),
    "reset": lambda first, second: first.reset_incoming(),
}


@pytest.mark.parametrize("cut", variations(CUTS, lambda cut: cut in ("both ways", "reset")))
def test_a_partition_ends_the_run_and_it_starts_again(
    cut: str, machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    (tmp_path / "secret").write_text("0123456789abcdef")
    hosts = ",".join(f"{machine.address}:7700" for machine in machines)
    options = ["--hosts", hosts, "--secret-file", tmp_path / "secret", "--restarts", "1000/10m"]
    options += ["--dead-after", "1s", "--state", tmp_path / "state", "--epoch", "20ms", "--sync", "never"]
    run = []
    for process, machine in enumerate(machines):
        ready = ["--ready-file", tmp_path / f"ready{process}"]
        program = command(shape.flow, "--process", process, *options, *ready)
        run.append(Supervised(machine.command(program), shape.environment(out, seconds=8.0)))
    for process in range(2):
        wait_for((tmp_path / f"ready{process}").exists, f"process {process}")
    CUTS[cut](*machines)
    for one in run:
        # Each learns of it by itself, and tries again.
        one.said("started again from the last commit")
    for machine in machines:
        try:
            machine.heal()
        except AssertionError:
            pass  # this one was not cut
    for one in run:
        one.end(0)
    shape.check(out)


def test_lost_packets_are_sent_again(machines: tuple[Machine, Machine], tmp_path: Path) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    (tmp_path / "secret").write_text("0123456789abcdef")
    hosts = ",".join(f"{machine.address}:7700" for machine in machines)
    options = ["--hosts", hosts, "--secret-file", tmp_path / "secret", "--state", tmp_path / "state"]
    options += ["--epoch", "50ms", "--sync", "never"]
    run = []
    for process, machine in enumerate(machines):
        machine.lose_incoming(percent=5)
        program = command(shape.flow, "--process", process, *options)
        run.append(Supervised(machine.command(program), shape.environment(out, seconds=3.0)))
    for one in run:
        text = one.end(0)
        assert "died" not in text
    shape.check(out)
    assert all(machine.lost() > 0 for machine in machines)


class Slow:
    """A proxy that passes each chunk on after a time.

    Args:
        target: the port of 127.0.0.1 that it forwards to.
        delay_s: the time for one way.
    """

    def __init__(self, target: int, delay_s: float) -> None:
        self.target = target
        self.delay_s = delay_s
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target), timeout=60)
            except OSError:
                continue
            server.settimeout(None)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=(source, sink), daemon=True).start()

    def forward(self, source: socket.socket, sink: socket.socket) -> None:
        due: list[tuple[float, bytes]] = []
        changed = threading.Condition()

        def deliver() -> None:
            while True:
                with changed:
                    changed.wait_for(lambda: due)
                    at, data = due.pop(0)
                time.sleep(max(0.0, at - time.monotonic()))
                try:
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)
                except OSError:
                    return

        threading.Thread(target=deliver, daemon=True).start()
        data = b"-"
        while data:
            try:
                data = source.recv(65536)
            except OSError:
                data = b""
            with changed:
                due.append((time.monotonic() + self.delay_s, data))
                changed.notify()


def test_round_trips_of_200_ms(tmp_path: Path, free_port: Callable[[], int]) -> None:
    shape = Shape("words", tmp_path, seed=1, count=1000)
    out = tmp_path / "out" / "out.txt"
    ports = [free_port() for _ in range(2)]
    slow = [Slow(port, 0.1) for port in ports]
    options = ["--state", tmp_path / "state", "--epoch", "100ms"]
    run = []
    for process in range(2):
        # Each reaches the other one through its proxy.
        hosts = [f"127.0.0.1:{ports[n] if n == process else slow[n].port}" for n in range(2)]
        place = ["--process", process, "--hosts", ",".join(hosts)]
        run.append(Supervised(command(shape.flow, *place, *options), shape.environment(out)))
    for one in run:
        text = one.end(0)
        assert "died" not in text
    shape.check(out)
