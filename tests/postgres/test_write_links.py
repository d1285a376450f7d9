"""Links that are cut or stalled, forwarders that wake up too late, copies of state directories, signals."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg
import pytest
from flow_traffic import PATIENCE
from postgres_server import Database
from servers import pause
from soak import in_turns
from tcp_link import Link
from writing import RETRY, Writing

# Other tests run flows with other databases of the same server.
SESSIONS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'millstream %'"
PATIENT = RETRY + ", 'timeout': 3600"


def through(writing: Writing, link: Link) -> None:
    """The flow connects through the link, and the test does not."""
    writing.dsn = writing.database.server.dsn(writing.database.name, port=link.port)


def stop(running: subprocess.Popen[str], sent: signal.Signals = signal.SIGINT) -> str:
    running.send_signal(sent)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0, errors
    assert "Traceback" not in errors and "panicked" not in errors, errors
    return errors


def test_a_link_that_is_cut(tmp_path: Path, database: Database, link: Link) -> None:
    writing = Writing(tmp_path, database)
    through(writing, link)
    running = writing.start()
    for after in (100, 3000, 20_000, 50_001):
        writing.wait_for_rows(running)
        link.cut_after = link.passed + after
    writing.wait_for_rows(running)
    link.refuses = True
    link.cut()
    time.sleep(0.3)
    link.refuses = False
    writing.wait_for_rows(running)
    stop(running)
    writing.complete()


def test_a_link_that_is_stalled(tmp_path: Path, database: Database, link: Link) -> None:
    """The transaction on the server holds the row of progress until the flow connects anew."""
    writing = Writing(tmp_path, database, more=RETRY + ", 'timeout': 0.5")
    through(writing, link)
    running = writing.start()
    writing.wait_for_rows(running)
    link.stall()
    time.sleep(1.2)
    link.resume()
    writing.wait_for_rows(running)
    assert "has not ended within 0.5 s" in stop(running)
    writing.complete()


def test_a_transaction_that_a_lock_delays(tmp_path: Path, database: Database) -> None:
    """The server continues a transaction that the flow has given up; the next connection ends it."""
    writing = Writing(tmp_path, database, more=RETRY + ", 'timeout': 0.5")
    running = writing.start()
    writing.wait_for_rows(running)
    with psycopg.connect(database.dsn) as other:
        other.execute("LOCK TABLE numbers IN SHARE MODE")
        time.sleep(2)
        assert database.rows(f"SELECT count(*) {SESSIONS}")[0][0] <= 2
    writing.wait_for_rows(running)
    stop(running)
    writing.complete()


def test_a_forwarder_that_wakes_up_too_late(tmp_path: Path, database: Database) -> None:
    writing = Writing(tmp_path, database)
    asleep = writing.start()
    writing.wait_for_rows(asleep)
    pause(asleep)
    # Its open transaction would hold the row; a machine that is lost holds it until the server notices.
    database.execute(f"SELECT pg_terminate_backend(pid) {SESSIONS}")
    original = writing.state, writing.expected
    writing.state = tmp_path / "copy"
    writing.expected = tmp_path / "expected copy"
    shutil.copytree(original[0], writing.state)
    shutil.copyfile(original[1], writing.expected)
    running = writing.start()
    writing.wait_for_rows(running)
    stop(running)
    writing.complete()
    before = writing.length()
    asleep.send_signal(signal.SIGCONT)
    _, errors = asleep.communicate(timeout=PATIENCE)
    assert asleep.returncode == 1, errors
    assert "copy" in errors and 'step "table"' in errors, errors
    assert "Traceback (most" not in errors, errors
    assert writing.length() == before
    writing.judge()


def test_a_forwarder_whose_connection_survives_its_sleep(tmp_path: Path, database: Database) -> None:
    """Between two transactions the row is free: the position in it stops the late one."""
    writing = Writing(tmp_path, database)
    asleep = writing.start()
    writing.wait_for_rows(asleep)
    idle = f"SELECT bool_and(state = 'idle') {SESSIONS}"
    until = time.monotonic() + PATIENCE
    while True:
        pause(asleep)
        if database.rows(idle) == [(True,)]:
            break
        asleep.send_signal(signal.SIGCONT)
        assert time.monotonic() < until, "it is always in a transaction"
        time.sleep(0.01)
    writing.state = tmp_path / "copy"
    writing.expected = tmp_path / "expected copy"
    shutil.copytree(tmp_path / "state", writing.state)
    shutil.copyfile(tmp_path / "expected", writing.expected)
    running = writing.start()
    writing.wait_for_rows(running)
    stop(running)
    writing.complete()
    before = writing.length()
    asleep.send_signal(signal.SIGCONT)
    _, errors = asleep.communicate(timeout=PATIENCE)
    assert asleep.returncode == 1, errors
    assert "another process delivers the same outbox" in errors, errors
    assert writing.length() == before
    writing.judge()


def test_an_older_copy_of_a_state_directory(tmp_path: Path, database: Database) -> None:
    writing = Writing(tmp_path, database)
    running = writing.start()
    writing.wait_for_rows(running)
    stop(running)
    shutil.copytree(writing.state, tmp_path / "copy")
    shutil.copyfile(writing.expected, tmp_path / "expected copy")
    running = writing.start()
    writing.wait_for_rows(running)
    stop(running)
    writing.complete()
    before = writing.length()
    writing.state = tmp_path / "copy"
    writing.expected = tmp_path / "expected copy"
    _, errors = writing.start().communicate(timeout=PATIENCE)
    assert "copy of the state directory" in errors, errors
    assert writing.length() == before


SITUATIONS = ("delivers", "stalled", "refuses connections", "waits for a lock")


@pytest.mark.parametrize(("situation", "sent"), in_turns(SITUATIONS, [signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_the_run(
    tmp_path: Path, database: Database, link: Link, situation: str, sent: signal.Signals
) -> None:
    writing = Writing(tmp_path, database, more=PATIENT)
    through(writing, link)
    running = writing.start()
    writing.wait_for_rows(running)
    if situation == "stalled":
        link.stall()
    elif situation == "refuses connections":
        link.refuses = True
        link.cut()
    with psycopg.connect(database.dsn) as other:
        if situation == "waits for a lock":
            other.execute("LOCK TABLE numbers IN SHARE MODE")
        time.sleep(0.5)
        stop(running, sent)
    link.refuses = False
    link.resume()
    link.cut()
    writing.complete()
