"""The resources of a server: memory for all queues and connections together, file descriptors, a
burst of connects."""

import re
import socket
from pathlib import Path

from queue_server import QueueServer, Serve

MIB = 1 << 20


def test_memory_is_bounded_for_all_queues_together(serve: Serve) -> None:
    """Sixty queues with 4 MiB each, of which the server may hold 24 MiB."""
    server = serve("--sync=never", config=f"[limits]\nmemory_bytes = {32 * MIB}\n")
    item = bytes(MIB // 2)
    with server.connect() as line:
        for _ in range(8):
            for queue in range(60):
                assert line.set(f"q{queue}", item) == b"STORED"
        stats = line.stats()
        assert stats["limit_memory_items"] == str(24 * MIB)
        assert 20 * MIB < int(stats["memory_items"]) <= 24 * MIB
        assert int(stats["bytes"]) == 240 * MIB
        for queue in range(60):
            assert [line.get(f"q{queue}") for _ in range(9)] == [item] * 8 + [None]
        assert line.stats()["memory_items"] == "0"


def test_connections_that_half_send_large_items_share_a_limit(serve: Serve) -> None:
    server = serve("--sync=never", config=f"[limits]\nmemory_bytes = {16 * MIB}\n")
    half = b"set q 0 0 %d\r\n" % MIB + bytes(MIB - 1)
    lines = []
    with server.connect() as good:
        for _ in range(40):
            line = server.connect()
            lines.append(line)
            try:
                line.send(half)
            except ConnectionError:
                pass
            held = int(good.stats()["memory_buffers"])
            assert held <= 6 * MIB, held
        server.wait_for(
            "turned away: the buffers of all connections hold as much as limits.memory_bytes allows"
        )
        assert good.set("q", bytes(1000)) == b"STORED" and good.get("q") == bytes(1000)
        for line in lines:
            line.close()
        for _ in range(1000):
            if int(good.stats()["memory_buffers"]) < MIB:
                break
        assert good.set("q", bytes(MIB)) == b"STORED" and good.get("q") == bytes(MIB)


def start_with(server: QueueServer, limits: str) -> None:
    """Start a stopped server as a shell does that sets these limits first."""
    server.stop()
    server.command = ["bash", "-c", f'ulimit {limits} && exec "$@"', "bash", *server.command]
    server.start()


def test_the_soft_limit_on_files_is_raised(serve: Serve) -> None:
    server = serve("--sync=never")
    start_with(server, "-Sn 100")
    lines = [server.connect() for _ in range(300)]
    assert all(line.ask(b"mn") == b"MN" for line in lines)
    for line in lines:
        line.close()


def test_connections_leave_files_for_the_queues(serve: Serve) -> None:
    server = serve("--sync=never")
    start_with(server, "-n 160")
    server.wait_for("limits.connections = 1024, but the limit on open files leaves 96 now")
    lines = [server.connect() for _ in range(200)]
    answers = []
    for line in lines:
        try:
            answers.append(line.ask(b"mn"))
        except ConnectionError:
            answers.append(b"")
    assert answers[:90] == [b"MN"] * 90
    assert set(answers[96:]) <= {b"SERVER_ERROR too many open connections", b""}
    for queue in range(8):
        assert lines[0].set(f"q{queue}", b"x") == b"STORED"
    assert "cannot take a connection" not in server.log()
    for line in lines:
        line.close()


def test_all_of_more_queues_than_there_are_files_are_flushed(serve: Serve) -> None:
    server = serve("--sync=never")
    start_with(server, "-n 1024")
    with server.connect() as line:
        for queue in range(300):
            assert line.set(f"q{queue}", b"x") == b"STORED"
        assert line.ask(b"flush_all") == b"OK"
        assert line.stats()["curr_items"] == "0"


def test_a_burst_of_connects_waits_in_a_line_that_is_long_enough(serve: Serve, tmp_path: Path) -> None:
    """While the server is stopped, the system takes connections as far as the line is long."""
    import signal

    server = serve("--sync=never")
    longest = int(Path("/proc/sys/net/core/somaxconn").read_text())
    server.signal(signal.SIGSTOP)
    burst = [socket.socket() for _ in range(min(longest, 400))]
    try:
        for client in burst:
            client.settimeout(10)
            client.connect(("127.0.0.1", server.port))
    finally:
        server.signal(signal.SIGCONT)
    for client in burst:
        client.sendall(b"mn\r\n")
        assert client.recv(10) == b"MN\r\n"
        client.close()


def own_memory_bytes(server: QueueServer) -> int:
    """Without mapped files, which the system can evict."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


def test_the_process_keeps_within_its_limit_with_many_connections_queues_and_items(serve: Serve) -> None:
    """The limit, and what docs/memcache.md says that comes on top: 8 KiB a connection, 24 KiB a queue."""
    limits = f"[limits]\nmemory_bytes = {64 * MIB}\nconnections = 2000\n"
    server = serve("--sync=never", config=limits)
    lines = [server.connect() for _ in range(600)]
    good = lines[0]
    for _ in range(20):
        for queue in range(100):
            assert good.set(f"q{queue}", bytes(100_000)) == b"STORED"
    for line in lines[1:]:
        try:
            line.send(b"set half 0 0 1000000\r\n" + bytes(300_000))
        except ConnectionError:
            pass
    stats = good.stats()
    assert int(stats["bytes"]) == 200_000_000
    assert int(stats["memory_items"]) <= 48 * MIB and int(stats["memory_buffers"]) <= 17 * MIB
    extra = 600 * 8 * 1024 + 100 * 24 * 1024 + 12 * MIB
    assert own_memory_bytes(server) < 64 * MIB + extra
    for line in lines:
        line.close()
