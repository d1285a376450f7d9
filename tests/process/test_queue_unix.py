"""The queue server on a Unix socket: clients, the file of the socket, systemd, the verbs."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import memcache
import pylibmc
import pymemcache
import pytest
from queue_server import Serve
from test_queue_access import HAND_OVER, certificate_and_key
from test_queue_clients import scenes

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


def ask(path: Path, request: bytes) -> bytes:
    """What a connection gets that sends this, then `quit`. `|` is CR LF, both ways."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(request.replace(b"|", b"\r\n") + b"quit\r\n")
        return b"".join(iter(lambda: client.recv(65536), b"")).replace(b"\r\n", b"|")


def with_pymemcache(path: Path) -> Any:
    serde = pymemcache.serde.pickle_serde
    return pymemcache.Client(f"unix:{path}", serde=serde, timeout=10, default_noreply=False)


def with_python_memcached(path: Path) -> Any:
    return memcache.Client([f"unix:{path}"], socket_timeout=10)


def with_pylibmc(path: Path) -> Any:
    return pylibmc.Client([str(path)], behaviors={"receive_timeout": 10_000_000})


CLIENTS: list[tuple[Callable[[Path], Any], str]] = [
    (with_pymemcache, "close"),
    (with_python_memcached, "disconnect_all"),
    (with_pylibmc, "disconnect_all"),
]


@pytest.mark.parametrize(("connect", "close"), CLIENTS, ids=[connect.__name__ for connect, _ in CLIENTS])
def test_clients(connect: Callable[[Path], Any], close: str, serve: Serve, path: Path) -> None:
    serve(f"--listen=unix:{path}")
    scenes(lambda: connect(path), lambda client: getattr(client, close)(), "jobs")


def test_both_kinds_of_sockets_lead_to_the_same_queues(serve: Serve, path: Path) -> None:
    server = serve(f"--listen=unix:{path}", "--sync=never", config="[limits]\nconnections = 2\n")
    assert ask(path, b"set q 0 0 2|hi|") == b"STORED|"
    with server.connect() as line, server.connect() as other:
        assert other.ask(b"version") and line.get("q") == b"hi"
        # The limit is one for both.
        with socket.socket(socket.AF_UNIX) as refused:
            refused.connect(str(path))
            assert refused.recv(100) == b"SERVER_ERROR too many open connections\r\n"


def test_each_listener_has_its_replies(serve: Serve, path: Path) -> None:
    serve(f"--listen-kestrel=unix:{path}")
    assert ask(path, b"set q 0 0 2|hi|get q/t=10|") == b"STORED|VALUE q 0 2|hi|END|"


def test_the_file_is_removed_with_the_server_and_a_stale_one_is_replaced(serve: Serve, path: Path) -> None:
    server = serve(f"--listen=unix:{path}")
    assert path.is_socket() and ask(path, b"set q 0 0 2|hi|") == b"STORED|"
    server.kill()
    assert path.is_socket()
    server.start()
    assert ask(path, b"get q|") == b"VALUE q 0 2|hi|END|"
    server.signal(signal.SIGTERM)
    assert server.wait() == 0 and not path.exists()


def test_what_is_not_removed_stays(serve: Serve, run: Run, tmp_path: Path, path: Path) -> None:
    serve(f"--listen=unix:{path}")
    file = tmp_path / "file"
    file.write_text("mine")
    for taken in (path, file):
        done = run("queue", "serve", "--dir", tmp_path / "q", "--listen", f"unix:{taken}")
        assert done.returncode == 1
        assert done.stderr.startswith(f"millstream queue serve: cannot listen on unix:{taken}: ")
    assert ask(path, b"set q 0 0 2|hi|") == b"STORED|" and file.read_text() == "mine"


def test_tls_is_for_tcp(serve: Serve, tmp_path: Path, path: Path) -> None:
    certificate, key = certificate_and_key(tmp_path)
    serve("--tls-cert", str(certificate), "--tls-key", str(key), f"--listen=unix:{path}")
    assert ask(path, b"set q 0 0 2|hi|") == b"STORED|"


def test_the_verbs(serve: Serve, run: Run, path: Path) -> None:
    serve(f"--listen=unix:{path}")
    server = f"--server=unix:{path}"
    assert run("queue", "put", "jobs", server, input="one\ntwo\n").returncode == 0
    assert "jobs" in run("queue", "list", server).stdout
    assert run("queue", "get", "jobs", server).stdout == "one\n"
    assert run("queue", "peek", "jobs", server).stdout == "two\n"
    nobody = run("queue", "list", f"--server=unix:{path}.not")
    assert nobody.returncode == 1
    assert nobody.stderr.startswith(f"millstream queue list: cannot connect to unix:{path}.not: ")


def test_a_socket_from_systemd(millstream_bin: Path, tmp_path: Path, path: Path) -> None:
    """systemd creates and removes the file, and sets its permissions."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        command = [str(millstream_bin), "queue", "serve", "--dir", str(tmp_path / "queues")]
        process = subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, str(listener.fileno()), *command],
            pass_fds=[listener.fileno()],
            env=os.environ,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert ask(path, b"set q 0 0 2|hi|") == b"STORED|"
            process.terminate()
            assert process.wait(timeout=10) == 0
            assert path.is_socket()
        finally:
            process.kill()
            process.wait()
