"""Connections over TLS: a certificate that is trusted, one that is not, and one of the client."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import millstream as ms
import pytest
import servers


class Certificates(NamedTuple):
    """Files of a server or client for 127.0.0.1, which is signed by itself."""

    ca: str
    key: str


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    ca, key = folder / "ca.pem", folder / "key.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
    make += f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {ca}"
    subprocess.run(make.split(), check=True, capture_output=True)
    key.chmod(0o644)
    return Certificates(str(ca), str(key))


def nats(folder: Path, files: Certificates) -> list[str]:
    command, config = servers.nats(folder), folder / "nats.conf"
    tls = f'tls {{cert_file: "{files.ca}", key_file: "{files.key}", ca_file: "{files.ca}", verify: true}}'
    config.write_text(f"{config.read_text()}\n{tls}\n")
    return command


def redis(folder: Path, files: Certificates) -> list[str]:
    command = servers.redis("--save", "", "--tls-cert-file", files.ca, "--tls-key-file", files.key)
    command[1:3] = ["--port", "0", "--tls-port", "{port}"]
    return [*command, "--tls-ca-cert-file", files.ca, "--tls-auth-clients", "yes"]


def mosquitto(folder: Path, files: Certificates) -> list[str]:
    command = servers.mosquitto(folder)
    lines = f"cafile {files.ca}\\ncertfile {files.ca}\\nkeyfile {files.key}\\nrequire_certificate true"
    command[2] = command[2].replace('127.0.0.1"', f'127.0.0.1\\n{lines}"')
    return command


CASES: dict[str, tuple[Callable[[Path, Certificates], list[str]], Callable[[int, ms.Login], Any]]] = {
    "nats": (nats, lambda port, login: ms.nats.write(f"tls://127.0.0.1:{port}", "tls", login=login)),
    "redis": (redis, lambda port, login: ms.redis.write(f"rediss://127.0.0.1:{port}", "tls", login=login)),
    "mqtt": (mosquitto, lambda port, login: ms.mqtt.write(f"mqtts://127.0.0.1:{port}", "tls", login=login)),
}


@pytest.fixture(params=list(CASES))
def write(
    request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path
) -> Iterator[Callable[[ms.Login], ms.Report]]:
    command, make = CASES[request.param]
    with servers.server(command(tmp_path, certificates), tmp_path) as port:

        def run(login: ms.Login) -> ms.Report:
            if request.param == "nats" and login.ca is not None:
                create_stream(port, certificates)
            flow = ms.Flow("tls")
            item = {"n": 1} if request.param == "redis" else b"1"
            flow.source("in", ms.testing.items([item])).sink("out", make(port, login))
            return ms.run(flow)

        yield run


def create_stream(port: int, files: Certificates) -> None:
    import nats
    from event_loop import EventLoop
    from millstream._servers import context_of

    context = context_of(ms.Login(ca=files.ca, certificate=files.ca, key=files.key))
    with EventLoop() as loop:
        client: Any = loop.result(nats.connect(f"tls://127.0.0.1:{port}", tls=context))
        loop.result(client.jetstream().add_stream(name="tls", subjects=["tls"]))
        loop.result(client.close())


def test_a_certificate_is_checked(write: Callable[[ms.Login], ms.Report], certificates: Certificates) -> None:
    """That of the server by ``ca``, and that of the client by the server."""
    files = certificates
    with pytest.raises(ms.FlowError, match="(?i)certificate verify failed"):
        write(ms.Login(certificate=files.ca, key=files.key))
    report = write(ms.Login(ca=files.ca, certificate=files.ca, key=files.key))
    assert report.outboxes[0]["delivered_records"] == 1
