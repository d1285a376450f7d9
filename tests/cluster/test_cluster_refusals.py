"""A process that must not take part is refused in words, and the run waits for the right one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from shapes import Shape, command
from supervised import Supervised

Start = Callable[..., Supervised]


@pytest.fixture
def shape(tmp_path: Path) -> Shape:
    return Shape("words", tmp_path, seed=1, count=500)


@pytest.fixture
def start(shape: Shape, tmp_path: Path, free_port: Callable[[], int]) -> Start:
    hosts = f"127.0.0.1:{free_port()},127.0.0.1:{free_port()}"
    environment = shape.environment(tmp_path / "out" / "out.txt")

    def start(process: int, *options: object, flow: Path = shape.flow) -> Supervised:
        place = ["--process", process, "--hosts", hosts]
        return Supervised(command(flow, *place, *options), environment)

    return start


def secret(folder: Path, text: str) -> list[object]:
    path = folder / f"secret{text[:1]}"
    path.write_text(text)
    return ["--secret-file", path]


def test_another_secret_is_refused(start: Start, shape: Shape, tmp_path: Path) -> None:
    right = secret(tmp_path, "a" * 32)
    wrong = secret(tmp_path, "b" * 32)
    first = start(0, *right)
    stranger = start(1, *wrong)
    first.said("secret")
    stranger.process.terminate()
    stranger.process.wait(60)
    friend = start(1, *right)
    first.end(0)
    friend.end(0)
    shape.check(tmp_path / "out" / "out.txt")


def test_another_flow_is_refused(start: Start, shape: Shape, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text(shape.flow.read_text().replace('name="each"', 'name="every"'))
    first = start(0)
    first.said("waiting for")
    stranger = start(1, "--meet-within", "10s", flow=other)
    assert "another version" in stranger.end(75)
    first.said("another version")
    # Of one version with another graph, which depends on the environment.
    for flow in (shape.flow, other):
        flow.write_text(flow.read_text().replace('ms.Flow("words")', 'ms.Flow("words", version="1")'))
    first.process.kill()
    first.process.wait(60)
    first = start(0)
    stranger = start(1, flow=other)
    text = stranger.end(1)
    assert "each" in text and "every" in text, text
    assert first.process.poll() is None or first.end(1)
    first.process.kill()


def test_another_number_of_workers_is_refused(start: Start) -> None:
    first = start(0, "--workers", 1)
    stranger = start(1, "--workers", 2)
    text = stranger.end(1)
    assert "process 1 has 2 worker(s), process 0 1" in text, text
    first.process.kill()


def test_an_address_that_others_reach_needs_a_secret(shape: Shape, tmp_path: Path) -> None:
    place = ["--process", 0, "--hosts", "192.0.2.1:7700,192.0.2.2:7700"]
    text = Supervised(command(shape.flow, *place), shape.environment(tmp_path / "out" / "out.txt")).end(2)
    assert "--secret-file" in text


def test_garbage_on_the_port_does_no_harm(start: Start, shape: Shape, tmp_path: Path) -> None:
    first = start(0)
    port = int(
        next(part for part in first.process.args if "127.0.0.1:" in str(part)).split(",")[0].split(":")[1]
    )
    for data in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\xff" * 100_000):
        while True:
            try:
                link = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except ConnectionRefusedError:
                assert first.process.poll() is None, first.text
        with link:
            try:
                link.sendall(data)
                link.recv(1)
            except OSError:
                pass
    second = start(1)
    first.end(0)
    second.end(0)
    shape.check(tmp_path / "out" / "out.txt")
