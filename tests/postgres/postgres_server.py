"""A PostgreSQL server for tests: a cluster in a temporary directory, which may be killed and restarted."""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from servers import free_port

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import LiteralString

LIBC = ctypes.CDLL(None)
PATIENCE = 60.0
"""Seconds after which a server that does not answer has failed."""
PASSWORD = "secret"
SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "100",
    "max_wal_senders": "100",
    "max_connections": "200",
    "shared_buffers": "32MB",
    # The processes are killed, and the machine is not: what they wrote is there without a sync.
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "log_min_messages": "warning",
}


def find_program(name: str) -> str:
    """The path of a program of PostgreSQL; an error that names the remedy where it is missing."""
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
    path = str(versions[-1]) if versions else shutil.which(name)
    assert path, f"{name} is missing: apt-get install postgresql"
    return path


def account() -> str | None:
    """The user that runs the server: it refuses root. None: the current user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Server:
    """One cluster, on a free port of 127.0.0.1.

    Args:
        settings: settings of the server, in addition to ``SETTINGS``.
    """

    def __init__(self, **settings: str) -> None:
        # The directories of pytest are those of its user alone.
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-postgres-", dir="/tmp"))
        self.data = self.folder / "data"
        self.log = self.folder / "server.log"
        self.settings = SETTINGS | settings
        self.process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.databases = itertools.count()
        self.ends_with: Callable[[], None] | None = end_with_parent
        user = account()
        self.rights: dict[str, Any] = {}
        if user is not None:
            entry = pwd.getpwnam(user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            self.rights = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        self.initialize()

    def initialize(self) -> None:
        password = self.folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        initdb = [find_program("initdb"), "-D", str(self.data), "-U", "postgres", f"--pwfile={password}"]
        initdb += ["--auth=scram-sha-256", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"]
        made = subprocess.run(initdb, capture_output=True, text=True, cwd=self.folder, **self.rights)
        assert made.returncode == 0, made.stderr

    def start(self) -> None:
        """Starts it, on the port that it had before, and waits until it answers."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.port = self.port or free_port()
            options = [part for name, value in self.settings.items() for part in ("-c", f"{name}={value}")]
            command = [find_program("postgres"), "-D", str(self.data), "-p", str(self.port), *options]
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    preexec_fn=self.ends_with,
                    **self.rights,
                )
            while self.process.poll() is None and time.monotonic() < until:
                if self.answers():
                    return
                time.sleep(0.05)
            # Processes of a killed server are not gone yet, or another process has taken the port.
            time.sleep(0.1)
        raise AssertionError(f"the server does not start:\n{self.log.read_text()[-3000:]}")

    def keep(self, end_with_run: Callable[[int, signal.Signals, Path], None]) -> Server:
        """Starts it for the run of tests; its process is not this object's any more."""
        self.ends_with = None
        self.start()
        assert self.process is not None
        end_with_run(self.process.pid, signal.SIGQUIT, self.folder)
        self.process = None
        return self

    def answers(self) -> bool:
        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def kill(self) -> None:
        """Kills the server as ``kill -9`` does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Stops the server without waiting for its clients."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def dsn(self, database: str, port: int | None = None, password: str = PASSWORD) -> str:
        where = f"host=127.0.0.1 port={port or self.port} dbname={database}"
        return f"{where} user=postgres password={password}"

    def create_database(self, encoding: str = "UTF8") -> Database:
        """Creates an empty database in an encoding."""
        name = f"test_{os.getpid()}_{next(self.databases)}"
        with psycopg.connect(self.dsn("postgres"), autocommit=True) as connection:
            create = sql.SQL("CREATE DATABASE {} TEMPLATE template0 ENCODING {}{}")
            locale = sql.SQL("" if encoding == "UTF8" else " LOCALE 'C'")
            connection.execute(create.format(sql.Identifier(name), sql.Literal(encoding), locale))
        return Database(self, name, encoding)


class Database:
    """A database with a connection per call, so that it can judge a server that was killed in between."""

    def __init__(self, server: Server, name: str, encoding: str = "UTF8") -> None:
        self.server = server
        self.name = name
        self.encoding = encoding

    @property
    def dsn(self) -> str:
        dsn = self.server.dsn(self.name)
        # The judge reads catalogs as text.
        return dsn if self.encoding == "UTF8" else f"{dsn} client_encoding=UTF8"

    def execute(self, statement: LiteralString, *values: object) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement, values or None)

    def rows(self, query: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(query, values or None).fetchall()

    def drop(self) -> None:
        """Drops the database with the slots in it: a server has few."""
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                    "WHERE database = current_database()"
                )
                break
            except psycopg.errors.ObjectInUse:
                assert time.monotonic() < until, "a slot stays in use"
                time.sleep(0.05)
        with psycopg.connect(self.server.dsn("postgres"), autocommit=True) as connection:
            drop = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name))
            connection.execute(drop)


def end_with_parent() -> None:
    """Has the kernel stop this process when the tests are killed."""
    set_parent_death_signal = 1
    LIBC.prctl(set_parent_death_signal, signal.SIGQUIT)
