"""A queue server from its start to its end: limits, time-outs, signals, damage, and what keeps it from
starting."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from queue_ledger import until
from queue_server import QueueServer, Serve
from queue_traffic import check

TRAFFIC = Path(__file__).with_name("queue_traffic.py")
SEED = int(os.environ.get("MILLSTREAM_SEED", random.SystemRandom().randrange(1 << 32)))

# What a server says on standard error when it cannot start: one line.
Run = Callable[..., subprocess.CompletedProcess[str]]


# Limits and time-outs.


def test_connections_over_the_limit_get_an_error(serve: Serve) -> None:
    server = serve(config="[limits]\nconnections = 3")
    lines = [server.connect() for _ in range(3)]
    assert all(line.ask(b"version").startswith(b"VERSION") for line in lines)
    with server.connect() as refused:
        assert refused.read() == b"SERVER_ERROR too many open connections" and refused.read() == b""
    lines.pop().close()
    until_it_is_served(server)
    assert all(line.ask(b"version").startswith(b"VERSION") for line in lines)


def until_it_is_served(server: QueueServer) -> None:
    """The server may need a moment to notice that a connection has ended."""
    for _ in range(1000):
        with server.connect() as line:
            line.send(b"version\r\n")
            if line.file.readline().startswith(b"VERSION"):
                return
        time.sleep(0.01)
    raise AssertionError("the place of a connection that ended is not given to another")


TIMES = '[limits]\nrequest_timeout = "1s"\nidle_timeout = "1s"\noutput_bytes = 4096\n'


@pytest.mark.parametrize(
    "sent",
    [b"", b"set q 0 0 100\r\nhalf", b"get ", b"set q 0 0 9999999\r\nto be dropped"],
    ids=["idle", "half a block", "half a line", "half of what is refused"],
)
def test_a_client_that_exceeds_its_time_is_closed(sent: bytes, serve: Serve) -> None:
    server = serve("--sync=never", config=TIMES)
    with server.connect() as line:
        line.send(sent)
        assert line.file.read() in (b"", b"SERVER_ERROR object too large for cache\r\n")
    with server.connect() as line:
        assert line.get("q") is None


def test_a_client_that_continues_is_not_slow_though_every_write_ends_inside_a_request(serve: Serve) -> None:
    server = serve("--sync=never", config=TIMES)
    with server.connect() as line:
        line.send(b"set q 0 0 2\r\n")
        for _ in range(15):
            line.send(b"hi\r\nset q 0 0 2\r\n")
            assert line.read() == b"STORED"
            time.sleep(0.2)


def test_a_client_that_waits_for_an_item_is_not_idle(serve: Serve) -> None:
    server = serve("--sync=never", config=TIMES)
    with server.connect() as waiting, server.connect() as other:
        waiting.send(b"get q/t=20000\r\n")
        assert other.file.read() == b""  # two sweeps at least have passed when this one is closed as idle
        with server.connect() as line:
            line.set("q", b"late")
        assert waiting.value(waiting.read()) == b"late"


def test_a_connection_with_an_open_item_is_not_idle(serve: Serve) -> None:
    server = serve("--sync=never", config=TIMES)
    with server.connect() as worker, server.connect() as other:
        assert worker.set("q", b"long work") == b"STORED"
        assert worker.get("q/open") == b"long work"
        for _ in range(2):
            with server.connect() as idle:
                assert idle.file.read() == b""
        assert other.file.read() == b""
        assert worker.ask(b"get q/close") == b"END"
        assert worker.file.read() == b""


def test_a_connection_whose_open_item_was_returned_is_idle(serve: Serve) -> None:
    server = serve("--sync=never", config=TIMES + '[defaults]\nopen_timeout = "100ms"')
    with server.connect() as worker:
        assert worker.set("q", b"long work") == b"STORED"
        assert worker.get("q/open") == b"long work"
        assert worker.file.read() == b""


def test_a_client_whose_machine_vanishes_is_found_out(serve: Serve) -> None:
    """The system asks the client's machine whether it is there; the queue's guide has the time."""
    server = serve("--sync=never", config='[limits]\nkeepalive = "9s"')
    with server.connect() as line:
        assert line.get("q") is None
        port = f":{server.port:04X}"
        rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        # Timer 2 is that of keepalive; its time is in hundredths of a second.
        timers = [row[5] for row in rows if row[1].endswith(port) and row[3] == "01"]
        assert len(timers) == 1 and timers[0].startswith("02:"), timers
        assert 0 < int(timers[0][3:], 16) <= 300


def test_silent_connections_keep_no_client_with_a_password_out(serve: Serve, tmp_path: Path) -> None:
    known = tmp_path / "names"
    known.write_text("ann:secret\n")
    known.chmod(0o600)
    server = serve("--auth-file", str(known), config="[limits]\nconnections = 5")
    silent = [server.connect() for _ in range(5)]
    for line in silent:
        assert line.ask(b"get q") == b"CLIENT_ERROR unauthenticated"
    inside = [server.connect() for _ in range(4)]
    for line in inside:
        line.send(b"set auth 0 0 10\r\nann secret\r\n")
        assert line.read() == b"STORED"
    # The oldest of them had to go.
    assert silent[0].file.read() == b""
    for line in inside:
        assert line.get("q") is None
    for line in [*silent, *inside]:
        line.close()


def test_a_client_that_does_not_authenticate_in_time_is_closed(serve: Serve, tmp_path: Path) -> None:
    known = tmp_path / "names"
    known.write_text("ann:secret\n")
    known.chmod(0o600)
    server = serve("--auth-file", str(known), config='[limits]\nauth_timeout = "1s"')
    with server.connect() as silent, server.connect() as line:
        line.send(b"set auth 0 0 10\r\nann secret\r\n")
        assert line.read() == b"STORED"
        assert silent.file.read() == b""
        assert line.get("q") is None


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_a_server_without_passwords_opens_to_other_machines_only_by_an_option(
    address: str, run: Run, tmp_path: Path, millstream_bin: Path
) -> None:
    command = ["queue", "serve", "--dir", str(tmp_path / "queues"), f"--listen={address}"]
    refused = run(*command)
    assert refused.returncode == 2
    assert "is open to other machines" in refused.stderr
    assert "--auth-file" in refused.stderr and "--no-auth" in refused.stderr
    assert not (tmp_path / "queues").exists()
    with subprocess.Popen(
        [millstream_bin, *command, "--no-auth"], stderr=subprocess.PIPE, text=True
    ) as served:
        assert served.stderr is not None
        assert any("listening on" in line for line in iter(served.stderr.readline, ""))
        served.terminate()
    assert served.returncode == 0


def test_a_client_that_reads_no_answer_is_closed(serve: Serve) -> None:
    server = serve("--sync=never", "--verbose", config=TIMES)
    with server.connect() as line:
        assert line.set("q", bytes(100_000)) == b"STORED"
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                line.send(b"get q/peek\r\n" * 1000)
    server.wait_for("used up its time")
    with server.connect() as line:
        assert line.get("q") == bytes(100_000)


@pytest.mark.parametrize(
    ("settings", "full"),
    [
        ("max_items = 2", [b"1", b"2"]),
        ("max_bytes = 2", [b"1", b"2"]),
        ("max_items = 2\ndiscard_old = true", [b"2", b"3"]),
    ],
)
def test_a_full_queue_refuses_or_drops(settings: str, full: list[bytes], serve: Serve) -> None:
    server = serve("--sync=never", config=f"[queue.q]\n{settings}\n")
    with server.connect() as line:
        answers = [line.set("q", item) for item in (b"1", b"2", b"3")]
        assert answers == [b"STORED", b"STORED", b"NOT_STORED" if full[0] == b"1" else b"STORED"]
        assert [line.get("q"), line.get("q"), line.get("q")] == [*full, None]


# Signals.


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_nothing(number: signal.Signals, serve: Serve, tmp_path: Path) -> None:
    """It ends with code 0 within its 5 seconds, whatever its clients do: half a request, a wait, no read."""
    print(f"MILLSTREAM_SEED={SEED}")
    server = serve("--sync=10ms")
    half, waiting, mute, opener = (server.connect() for _ in range(4))
    half.send(b"set work 0 0 100\r\nhalf")
    waiting.send(b"get nothing/t=60000\r\n")
    mute.set("large", bytes(500_000))
    mute.send(b"get large/peek\r\n" * 100)
    opener.set("opened", b"once")
    assert opener.get("opened/open") == b"once"
    log = tmp_path / "acknowledged"
    command = [sys.executable, "-I", str(TRAFFIC), "produce", str(server.port), "work", str(log), "p"]
    producers = [subprocess.Popen([*command[:-1], f"p{n}"], stderr=subprocess.PIPE) for n in range(3)]
    until(lambda: log.exists() and log.stat().st_size > 0, "an acknowledgement")
    time.sleep(random.Random(SEED).random() / 2)
    server.signal(number)
    assert server.wait(timeout=5) == 0
    for producer in producers:
        producer.kill()
        producer.communicate()
    assert waiting.read() == b"END"
    server.start()
    with server.connect() as line:
        there = set()
        while (item := line.get("work")) is not None:
            there.add(check(item))
        assert line.get("opened") == b"once"
    acknowledged = log.read_text().splitlines()
    print(json.dumps({"promise": 15, "acknowledged": len(acknowledged), "seed": SEED}))
    assert acknowledged and set(acknowledged) <= there


def test_sighup_reads_the_configuration_again(serve: Serve) -> None:
    server = serve("--sync=never", config="[queue.q]\nmax_items = 1\n")
    with server.connect() as line:
        assert [line.set("q", b"x") for _ in range(2)] == [b"STORED", b"NOT_STORED"]
        server.config.write_text("[queue.q]\nmax_items = 2\n")
        server.signal(signal.SIGHUP)
        server.wait_for("configuration read")
        assert [line.set("q", b"x") for _ in range(2)] == [b"STORED", b"NOT_STORED"]
        server.config.write_text("[queue.q]\nmax_itmes = 3\n")
        server.signal(signal.SIGHUP)
        said = server.wait_for("the old configuration holds: (.*)")
        assert "line 2" in said[1] and "max_itmes" in said[1]
        assert line.set("q", b"x") == b"NOT_STORED"


def test_siberites_consumer_groups_are_warned_of_once(serve: Serve) -> None:
    server = serve("--sync=never")
    with server.connect() as line:
        assert line.get("a.b") is None
        assert line.set("work", b"x") == b"STORED"
        assert line.get("work.cg") is None and line.get("work.other") is None
    said = server.log()
    assert said.count("Siberite") == 1 and 'read "work+cg" for copies' in said


# Damage.


def damage(folder: Path, queue: str, item: bytes) -> Path:
    """Changes one byte of an item in its file."""
    for path in sorted((folder / queue).iterdir()):
        data = path.read_bytes() if path.is_file() else b""
        if item in data:
            with path.open("r+b") as file:
                file.seek(data.index(item) + 3)
                file.write(bytes([data[data.index(item) + 3] ^ 1]))
            return path
    raise AssertionError(f"no file has {item!r}")


def test_a_damaged_queue_stays_closed_and_the_others_open(serve: Serve) -> None:
    server = serve("--sync=always")
    with server.connect() as line:
        for queue in ("good", "bad"):
            for number in range(5):
                assert line.set(queue, b"item-%d" % number) == b"STORED"
    server.stop()
    path = damage(server.folder, "bad", b"item-2")
    before = path.read_bytes()
    server.start()
    said = server.wait_for('queue "bad" stays closed: (.*)')
    assert path.name in said[1] and "offset" in said[1], said[1]
    with server.connect() as line:
        assert [line.get("good") for _ in range(6)] == [b"item-%d" % n for n in range(5)] + [None]
        assert line.stats()["queue_bad_closed"] == "1"
        for request in (b"get bad", b"get bad/t=10", b"set bad 0 0 1\r\nx", b"flush bad"):
            answer = line.ask(request)
            assert answer.startswith(b"SERVER_ERROR ") and b"bad" in answer, (request, answer)
    assert server.stop() == 0
    assert path.read_bytes() == before


def test_a_torn_tail_is_cut_and_what_follows_is_kept(serve: Serve) -> None:
    """Without its control page a journal is as after a loss of power: its durable end is unknown."""
    server = serve("--sync=never")
    with server.connect() as line:
        for number in range(5):
            assert line.set("q", b"item-%d" % number) == b"STORED"
    server.kill()
    damage(server.folder, "q", b"item-4")
    (server.folder / "q" / "control").unlink()
    server.start()
    with server.connect() as line:
        assert line.set("q", b"after") == b"STORED"
    server.kill()
    server.start()
    with server.connect() as line:
        assert [line.get("q") for _ in range(6)] == [b"item-%d" % n for n in range(4)] + [b"after", None]


# What keeps it from starting.


def test_a_second_server_in_the_same_folder_does_not_start(serve: Serve, run: Run) -> None:
    server = serve()
    with server.connect() as line:
        line.set("q", b"x")
    second = run("queue", "serve", "--dir", server.folder, "--listen", "127.0.0.1:0", timeout=10)
    assert second.returncode == 1 and len(second.stderr.splitlines()) == 1, second.stderr
    assert str(server.folder) in second.stderr


def test_an_address_in_use_is_named(serve: Serve, run: Run, tmp_path: Path) -> None:
    address = f"127.0.0.1:{serve().port}"
    done = run("queue", "serve", "--dir", tmp_path / "other", "--listen", address, timeout=10)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert address in done.stderr


def test_a_mistake_in_the_configuration_is_named(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "queues.toml"
    config.write_text("[defaults]\nsync = 'perhaps'\n")
    done = run("queue", "serve", "--dir", tmp_path / "q", "--config", config, timeout=10)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "queues.toml" in done.stderr and "line 2" in done.stderr
