"""What a server may take of the machine: memory for all queues and connections together, file descriptors, a
burst of connects."""

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
