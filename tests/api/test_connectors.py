"""Real sockets and real files, from Python."""

import signal
import socket
import struct
import threading
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream import testing


class Pair(ms.Record, format=">IH", fields="key value"):
    pass


class Typed(ms.Record, format=">BH", fields="type value"):
    type = 2


def sends(data: bytes) -> Any:
    def on_bound(host: str, port: int) -> None:
        def send() -> None:
            with socket.create_connection((host, port)) as sock:
                sock.sendall(data)

        threading.Thread(target=send).start()

    return on_bound


def framed(*payloads: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(payload)) + payload for payload in payloads)


@pytest.mark.parametrize("workers", [1, 2])
def test_records_over_tcp_in_and_out(workers: int) -> None:
    receiver = socket.create_server(("127.0.0.1", 0))
    got: list[bytes] = []

    def receive() -> None:
        receiver.settimeout(20)
        for _ in range(workers):
            with receiver.accept()[0] as sock:
                while data := sock.recv(65536):
                    got.append(data)

    thread = threading.Thread(target=receive)
    thread.start()
    pairs = [Pair.pack(n % 3, n) for n in range(1000)]
    flow = ms.Flow("f")
    source = ms.tcp.listen(
        "127.0.0.1:0", connections=1, decode=Pair, on_bound=sends(framed(*map(bytes, pairs)))
    )
    keyed = flow.source("in", source).redistribute().key_by("key")
    kept = keyed.filter(lambda pair: pair.value % 2).values()
    kept.sink("out", ms.tcp.send_to(f"127.0.0.1:{receiver.getsockname()[1]}", framing="fixed:6"))
    ms.run(flow, workers=workers)
    thread.join(20)
    data = b"".join(got)
    read = [Pair.unpack(data[at : at + 6]) for at in range(0, len(data), 6)]
    assert sorted(map(bytes, read)) == sorted(bytes(pair) for pair in pairs if pair.value % 2)


def test_a_poison_message_is_skipped_with_its_offset(caplog: Any) -> None:
    data = framed(bytes(Pair.pack(1, 1)), b"short", bytes(Pair.pack(2, 2)))
    for on_error, expected in (("skip", [1, 2]), ("fail", None)):
        flow = ms.Flow("f")
        out = testing.collect()
        source = ms.tcp.listen("127.0.0.1:0", connections=1, decode=Pair, on_bound=sends(data))
        flow.source("in", source, on_error=on_error).map(lambda pair: pair.key).sink("out", out)  # type: ignore
        if expected is None:
            with pytest.raises(ms.StepError, match="frame of 5 bytes at offset 14.*Pair has 6 bytes, not 5"):
                ms.run(flow)
        else:
            ms.run(flow)
            assert out == expected and "offset 14" in caplog.text


def test_connections_beyond_the_limit_wait_for_their_turn() -> None:
    clients = []

    def on_bound(host: str, port: int) -> None:
        # All have connected and sent before the first is taken; the others wait for its end.
        for n in range(5):
            client = socket.create_connection((host, port))
            client.sendall(framed(b"%d" % n))
            clients.append(client)
        clients.pop(0).close()

    def close_next(item: str) -> None:
        if clients:
            clients.pop(0).close()

    flow = ms.Flow("f")
    out = testing.collect()
    source = ms.tcp.listen("127.0.0.1:0", connections=5, max_connections=1, decode=str, on_bound=on_bound)
    flow.source("in", source).inspect(close_next).sink("out", out)
    ms.run(flow)
    assert out == ["0", "1", "2", "3", "4"]


def test_a_wrong_constant_is_a_poison_message_for_each_policy(caplog: Any) -> None:
    good = [Typed.pack(value) for value in (1, 2)]
    data = framed(bytes(good[0]), b"\1\0\7", bytes(good[1]))
    says = r"frame of 3 bytes at offset 11.*Typed.type is 2, not 1"

    def run(on_error: Any) -> tuple[list[Any], dict[str, Any]]:
        flow = ms.Flow("f")
        out = testing.collect()
        source = ms.tcp.listen("127.0.0.1:0", connections=1, decode=Typed, on_bound=sends(data))
        flow.source("in", source, on_error=on_error).sink("out", out)
        report = ms.run(flow)
        return out, report.step("in.decode")

    with pytest.raises(ms.StepError, match=says):
        run("fail")
    out, step = run("skip")
    assert out == good and step["skipped"] == 1
    assert "at offset 11" in caplog.text
    letters = testing.collect()
    out, step = run(ms.dead_letter(letters))
    assert out == good and step["skipped"] == 1 and [letter.item for letter in letters] == [b"\1\0\7"]


def test_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\nbb\nä")
    flow = ms.Flow("f")
    flow.source("in", ms.files.lines(tmp_path / "in")).map(len).sink("out", ms.files.write(tmp_path / "out"))
    ms.run(flow)
    assert (tmp_path / "out").read_text() == "1\n2\n1\n"


def test_a_sink_names_the_item_it_cannot_take() -> None:
    flow = ms.Flow("f")
    server = socket.create_server(("127.0.0.1", 0))
    numbers = flow.source("in", testing.items([1]))
    numbers.sink("out", ms.tcp.send_to(f"127.0.0.1:{server.getsockname()[1]}"))  # type: ignore[arg-type]
    with pytest.raises(ms.StepError, match='step "out", item 1: TypeError: the sink takes bytes'):
        ms.run(flow)
    server.close()


def test_what_cannot_be_opened_is_an_os_error(tmp_path: Path) -> None:
    flow = ms.Flow("f")
    flow.source("in", ms.files.lines(tmp_path / "none")).sink("out", testing.discard())
    with pytest.raises(FileNotFoundError, match="none"):
        ms.run(flow)
    with socket.create_server(("127.0.0.1", 0)) as server:
        flow = ms.Flow("f")
        source = ms.tcp.listen(f"127.0.0.1:{server.getsockname()[1]}")
        flow.source("in", source).sink("out", testing.discard())
        with pytest.raises(OSError, match='source "in" .tcp listen'):
            ms.run(flow)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains(number: int) -> None:
    before = signal.getsignal(number)
    flow = ms.Flow("f")
    out = testing.collect()
    script = [1, 2, testing.pause(60), 3]
    flow.source("in", testing.items(script)).sink("out", out)
    timer = threading.Timer(0.3, signal.raise_signal, [number])
    timer.start()
    ms.run(flow)
    timer.join()
    assert out == [1, 2] and signal.getsignal(number) is before
