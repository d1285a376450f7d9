"""Servers of others, which tests start on free ports of this machine."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds after which a server that does not listen has failed."""

PORTS = 5
"""How many ports are tried: another process may take one before the server does."""


def program(name: str, remedy: str) -> str:
    """The path of a program; an error that names the remedy where it is missing."""
    # Debian has mosquitto in a folder that is not in every user's PATH; a package of PyPI has nats-server.
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"]
    path = shutil.which(name, path=os.pathsep.join(places))
    assert path, f"{name} is missing: {remedy}"
    return path


def pause(process: subprocess.Popen[Any]) -> None:
    """Pauses a process until it stands still: after the signal alone its threads go on for a moment."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Ports that differ, on which nothing listens.

    None is of the range from which the system takes ports of connections: those may be taken before use.
    """
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            chosen = held.enter_context(socket.socket())
            port = random.SystemRandom().randrange(10_000, 32_000)
            try:
                chosen.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        return found


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def started(command: list[str], log: Path) -> tuple[subprocess.Popen[bytes], int] | None:
    """The process of a server that listens, and its port; None if it has ended. ``{port}`` in the command is
    its port."""
    port = free_port()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [part.format(port=port) for part in command], stdout=output, stderr=output, cwd=log.parent
        )
    until = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < until:
        if listens(port):
            return process, port
        time.sleep(0.02)
    process.kill()
    process.wait()
    return None


def start(command: list[str], folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a server, whose log goes to a folder; returns its process and its port."""
    log = folder / "server.log"
    for _ in range(PORTS):
        found = started(command, log)
        if found is not None:
            return found
    raise AssertionError(f"{command} does not listen:\n{log.read_text()}")


@contextmanager
def server(command: list[str], folder: Path) -> Iterator[int]:
    """Runs a server; yields its port."""
    process, port = start(command, folder)
    try:
        yield port
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# The commands of servers; ``{port}`` is the port. Each lets clients in without a login, and with this one.

USER = "flow"
PASSWORD = "op:n@s/same"


def nats(folder: Path) -> list[str]:
    """A NATS server with JetStream."""
    path = program("nats-server", ".venv/bin/pip install -r requirements-dev.txt")
    users = [f'{{user: {name}, password: "{word}"}}' for name, word in ((USER, PASSWORD), ("anyone", ""))]
    config = folder / "nats.conf"
    config.write_text(f"authorization {{users: [{', '.join(users)}]}}\nno_auth_user: anyone\n")
    return [path, "-c", str(config), "-a", "127.0.0.1", "-p", "{port}", "-js", "-sd", str(folder)]


def mosquitto(folder: Path, *lines: str) -> list[str]:
    """An MQTT broker, which keeps its sessions in the folder."""
    words = folder / "words"
    config = folder / "mosquitto.conf"
    make = [program("mosquitto_passwd", "apt-get install mosquitto"), "-b", "-c", str(words), USER, PASSWORD]
    subprocess.run(make, check=True, capture_output=True)
    settings = [f"password_file {words}", "allow_anonymous true", "user root", *lines]
    settings += ["persistence true", f"persistence_location {folder}/", "autosave_interval 1"]
    settings += ["autosave_on_changes true", "max_queued_messages 0"]
    config.write_text("\n".join([*settings, ""]))
    # Beside a file of settings the port is one of them.
    script = 'echo "listener $1 127.0.0.1" | cat $2 - > $2.started; exec $3 -c $2.started'
    path = program("mosquitto", "apt-get install mosquitto")
    return ["sh", "-c", script, "mosquitto", "{port}", str(config), path]


def redis(*options: str) -> list[str]:
    """A Redis server."""
    path = program("redis-server", "apt-get install redis-server")
    kept = options or ("--save", "", "--appendonly", "no")
    user = ["--user", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all"]
    return [path, "--port", "{port}", "--bind", "127.0.0.1", *kept, *user]


def rabbitmq(folder: Path) -> list[str]:
    """A RabbitMQ broker with its user guest, and a directory of nodes that ends with it."""
    path = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    assert Path(path).exists(), "rabbitmq-server is missing: apt-get install rabbitmq-server"
    (folder / "plugins").write_text("[].\n")
    places = {"BASE": "", "MNESIA_BASE": "db", "LOG_BASE": "log", "PID_FILE": "pid"}
    places |= {"ENABLED_PLUGINS_FILE": "plugins", "CONF_ENV_FILE": "none", "CONFIG_FILE": "none"}
    settings = {f"RABBITMQ_{name}": str(folder / place) for name, place in places.items()} | {
        "RABBITMQ_NODENAME": "test@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": "{port}",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_LOGS": "-",
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_FLAGS": "+S 1:1 +sbwt none",
        # The script becomes the broker then, and is not its parent.
        "RUNNING_UNDER_SYSTEMD": "1",
        "HOME": str(folder),
    }
    script = 'setpriv --pdeathsig KILL epmd & exec "$0"'
    return ["env", *(f"{name}={value}" for name, value in settings.items()), "sh", "-c", script, path]


def clickhouse(folder: Path) -> list[str]:
    """A ClickHouse server with its HTTP interface."""
    path = program("clickhouse-server", "apt-get install clickhouse-server")
    network = "<networks><ip>::/0</ip></networks><profile>default</profile><quota>default</quota>"
    users = f"<{USER}><password>{PASSWORD}</password>{network}</{USER}>"
    users += f"<default><password></password>{network}</default>"
    (folder / "users.xml").write_text(
        f"<yandex><profiles><default/></profiles><quotas><default/></quotas><users>{users}</users></yandex>"
    )
    settings = {"tcp_port": free_port(), "listen_host": "127.0.0.1", "path": f"{folder}/data/"}
    settings |= {"tmp_path": f"{folder}/tmp/", "users_config": f"{folder}/users.xml"}
    settings |= {"mark_cache_size": 1 << 22, "default_profile": "default", "default_database": "default"}
    text = "".join(f"<{name}>{value}</{name}>" for name, value in settings.items())
    text += "<logger><level>warning</level><console>1</console></logger>"
    (folder / "config.xml").write_text(f"<yandex>{text}</yandex>")
    return [path, f"--config-file={folder}/config.xml", "--", "--http_port={port}"]
