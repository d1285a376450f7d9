"""Access to the queue server: TLS, a name and password, sockets that systemd passes."""

import os
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from queue_server import QueueServer, Serve


def plainly(server: QueueServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=10)


def ask(server: QueueServer, request: bytes) -> bytes:
    """What a connection gets that sends this, then `quit`. `|` is CR LF, both ways."""
    with server.connect() as line:
        line.send(request.replace(b"|", b"\r\n") + b"quit\r\n")
        return line.file.read().replace(b"\r\n", b"|")


def certificate_and_key(folder: Path) -> tuple[Path, Path]:
    """Made with openssl, which every system has."""
    certificate = folder / "cert.pem"
    key = folder / "key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*make.split(), *names, "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    return certificate, key


def test_tls(serve: Serve, tmp_path: Path) -> None:
    certificate, key = certificate_and_key(tmp_path)
    server = serve("--tls-cert", str(certificate), "--tls-key", str(key))
    context = ssl.create_default_context(cafile=str(certificate))
    large = b"x" * 500_000
    with plainly(server) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"set q 0 0 %d\r\n%s\r\nget q\r\nquit\r\n" % (len(large), large))
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer == b"STORED\r\nVALUE q 0 500000\r\n" + large + b"\r\nEND\r\n"
    # A client that does not speak TLS is refused, and others are served.
    with plainly(server) as plain:
        plain.sendall(b"version\r\n" * 10)
        assert not plain.recv(100).startswith(b"VERSION")
    with plainly(server) as plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        client.sendall(b"version\r\n")
        assert client.recv(100).startswith(b"VERSION")


def test_a_key_that_is_none_is_named(run: Callable[..., Any], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nothing\n")
    done = run("queue", "serve", "--dir", tmp_path / "q", "--tls-cert", wrong, "--tls-key", wrong)
    assert (done.returncode, done.stderr) == (
        1,
        f"millstream queue serve: {wrong}: no certificate in this file\n",
    )


def test_name_and_password(serve: Serve, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("ann:secret\nbob:word\n")
    server = serve("--auth-file", str(known))
    assert ask(server, b"get q|") == b"CLIENT_ERROR unauthenticated|"
    assert ask(server, b"set auth 0 0 9|ann wrong|get q|").startswith(b"CLIENT_ERROR authentication failure|")
    assert ask(server, b"set auth 0 0 8|bob word|get q|") == b"STORED|END|"


# What systemd does before it becomes the service.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_socket_from_systemd(millstream_bin: Path, tmp_path: Path) -> None:
    """By its protocol: the socket is file descriptor 3, and READY=1 is a datagram."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(10)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    command = [str(millstream_bin), "queue", "serve", "--dir", str(tmp_path / "queues")]
    process = subprocess.Popen(
        [sys.executable, "-c", HAND_OVER, str(listener.fileno()), *command],
        pass_fds=[listener.fileno()],
        env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        stderr=subprocess.DEVNULL,
    )
    try:
        assert notify.recv(100) == b"READY=1"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(b"version\r\n")
            assert client.recv(100).startswith(b"VERSION")
        process.terminate()
        assert notify.recv(100) == b"STOPPING=1"
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
        notify.close()
        listener.close()


def test_wrong_passwords_are_logged_and_counted(serve: Serve, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("ann:secret\n")
    server = serve("--auth-file", str(known))
    with server.connect() as line:
        # Nothing that was sent after a wrong password is looked at before it was answered.
        for secret in (b"ann wrong", b"x\n\x1b[1m why", b"ann secret"):
            line.send(b"set auth 0 0 %d\r\n%s\r\n" % (len(secret), secret))
        assert [line.read() for _ in range(3)] == [b"CLIENT_ERROR authentication failure"] * 2 + [b"STORED"]
        assert line.stats()["auth_failures"] == "2"
    log = server.log()
    assert 'wrong password for "ann"' in log and 'wrong password for "x\\n\\u{1b}[1m"' in log
    assert "127.0.0.1:" in log and "secret" not in log and "why" not in log
