"""Fixtures that every test may use: the program, a way to run it, a free port."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import servers
from cargo_build import BUILD, FOLDER
from documents import ROOT

if TYPE_CHECKING:
    from broker import Broker
    from postgres_server import Server
    from s3_server import S3Server

# A job that a shell runs in the background ignores SIGINT, and so would the processes that tests start and
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs of `make checked`, which are built here if they are not fresh."""
    subprocess.run([*BUILD, "--quiet", "--bins"], cwd=ROOT, check=True)
    return FOLDER


@pytest.fixture(scope="session")
def millstream_bin(programs: Path) -> Path:
    """Path of the Rust program."""
    return programs / "millstream"


@pytest.fixture(scope="session")
def millstream_bench(programs: Path) -> Path:
    """Path of the benchmarks."""
    return programs / "millstream-bench"


@pytest.fixture(scope="session")
def rust_examples(programs: Path) -> Path:
    """The folder of the compiled Rust examples."""
    subprocess.run([*BUILD, "--quiet", "--examples"], cwd=ROOT, check=True)
    return programs / "examples"


@pytest.fixture(scope="session")
def run(millstream_bin: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the program to its end: `run("send", path, timeout=10).stdout`. The caller checks `returncode`."""

    def run(*args: object, timeout: float = 60, **options: Any) -> subprocess.CompletedProcess[str]:
        command = [str(millstream_bin), *map(str, args)]
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, **options
        )
        return done

    return run


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Returns at each call the number of a TCP port of 127.0.0.1 on which nothing listens."""
    return servers.free_port


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Broker]":
    """A running Kafka broker of the newest version, which no test may stop."""
    from broker import Broker

    started = Broker(tmp_path_factory.mktemp("kafka")).start()
    yield started
    started.kill()


@pytest.fixture(scope="session")
def postgres() -> "Iterator[Server]":
    """A PostgreSQL server that no test kills."""
    from postgres_server import Server

    server = Server()
    try:
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Server]":
    """An S3 server that no test kills."""
    from s3_server import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def nats_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a NATS server with JetStream."""
    import servers

    with servers.nats(tmp_path_factory.mktemp("nats")) as port:
        yield port


@pytest.fixture(scope="session")
def mosquitto_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an MQTT broker."""
    import servers

    with servers.mosquitto(tmp_path_factory.mktemp("mosquitto")) as port:
        yield port


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis server."""
    import servers

    with servers.redis(tmp_path_factory.mktemp("redis")) as port:
        yield port
