"""A Kafka broker for tests: one node, which is its own controller, on free ports; or a cluster of two.

Apache Kafka comes from Maven Central and is kept in `~/.cache/millstream-tests`. This module,
run as a program, fetches it. The listeners of a broker:

| listener | what |
|---|---|
| `servers` | plain |
| `proxied` | plain, and advertised as the port of a proxy: traffic through it can be cut and stalled |
| `tls` | TLS, with a certificate of an authority that is made for the broker |
| `scram` | SASL/SCRAM-SHA-256 over TLS, for the user `alice` with the password `wonder` |
| `oauth` | SASL/OAUTHBEARER, with tokens that are not signed |

With `AUTHORIZER` as settings everything but the plain listeners needs rights.
"""

import base64
import fcntl
import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from servers import free_ports

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millstream-tests"
# The newest of the last series with another controller, and the newest.
VERSIONS = ("3.9.2", "4.4.0")
USER = "alice"
PASSWORD = "wonder"
# Users need rights; the clients of the plain listeners have all.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
READY_SECONDS = 60
STARTS = 5
# Of one node.
PORTS = 7


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """What other runs of tests wait for."""
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(version: str) -> Path:
    """The folder with the Java archives of this version, which is filled the first time."""
    libs = CACHE / f"kafka-{version}" / "libs"
    complete = libs.parent / "complete"
    libs.mkdir(parents=True, exist_ok=True)
    with locked(libs.parent):
        if not complete.exists():
            build = libs.parent / "build"
            shutil.rmtree(build, ignore_errors=True)
            shutil.copytree(HERE, build, ignore=lambda _, names: [n for n in names if n != "pom.xml"])
            copy = ["mvn", "--batch-mode", "--quiet", "dependency:copy-dependencies"]
            copy += [f"-Dkafka.version={version}", f"-DoutputDirectory={libs}", "-DincludeScope=runtime"]
            subprocess.run(copy, cwd=build, check=True)
            shutil.rmtree(build)
            complete.touch()
    return libs


