"""Fixtures that every test may use: the program, a way to run it, a free port."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import servers
from cargo_build import BUILD, FOLDER, TARGET
from documents import ROOT
from shared import Shared

if TYPE_CHECKING:
    from broker import Broker
    from postgres_server import Server
    from s3_server import S3Server

# A job that a shell runs in the background ignores SIGINT, and so would the processes that tests start and
# interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `millstream` is the command of the package under test, as it is for users in an activated environment.
os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The one process that starts the workers, or runs the tests itself, ends what they share: before pytest
    removes the folders of a run without a failure, which name the servers."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        end_shared(session.config)


def end_shared(config: pytest.Config) -> None:
    factory: pytest.TempPathFactory | None = getattr(config, "_tmp_path_factory", None)
    if factory is not None:
        Shared.of(factory).end()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """What all processes of this run share."""
    return Shared.of(tmp_path_factory)


@pytest.fixture(scope="session")
def programs(shared: Shared) -> Path:
    """The folder of the Rust programs, which are built here if they are not fresh."""

    def build(_: Path) -> Path:
        subprocess.run([*BUILD, "--quiet", "--bins"], cwd=ROOT, check=True)
        return FOLDER

    return shared.once("programs", build)


@pytest.fixture(scope="session")
def millstream_bin(programs: Path) -> Path:
    """Path of the Rust program."""
    return programs / "millstream"


@pytest.fixture(scope="session")
def millstream_bench(shared: Shared) -> Path:
    """Path of the benchmarks, a workspace of their own, which only soak tests compile."""

    def build(_: Path) -> Path:
        workspace = ["--manifest-path", "benchmarks/Cargo.toml", "--target-dir", str(TARGET)]
        subprocess.run(["cargo", "build", "--quiet", *workspace], cwd=ROOT, check=True)
        return FOLDER

    return shared.once("benchmarks", build) / "millstream-bench"


@pytest.fixture(scope="session")
def rust_examples(shared: Shared) -> Path:
    """The folder of the compiled Rust examples."""

    def build(_: Path) -> Path:
        subprocess.run([*BUILD, "--quiet", "--examples"], cwd=ROOT, check=True)
        return FOLDER / "examples"

    return shared.once("examples", build)


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
def broker(shared: Shared) -> "Broker":
    """A running Kafka broker of the newest version, which no test may stop."""
    from broker import Broker

    return shared.once("kafka", lambda folder: Broker(folder / "broker").start().keep(shared.end_with_run))


@pytest.fixture(scope="session")
def postgres(shared: Shared) -> "Server":
    """A PostgreSQL server that no test kills."""
    from postgres_server import Server

    return shared.once("postgres", lambda _: Server().keep(shared.end_with_run))


@pytest.fixture(scope="session")
def s3(shared: Shared) -> "S3Server":
    """An S3 server that no test kills."""
    from s3_server import S3Server, command

    return shared.once("s3", lambda folder: S3Server(kept(shared, command(), folder)))


@pytest.fixture(scope="session")
def nats_port(shared: Shared) -> int:
    """The port of a NATS server with JetStream."""
    return shared.once("nats", lambda folder: kept(shared, servers.nats(folder), folder))


@pytest.fixture(scope="session")
def mosquitto_port(shared: Shared) -> int:
    """The port of an MQTT broker."""
    return shared.once("mosquitto", lambda folder: kept(shared, servers.mosquitto(folder), folder))


@pytest.fixture(scope="session")
def redis_port(shared: Shared) -> int:
    """The port of a Redis server."""
    return shared.once("redis", lambda folder: kept(shared, servers.redis(), folder))


@pytest.fixture(scope="session")
def rabbitmq_port(shared: Shared) -> int:
    """The port of a RabbitMQ broker."""
    return shared.once("rabbitmq", lambda folder: kept(shared, servers.rabbitmq(folder), folder))


@pytest.fixture(scope="session")
def clickhouse_port(shared: Shared) -> int:
    """The port of the HTTP interface of a ClickHouse server."""
    return shared.once("clickhouse", lambda folder: kept(shared, servers.clickhouse(folder), folder))


def kept(shared: Shared, command: list[str], folder: Path) -> int:
    """Starts a server that all processes share; returns its port."""
    process, port = servers.start(command, folder)
    shared.end_with_run(process.pid)
    return port
