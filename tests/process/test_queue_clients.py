"""Memcache clients of several languages against a real queue server: set, get, blocking get, reliable
reads, delete, stats.

Each sees the same scenes: items in order, an item that comes while it waits, an item that is opened,
aborted, opened again and comes back when the connection ends. The Go, Node and Java programs are in
`clients/`; what they need is installed below `target/clients`.
"""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import memcache
import pylibmc
import pymemcache
import pytest
from queue_server import Serve
from shared import Shared

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "clients"


Prepared = Callable[..., Path]


class Client(Protocol):
    """The common part of the Python clients; None is a miss."""

    def set(self, key: str, value: Any) -> Any: ...
    def get(self, key: str) -> Any: ...


def scenes(connect: Callable[[], Client], close: Callable[[Any], None], queue: str) -> Client:
    client = connect()
    other = connect()
    for item in ("first", "second"):
        assert client.set(queue, item)
    assert [client.get(queue) for _ in range(3)] == ["first", "second", None]

    late = threading.Timer(0.1, other.set, (queue, "late"))
    late.start()
    assert client.get(f"{queue}/t=8000") == "late"
    late.join()
    assert client.get(f"{queue}/t=20") is None

    assert client.set(queue, "reliable")
    assert client.get(f"{queue}/open") == "reliable"
    assert other.get(queue) is None
    assert client.get(f"{queue}/abort") is None
    assert client.get(f"{queue}/open") == "reliable"
    close(client)
    assert other.get(f"{queue}/t=8000/open") == "reliable"
    assert other.get(f"{queue}/close/open") is None
    return other


def test_pymemcache(serve: Serve) -> None:
    port = serve().port

    def connect() -> Any:
        return pymemcache.Client(
            ("127.0.0.1", port), serde=pymemcache.serde.pickle_serde, timeout=10, default_noreply=False
        )

    client: Any = scenes(connect, lambda client: client.close(), "py")
    client.set("py", {"a": [1, 2]})
    client.set("other", b"\r\nEND\r\n")
    assert client.get_many(["py", "nothing", "other"]) == {"py": {"a": [1, 2]}, "other": b"\r\nEND\r\n"}
    item, token = (client.set("py", b""), client.gets("py"))[1]
    assert item == b"" and token.isdigit()
    assert client.set("py", "quiet", noreply=True) and client.get("py") == "quiet"
    assert client.set("py", "counted")
    assert client.stats()[b"queue_py_items"] == 1
    assert client.add("py", "x") is False and client.incr("py", 1) is None
    assert client.delete("py") is True and client.delete("py") is False
    assert client.flush_all() and client.version().decode().split(".")[0].isdigit()
    for key in ("../evil", "py/opne"):
        with pytest.raises(pymemcache.exceptions.MemcacheClientError):
            client.set(key, "x")


def test_python_memcached(serve: Serve) -> None:
    port = serve().port

    def connect() -> Any:
        return memcache.Client([f"127.0.0.1:{port}"], socket_timeout=10)

    client: Any = scenes(connect, lambda client: client.disconnect_all(), "pm")
    # Its flags say how an item was encoded.
    for item in (5, 2.5, ["list"], b"bytes"):
        assert client.set("pm", item) and client.get("pm") == item
    assert client.set("pm", "counted")
    assert client.get_stats()[0][1]["queue_pm_items"] == "1"
    assert client.delete("pm") and client.get("pm") is None
    client.flush_all()


def test_pylibmc(serve: Serve) -> None:
    port = serve().port

    def connect() -> Any:
        # By default it abandons a wait after some seconds.
        return pylibmc.Client([f"127.0.0.1:{port}"], binary=False, behaviors={"receive_timeout": 10_000_000})

    client: Any = scenes(connect, lambda client: client.disconnect_all(), "libmc")
    for item in (5, 2.5, ["list"], b"bytes"):
        assert client.set("libmc", item) and client.get("libmc") == item
    assert client.set("libmc", "counted")
    # It keeps only the names that memcached has.
    assert client.get_stats()[0][1]["curr_items"] == b"1"
    assert client.delete("libmc") and not client.delete("libmc")
    assert client.flush_all()


def test_libmemcached_accepts_the_version(serve: Serve) -> None:
    """Three numbers, each at most 254. PHP takes a first number of 0 for an error."""
    with serve().connect() as line:
        word, version = line.ask(b"version").split(b" ")
        numbers = [int(number) for number in version.split(b".")]
        assert word == b"VERSION" and len(numbers) == 3
        assert all(number < 255 for number in numbers) and numbers[0] > 0
        stats = line.stats()
        assert stats["version"] == version.decode() and stats["millstream_version"]


def tool(name: str, package: str) -> str:
    """Where a program is. `tests/setup` installs what a Debian machine lacks."""
    path = shutil.which(name)
    assert path, f"{name} is missing: apt-get install {package}"
    return path


@pytest.fixture
def prepared(shared: Shared) -> Prepared:
    """A copy of a client's folder in which a command has been run, which may download what the client needs.

    It is run again when a file of the client has changed, and once more when a download has failed.
    """

    def prepared(language: str, *command: str) -> Path:
        folder = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "clients" / language
        sources = "".join(path.read_text() for path in sorted((SOURCES / language).iterdir()))
        ready = folder / "READY"

        def prepare(_: Path) -> Path:
            if not ready.exists() or ready.read_text() != sources:
                shutil.copytree(SOURCES / language, folder, dirs_exist_ok=True)
                if subprocess.run(command, cwd=folder, timeout=600).returncode != 0:
                    subprocess.run(command, cwd=folder, check=True, timeout=600)
                ready.write_text(sources)
            return folder

        return shared.once(f"client-{language}", prepare)

    return prepared


def scenes_in(folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_gomemcache(serve: Serve, prepared: Prepared) -> None:
    folder = prepared("go", tool("go", "golang-go"), "build", "-o", "queueclient", ".")
    scenes_in(folder, "./queueclient", str(serve().port))


def test_node_memcached(serve: Serve, prepared: Prepared) -> None:
    folder = prepared("node", tool("npm", "npm"), "ci", "--silent", "--no-audit", "--no-fund")
    scenes_in(folder, tool("node", "nodejs"), "client.js", str(serve().port))


@pytest.mark.parametrize("kind", ["spymemcached", "xmemcached", "kestrel"])
def test_java(kind: str, serve: Serve, prepared: Prepared) -> None:
    maven = tool("mvn", "maven")
    folder = prepared("java", maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib")
    port = serve(f"--compat={'kestrel' if kind == 'kestrel' else 'memcached'}").port
    scenes_in(
        folder, tool("java", "default-jdk-headless"), "-cp", "lib/*", "QueueClients.java", kind, str(port)
    )


# What memccapable tests and a queue can pass. The other tests want an item to be there still when it has
# been read, or numbers.
CAPABLE = """version, quit, verbosity, set, set noreply, get, gets, mget, flush, flush noreply, add noreply,
    replace noreply, cas noreply, delete, delete noreply, stat"""


@pytest.mark.parametrize("part", [" ".join(part.split()) for part in CAPABLE.split(",")])
def test_memccapable(part: str, serve: Serve) -> None:
    program = tool("memccapable", "libmemcached-tools")
    command = [program, "-a", "-h", "127.0.0.1", "-p", str(serve().port), "-T", f"ascii {part}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "[pass]" in done.stdout + done.stderr, done.stdout + done.stderr