class Authority:
    """A certificate authority, and the key store of a broker at 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "ca.pem"
        self.key_store = folder / "broker.pem"
        folder.mkdir(parents=True, exist_ok=True)
        name = ["-subj", "/CN=millstream tests"]
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", *name, "-keyout", "ca.key", "-out", "ca.pem"
        )
        request = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
        self._openssl("req", *request, "-keyout", "broker.key", "-out", "broker.csr")
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "names"]
        self._openssl("x509", "-req", "-in", "broker.csr", *sign, "-out", "broker.crt")
        key = folder / "broker.key"
        chain = (folder / "broker.crt").read_text()
        self.key_store.write_text(key.read_text() + chain + self.certificate.read_text())

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


def new_identity() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Broker:
    """A broker that keeps its data in `folder`, and can be killed and started again.

    With `process.roles` and `node.id` among the settings it is one node of the cluster of this identity.
    """

    def __init__(
        self,
        folder: Path,
        version: str = VERSIONS[-1],
        identity: str = "",
        ports: Sequence[int] = (),
        heap: str = "512m",
        **settings: str,
    ) -> None:
        self.folder = folder
        self.version = version
        self.identity = identity or new_identity()
        self.heap = heap
        self.roles = settings.get("process.roles", "broker,controller").split(",")
        self.libs = install(version)
        self.authority = Authority(folder / "tls")
        ports = ports or free_ports(PORTS)
        self._plain, self._controller, self._tls, self._scram, self._inner, self._proxy, self._oauth = ports
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.properties = folder / "server.properties"
        self.settings = {**self._settings(), **settings}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))
        self._format()

    servers = property(lambda self: f"127.0.0.1:{self._plain}")
    proxied = property(lambda self: f"127.0.0.1:{self._proxy}")
    tls = property(lambda self: f"127.0.0.1:{self._tls}")
    scram = property(lambda self: f"127.0.0.1:{self._scram}")
    oauth = property(lambda self: f"127.0.0.1:{self._oauth}")

    @property
    def ports_of_proxy(self) -> tuple[int, int]:
        """The port at which a proxy listens for `proxied`, and the one to which it connects."""
        return self._proxy, self._inner

    def _listeners(self) -> dict[str, str]:
        """Where it listens, in each of its roles."""
        controller = {"CONTROLLER": self._controller} if "controller" in self.roles else {}
        if "broker" not in self.roles:
            return {"listeners": _addresses(controller)}
        at = {
            "PLAIN": self._plain,
            "TLS": self._tls,
            "SCRAM": self._scram,
            "PROXIED": self._inner,
            "OAUTH": self._oauth,
        }
        return {
            "listeners": _addresses({**at, **controller}),
            "advertised.listeners": _addresses({**at, "PROXIED": self._proxy}),
        }

    def _settings(self) -> dict[str, str]:
        protocols = "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,SCRAM:SASL_SSL,PROXIED:PLAINTEXT"
        protocols += ",OAUTH:SASL_PLAINTEXT"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        tokens = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        tokens += 'unsecuredLoginStringClaim_sub="broker";'
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAIN",
            **self._listeners(),
            "listener.security.protocol.map": protocols,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.key_store),
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": tokens,
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.scram.scram-sha-256.sasl.jaas.config": login,
            "log.dirs": str(self.folder / "data"),
            "auto.create.topics.enable": "false",
            # One node has one copy, and starts faster with few partitions of its own.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": str(4 << 20),
            "log.cleaner.threads": "1",
            "num.network.threads": "2",
            "num.io.threads": "2",
            "num.recovery.threads.per.data.dir": "1",
        }

    def _java(self, main: str, *arguments: str, heap: str = "512m") -> list[str]:
        quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", f"-Xmx{heap}"]
        log = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        return ["java", *quick, *log, "-cp", f"{self.libs}/*", main, *arguments]

    def _format(self) -> None:
        """A copy of the directory that Kafka's own tool formatted once, with an identity of its own."""
        formatted = self.libs.parent / f"formatted-{USER}-{PASSWORD}"
        data = self.folder / "data"
        with locked(self.libs.parent):
            if not formatted.exists():
                self._storage_tool_formats()
                new = formatted.with_suffix(".new")
                shutil.rmtree(new, ignore_errors=True)
                shutil.copytree(data, new)
                new.rename(formatted)
        shutil.copytree(formatted, data, dirs_exist_ok=True)
        meta = data / "meta.properties"
        text = meta.read_text()
        node = self.settings["node.id"]
        own = {"cluster.id": self.identity, "node.id": node, "directory.id": new_identity()}
        for name, value in own.items():
            text = re.sub(f"(?m)^{name}=.*$", f"{name}={value}", text)
        meta.write_text(text)

    def _storage_tool_formats(self) -> None:
        user = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        options = [
            f"--cluster-id={new_identity()}",
            "--config",
            str(self.properties),
            "--add-scram",
            user,
        ]
        command = self._java("kafka.tools.StorageTool", "format", *options, heap="128m")
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> "Broker":
        """Starts it and waits until it answers."""
        for attempt in range(STARTS):
            assert self.process is None, "the broker runs"
            with open(self.folder / "broker.log", "wb") as log:
                command = self._java("kafka.Kafka", str(self.properties), heap=self.heap)
                self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
            try:
                self.wait_ready()
                break
            except AssertionError as failed:
                # A connection of another process has one of its ports for a moment.
                if "Address already in use" not in str(failed) or attempt == STARTS - 1:
                    raise
        return self

    def wait_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                break
            try:
                if self._answers():
                    return
            except (OSError, KafkaException):
                time.sleep(0.05)
        log = (self.folder / "broker.log").read_text(errors="replace")
        self.kill()
        raise AssertionError(f"the broker {self.version} did not become ready:\n{log[-4000:]}")

    def _answers(self) -> bool:
        is_broker = "broker" in self.roles
        port = self._plain if is_broker else self._controller
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
        return not is_broker or bool(self.admin().list_topics(timeout=5).brokers)

    def keep(self, end_with_run: Callable[[int], None]) -> "Broker":
        """Leaves its process to the run of tests; it is not this object's any more."""
        assert self.process is not None
        end_with_run(self.process.pid)
        self.process = None
        return self

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self._end(kill=False)

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        self._end(kill=True)

    def _end(self, kill: bool) -> None:
        if self.process is not None:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()
            self.process.wait(timeout=60)
            self.process = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def admin(self, settings: Mapping[str, Any] | None = None) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers, "logger": QUIET, **(settings or {})})

    def admin_groups(self) -> list[str]:
        """The names of all consumer groups."""
        admin = self.admin()
        return [group.group_id for group in admin.list_consumer_groups().result(timeout=30).valid]

    def create(self, topic: str, partitions: int = 1, replicas: Sequence[int] = (1,), **settings: str) -> str:
        """Creates a topic, waits until the first of its replicas leads it, and returns its name."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin = self.admin()
        new = NewTopic(topic, partitions, replica_assignment=[list(replicas)] * partitions, config=config)
        admin.create_topics([new])[topic].result(timeout=30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(found) == partitions and all(p.leader == replicas[0] for p in found.values()):
                return topic
            time.sleep(0.02)
        raise AssertionError(f"the topic {topic} has no leaders")

    def leader_and_in_sync(self, topic: str, partition: int = 0) -> tuple[int, list[int]]:
        """The leader of a partition, -1 for none, and its replicas in sync, as this broker knows them."""
        found = self.admin().list_topics(topic, timeout=10).topics[topic].partitions.get(partition)
        return (found.leader, sorted(found.isrs)) if found else (-1, [])

    def log_of(self, topic: str, partition: int = 0) -> Path:
        """The file with the messages of a partition."""
        return self.folder / "data" / f"{topic}-{partition}" / f"{0:020}.log"

    def lose_end(self, topic: str, bytes_kept: int) -> None:
        """Truncates the log of partition 0, as the election of a leader does that has less of it.

        The broker is stopped.
        """
        assert not self.is_running
        with open(self.log_of(topic), "r+b") as log:
            log.truncate(bytes_kept)
        for name in ("index", "timeindex", "snapshot"):
            for path in self.log_of(topic).parent.glob(f"*.{name}"):
                path.unlink()
        (self.folder / "data" / ".kafka_cleanshutdown").unlink(missing_ok=True)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(timeout=30)
        while topic in admin.list_topics(timeout=10).topics:
            time.sleep(0.02)


class Cluster:
    """Two brokers, and a controller as a process of its own, which no kill of a broker ends."""

    def __init__(self, folder: Path, version: str = VERSIONS[-1]) -> None:
        identity = new_identity()
        ports = free_ports(3 * PORTS)

        def node(number: int, role: str, **settings: str) -> Broker:
            settings = {"node.id": str(number), "process.roles": role, **settings}
            own = ports[(number - 1) * PORTS : number * PORTS]
            return Broker(folder / f"node-{number}", version, identity, own, heap="256m", **settings)

        self.controller = node(1, "controller")
        voters = {name: self.controller.settings[name] for name in ["controller.quorum.voters"]}
        self.brokers = [node(number, "broker", **voters) for number in (2, 3)]

    servers = property(lambda self: ",".join(broker.servers for broker in self.brokers))

    def start(self) -> "Cluster":
        """Starts all nodes, and waits until the brokers know each other."""
        nodes = [self.controller, *self.brokers]
        with ThreadPoolExecutor(len(nodes)) as starting:
            list(starting.map(Broker.start, nodes))
        deadline = time.monotonic() + READY_SECONDS
        while not all(self._all_are_known_to(broker) for broker in self.brokers):
            assert time.monotonic() < deadline, "the brokers do not know each other"
            time.sleep(0.05)
        return self

    def _all_are_known_to(self, broker: Broker) -> bool:
        return len(broker.admin().list_topics(timeout=10).brokers) == len(self.brokers)

    def kill(self) -> None:
        for node in (*self.brokers, self.controller):
            node.kill()


def _addresses(at: Mapping[str, int]) -> str:
    return ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in at.items())


class _Quiet:
    """Takes the logs of clients that wait for a broker."""

    def log(self, *_: object) -> None:
        pass


QUIET = _Quiet()


if __name__ == "__main__":
    for each in VERSIONS:
        install(each)
