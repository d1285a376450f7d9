"""Connections over TLS: a certificate that is trusted, one that is not, and one of the client."""

from __future__ import annotations

import re
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import millstream as ms
import pytest
import servers
from event_loop import EventLoop


class Certificates(NamedTuple):
    """Files of an authority, and of a server or client for 127.0.0.1 whose certificate it has signed."""

    ca: str
    certificate: str
    key: str


def signed(folder: Path) -> Certificates:
    """An authority of its own, and a certificate of it."""
    folder.mkdir()
    made = Certificates(*(str(folder / name) for name in ("ca.pem", "certificate.pem", "key.pem")))
    new = "openssl req -x509 -newkey rsa:2048 -nodes -days 2"
    root = f"{new} -subj /CN=authority -keyout {folder}/ca.key -out {made.ca}"
    leaf = f"{new} -subj /CN=localhost -keyout {made.key} -out {made.certificate}"
    leaf += f" -CA {made.ca} -CAkey {folder}/ca.key -addext subjectAltName=IP:127.0.0.1"
    leaf += " -addext basicConstraints=critical,CA:FALSE"
    for command in (root, leaf):
        subprocess.run(command.split(), check=True, capture_output=True)
    Path(made.key).chmod(0o644)
    return made


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return signed(tmp_path_factory.mktemp("certificates") / "trusted")


def nats(folder: Path, files: Certificates) -> list[str]:
    command = servers.nats(folder)
    config = folder / "nats.conf"
    tls = f'cert_file: "{files.certificate}", key_file: "{files.key}", ca_file: "{files.ca}", verify: true'
    config.write_text(f"{config.read_text()}\ntls {{{tls}}}\n")
    return command


def redis(folder: Path, files: Certificates) -> list[str]:
    command = servers.redis("--save", "", "--tls-cert-file", files.certificate, "--tls-key-file", files.key)
    command[1:3] = ["--port", "0", "--tls-port", "{port}"]
    return [*command, "--tls-ca-cert-file", files.ca, "--tls-auth-clients", "yes"]


def mosquitto(folder: Path, files: Certificates) -> list[str]:
    command = servers.mosquitto(folder)
    lines = (
        f"cafile {files.ca}\\ncertfile {files.certificate}\\nkeyfile {files.key}\\nrequire_certificate true"
    )
    command[2] = command[2].replace('127.0.0.1"', f'127.0.0.1\\n{lines}"')
    return command


def rabbitmq(folder: Path, files: Certificates) -> list[str]:
    options = {
        "cacertfile": f'"{files.ca}"',
        "certfile": f'"{files.certificate}"',
        "keyfile": f'"{files.key}"',
    }
    options |= {"verify": "verify_peer", "fail_if_no_peer_cert": "true"}
    terms = ",".join(f"{{{{{name},{value}}}}}" for name, value in options.items())
    # The port that the environment names is that of connections without TLS.
    arguments = f"-rabbit ssl_listeners [{{port}}] -rabbit ssl_options [{terms}]"
    command = servers.rabbitmq(folder)
    command[command.index("RABBITMQ_NODE_PORT={port}")] = f"RABBITMQ_NODE_PORT={servers.free_port()}"
    return [command[0], f"RABBITMQ_SERVER_START_ARGS={arguments}", *command[1:]]


def clickhouse(folder: Path, files: Certificates) -> list[str]:
    command = servers.clickhouse(folder)
    config = folder / "config.xml"
    settings = {"certificateFile": files.certificate, "privateKeyFile": files.key, "caConfig": files.ca}
    settings |= {"verificationMode": "strict", "loadDefaultCAFile": "false"}
    text = "".join(f"<{name}>{value}</{name}>" for name, value in settings.items())
    tls = f"<openSSL><server>{text}</server></openSSL>"
    config.write_text(config.read_text().replace("</yandex>", f"{tls}</yandex>"))
    command[-1] = "--https_port={port}"
    return command


CASES: dict[str, tuple[Callable[[Path, Certificates], list[str]], str, Callable[..., Any]]] = {
    "nats": (nats, "tls://127.0.0.1:{port}", ms.nats.write),
    "redis": (redis, "rediss://127.0.0.1:{port}", ms.redis.write),
    "mqtt": (mosquitto, "mqtts://127.0.0.1:{port}", ms.mqtt.write),
    "rabbitmq": (rabbitmq, "amqps://127.0.0.1:{port}", ms.rabbitmq.write),
    "clickhouse": (clickhouse, "https://127.0.0.1:{port}", ms.clickhouse.write),
}


class Secured(NamedTuple):
    """A server with TLS, and how a flow writes one item to it."""

    url: str
    write: Callable[[ms.Login], ms.Report]


@pytest.fixture(params=list(CASES))
def secured(request: pytest.FixtureRequest, certificates: Certificates, tmp_path: Path) -> Iterator[Secured]:
    name = request.param
    command, url, make = CASES[name]
    with servers.server(command(tmp_path, certificates), tmp_path) as port:
        url = url.format(port=port)
        prepare = PREPARED.get(name)
        if prepare is not None:
            prepare(url, certificates)

        def write(login: ms.Login) -> ms.Report:
            flow = ms.Flow("tls")
            item = {"n": 1} if name in ("redis", "clickhouse") else b"1"
            # Some servers only close the connection, which another attempt might pass.
            sink = make(url, "tls", login=login, retry=ms.Backoff(first=0.01, tries=3))
            flow.source("in", ms.testing.items([item])).sink("out", sink)
            return ms.run(flow)

        yield Secured(url, write)


def context(files: Certificates) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=files.ca)
    made.load_cert_chain(files.certificate, files.key)
    return made


def create_stream(url: str, files: Certificates) -> None:
    import nats

    with EventLoop() as loop:
        client: Any = loop.result(nats.connect(url, tls=context(files)))
        loop.result(client.jetstream().add_stream(name="tls", subjects=["tls"]))
        loop.result(client.close())


def create_queue(url: str, files: Certificates) -> None:
    import aio_pika

    with EventLoop() as loop:
        client: Any = loop.result(aio_pika.connect(url, ssl_context=context(files)))
        channel: Any = loop.result(opened(client))
        loop.result(channel.declare_queue("tls"))
        loop.result(client.close())


async def opened(client: Any) -> Any:
    return await client.channel()


def create_table(url: str, files: Certificates) -> None:
    import httpx

    query = "CREATE TABLE tls (n UInt64) ENGINE = Memory"
    answer = httpx.post(url, params={"query": query}, verify=context(files), timeout=servers.PATIENCE)
    assert answer.status_code == 200, answer.text


PREPARED = {"nats": create_stream, "rabbitmq": create_queue, "clickhouse": create_table}


def test_a_certificate_is_checked(
    secured: Secured, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """That of the server by ``ca``, and that of the client by the server."""
    known = certificates
    other = signed(tmp_path_factory.mktemp("certificates") / "other")
    named = re.escape(secured.url)
    for ca in (None, other.ca):
        with pytest.raises(ms.FlowError, match=f"(?i){named}.*certificate verify failed"):
            secured.write(ms.Login(ca=ca, certificate=known.certificate, key=known.key))
    for certificate, key in ((None, None), (other.certificate, other.key)):
        with pytest.raises(ms.FlowError, match=named):
            secured.write(ms.Login(ca=known.ca, certificate=certificate, key=key))
    report = secured.write(ms.Login(ca=known.ca, certificate=known.certificate, key=known.key))
    assert report.outboxes[0]["delivered_records"] == 1
