"""A Kafka broker for tests: one node, which is its own controller, on free ports.

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

import fcntl
import os
import re
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "millstream-tests"
# The newest of the last series with another controller, and the newest.
VERSIONS = ("3.9.2", "4.4.0")
USER, PASSWORD = "alice", "wonder"
# Users need rights; the clients of the plain listeners have all.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
READY_SECONDS = 60
STARTS = 5


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


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def free_ports(count: int) -> list[int]:
    """Ports that differ: each is held until all are chosen."""
    with ExitStack() as held:
        chosen = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in chosen:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in chosen]


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
        key, chain = folder / "broker.key", (folder / "broker.crt").read_text()
        self.key_store.write_text(key.read_text() + chain + self.certificate.read_text())

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


class Broker:
    """A broker that keeps its data in `folder`, and can be killed and started again."""

    def __init__(self, folder: Path, version: str = VERSIONS[-1], **settings: str) -> None:
        self.folder, self.version = folder, version
        self.libs = install(version)
        self.authority = Authority(folder / "tls")
        ports = free_ports(7)
        self._plain, self._controller, self._tls, self._scram, self._inner, self._proxy, self._oauth = ports
        self.process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir(parents=True, exist_ok=True)
        self.properties = folder / "server.properties"
        lines = {**self._settings(), **settings}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
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

    def _settings(self) -> dict[str, str]:
        at = {
            "PLAIN": self._plain,
            "CONTROLLER": self._controller,
            "TLS": self._tls,
            "SCRAM": self._scram,
            "PROXIED": self._inner,
            "OAUTH": self._oauth,
        }
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in at.items())
        advertised = {**at, "PROXIED": self._proxy}
        del advertised["CONTROLLER"]
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
            "listeners": listeners,
            "advertised.listeners": ",".join(f"{n}://127.0.0.1:{p}" for n, p in advertised.items()),
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
        formatted, data = self.libs.parent / f"formatted-{USER}-{PASSWORD}", self.folder / "data"
        with locked(self.libs.parent):
            if not formatted.exists():
                self._storage_tool_formats()
                new = formatted.with_suffix(".new")
                shutil.rmtree(new, ignore_errors=True)
                shutil.copytree(data, new)
                new.rename(formatted)
        shutil.copytree(formatted, data, dirs_exist_ok=True)
        identity, meta = uuid.uuid4().hex[:22], data / "meta.properties"
        meta.write_text(re.sub("(?m)^cluster.id=.*$", f"cluster.id={identity}", meta.read_text()))

    def _storage_tool_formats(self) -> None:
        user = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"
        options = [
            "--cluster-id",
            uuid.uuid4().hex[:22],
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
                command = self._java("kafka.Kafka", str(self.properties))
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
                socket.create_connection(("127.0.0.1", self._plain), timeout=1).close()
                if self.admin().list_topics(timeout=5).brokers:
                    return
            except (OSError, KafkaException):
                time.sleep(0.05)
        log = (self.folder / "broker.log").read_text(errors="replace")
        self.kill()
        raise AssertionError(f"the broker {self.version} did not become ready:\n{log[-4000:]}")

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

    def create(self, topic: str, partitions: int = 1, **settings: str) -> str:
        """Creates a topic, waits until it has leaders, and returns its name."""
        config = {name.replace("_", "."): value for name, value in settings.items()}
        admin = self.admin()
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new])[topic].result(timeout=30)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            found = admin.list_topics(topic, timeout=10).topics[topic].partitions
            if len(found) == partitions and all(p.leader == 1 for p in found.values()):
                return topic
            time.sleep(0.02)
        raise AssertionError(f"the topic {topic} has no leaders")

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


class _Quiet:
    """Takes the logs of clients that wait for a broker."""

    def log(self, *_: object) -> None:
        pass


QUIET = _Quiet()


if __name__ == "__main__":
    for each in VERSIONS:
        install(each)
