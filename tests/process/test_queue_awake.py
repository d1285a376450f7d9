"""When the queue server sleeps: with nothing to do, and between the requests of slow clients; hardly ever
between those of a quick one. Measured by the voluntary context switches of its thread."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from queue_server import Line, QueueServer, Serve

REQUESTS = 300


def thread(server: QueueServer) -> Path:
    """The thread that serves, in /proc."""
    assert server.process is not None
    threads = Path(f"/proc/{server.process.pid}/task").iterdir()
    return next(each for each in threads if (each / "comm").read_text() == "queue-server\n")


def sleeps(server: QueueServer) -> int:
    status = (thread(server) / "status").read_text()
    return int(re.findall(r"\nvoluntary_ctxt_switches:\s+(\d+)", status)[0])


def sleeps_while_asked(server: QueueServer, line: Line, pause: float = 0.0) -> int:
    line.ask(b"version")
    before = sleeps(server)
    for _ in range(REQUESTS):
        line.ask(b"version")
        time.sleep(pause)
    return sleeps(server) - before


def waited_us(server: QueueServer) -> int:
    """How long the server's thread was ready to run and did not, since others had the cores."""
    return int((thread(server) / "schedstat").read_text().split()[1]) // 1000


def test_a_quick_client_finds_a_spinning_server(serve: Serve) -> None:
    server = serve("--sync=never", config='[limits]\nspin = "10s"\n')
    with server.connect() as line:
        for _ in range(60):
            if sleeps_while_asked(server, line) < REQUESTS / 10:
                return
            # Where others want the core, it sleeps, and for up to 4 s after that.
            assert waited_us(server) > 1000, "it slept, and nobody else wanted its core"
            time.sleep(1)
    pytest.skip("other programs kept the cores busy for a minute")


def test_a_server_that_is_not_to_spin_sleeps_between_quick_requests(serve: Serve) -> None:
    server = serve("--sync=never", config='[limits]\nspin = "0s"\n')
    with server.connect() as line:
        assert sleeps_while_asked(server, line) > REQUESTS / 2


def test_the_server_sleeps_between_quick_requests_where_others_want_the_cores(serve: Serve) -> None:
    """With a time to spin of 10 s it would never sleep between them otherwise."""
    server = serve("--sync=never", config='[limits]\nspin = "10s"\n')
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        with server.connect() as line:
            until = time.monotonic() + 120
            while sleeps_while_asked(server, line) < REQUESTS / 2:
                assert time.monotonic() < until, "it stays awake on busy cores"
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_the_server_sleeps_between_the_requests_of_a_slow_client(serve: Serve) -> None:
    server = serve("--sync=never", config='[limits]\nspin = "100us"\n')
    with server.connect() as line:
        assert sleeps_while_asked(server, line, pause=0.003) > REQUESTS / 2


def test_a_server_that_may_spin_sleeps_without_requests(serve: Serve) -> None:
    server = serve("--sync=never", config='[limits]\nspin = "50us"\n')
    with server.connect() as line, server.connect() as waiting:
        waiting.send(b"get q/t=60000\r\n")
        sleeps_while_asked(server, line)
        before = processor_ticks(server)
        time.sleep(2)
        # 200 ticks are 2 s of a core; the sweep of each second takes none.
        assert processor_ticks(server) - before < 20


def processor_ticks(server: QueueServer) -> int:
    assert server.process is not None
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
