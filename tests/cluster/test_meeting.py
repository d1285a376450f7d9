"""Processes meet whatever is wrong at first: names that mean the loopback interface on their own machine,
certificates of another authority. What may be cured at the other end is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from authorities import certificates, of_process
from namespaces import Machine, two_machines
from shapes import Shape, command
from supervised import Supervised

NETNS = Path("/etc/netns")
"""What a network namespace has in the place of files in ``/etc``; see ip-netns(8)."""


@pytest.fixture
def shape(tmp_path: Path) -> Shape:
    return Shape("words", tmp_path, seed=1, count=300)


@pytest.fixture
def debian() -> Iterator[tuple[Machine, Machine]]:
    """Two machines with the names n0 and n1, each of which has its own name at 127.0.1.1."""
    with two_machines() as machines:
        folders = [NETNS / machine.name for machine in machines]
        try:
            for number, folder in enumerate(folders):
                folder.mkdir(parents=True)
                other = f"{machines[1 - number].address} n{1 - number}"
                own = f"127.0.0.1 localhost\n127.0.1.1 n{number}\n{other}\n"
                (folder / "hosts").write_text(own)
            yield machines
        finally:
            for folder in folders:
                (folder / "hosts").unlink(missing_ok=True)
                folder.rmdir()


def test_machines_whose_names_are_loopback_addresses_at_home_meet(
    debian: tuple[Machine, Machine], shape: Shape, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef")
    out = tmp_path / "out" / "out.txt"
    run = []
    for number, machine in enumerate(debian):
        place = ["--process", number, "--hosts", "n0:7700,n1:7700", "--secret-file", tmp_path / "secret"]
        program = machine.command(command(shape.flow, *place, "--meet-within", "30s"))
        run.append(Supervised(program, shape.environment(out)))
    for one in run:
        one.end(0)
    shape.check(out)


def test_a_process_that_waits_says_where_it_listens(
    shape: Shape, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    (tmp_path / "secret").write_text("0123456789abcdef")
    port = free_port()
    place = ["--process", 0, "--hosts", f"here.example:{port},there.example:7700", "--meet-within", "1s"]
    environment = shape.environment(tmp_path / "out" / "out.txt")
    secret = ["--secret-file", tmp_path / "secret"]
    for options, address in (
        ([], f"[::]:{port}"),
        (["--listen", f"127.0.0.1:{port}"], f"127.0.0.1:{port}"),
        (["--listen", f"0.0.0.0:{port}"], f"0.0.0.0:{port}"),
    ):
        text = Supervised(command(shape.flow, *place, *secret, *options), environment).end(75)
        assert f"1 (there.example:7700); listening at {address}" in text, text
    text = Supervised(command(shape.flow, *place, *secret, "--listen", "nonsense"), environment).end(2)
    assert "nonsense" in text
    place = ["--process", 0, "--hosts", f"127.0.0.1:{port},127.0.0.1:{free_port()}"]
    text = Supervised(command(shape.flow, *place, "--listen", f"0.0.0.0:{port}"), environment).end(2)
    assert "--secret-file" in text


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_certificate_of_another_authority_is_replaced_while_the_other_waits(
    wrong: int, shape: Shape, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    certificates(tmp_path / "ours")
    certificates(tmp_path / "theirs")
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    out = tmp_path / "out" / "out.txt"

    def start(process: int, authority: str, *options: object) -> Supervised:
        place = ["--process", process, "--hosts", hosts, *of_process(tmp_path / authority, process)]
        return Supervised(command(shape.flow, *place, *options), shape.environment(out))

    right = start(1 - wrong, "ours")
    stranger = start(wrong, "theirs", "--meet-within", "7s")
    text = stranger.end(75)
    assert "TLS" in text or "waiting for 1 of 2 processes" in text, text
    assert right.process.poll() is None, right.text
    again = start(wrong, "ours")
    for one in (right, again):
        one.end(0)
    shape.check(out)
