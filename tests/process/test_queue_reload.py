"""`reload` and SIGHUP read everything again that can change while a server runs: configuration, passwords,
certificates. The answer states the result."""

import signal
import socket
import ssl
from pathlib import Path

from queue_server import Line, QueueServer, Serve
from test_queue_access import certificate_and_key
from test_queue_jobs import until


def limits(**settings: int | str) -> str:
    lines = [f"{name} = {value!r}" for name, value in settings.items()]
    return "\n".join(["[limits]", *lines, ""])


def reload(line: Line) -> bytes:
    return line.ask(b"reload")


def test_limits_hold_for_connections_that_are_there_and_for_new_ones(serve: Serve) -> None:
    server = serve("--sync=never", config=limits(item_bytes=1000, connections=2))
    with server.connect() as old:
        assert old.set("q", bytes(1000)) == b"STORED"
        server.config.write_text(limits(item_bytes=10, line_bytes=100, connections=3, queues=2))
        assert reload(old) == b"OK"
        assert old.set("q", bytes(11)) == b"SERVER_ERROR object too large for cache"
        assert old.set("q", bytes(10)) == b"STORED"
        assert old.ask(b"get " + b"q " * 60) == b"CLIENT_ERROR line too long"
        assert old.set("second", b"x") == b"STORED"
        assert old.set("third", b"x") == b"SERVER_ERROR there are 2 queues already, the limit"
        with server.connect() as second, server.connect() as third, server.connect() as fourth:
            assert second.ask(b"mn") == third.ask(b"mn") == b"MN"
            assert second.set("q", bytes(11)) == b"SERVER_ERROR object too large for cache"
            assert fourth.read() == b"SERVER_ERROR too many open connections"


def test_an_address_has_so_many_connections_and_others_have_theirs(serve: Serve) -> None:
    server = serve("--sync=never", config=limits(connections_per_address=2))

    def connect(source: str) -> Line:
        return Line(server.port, source=source)

    with connect("127.0.0.1") as first, connect("127.0.0.1") as second:
        assert first.ask(b"mn") == second.ask(b"mn") == b"MN"
        with connect("127.0.0.1") as third:
            assert third.read() == b"SERVER_ERROR too many open connections from this address"
            assert third.read() == b""
        with connect("127.0.0.2") as other, connect("127.0.0.2") as another, connect("127.0.0.2") as last:
            assert other.ask(b"mn") == another.ask(b"mn") == b"MN"
            assert last.read() == b"SERVER_ERROR too many open connections from this address"
        second.close()
        until(lambda: first.stats()["curr_connections"] == "1")
        with connect("127.0.0.1") as again:
            assert again.ask(b"mn") == b"MN"
        server.config.write_text(limits(connections_per_address=0))
        assert reload(first) == b"OK"
        with connect("127.0.0.1") as second, connect("127.0.0.1") as third:
            assert second.ask(b"mn") == third.ask(b"mn") == b"MN"


def test_a_connection_that_waits_keeps_its_request_and_then_has_the_new_limits(serve: Serve) -> None:
    server = serve("--sync=never", config=limits(item_bytes=1000))
    with server.connect() as waiting, server.connect() as other:
        key = "q/t=20000" + "/" * 200  # longer than a line will be
        waiting.send(b"get " + key.encode() + b"\r\n")
        other.ask(b"mn")
        server.config.write_text(limits(item_bytes=10, line_bytes=100))
        assert reload(other) == b"OK"
        assert other.set("q", b"x") == b"STORED"
        assert waiting.value(waiting.read()) == b"x"
        assert waiting.set("q", bytes(11)) == b"SERVER_ERROR object too large for cache"


def test_what_cannot_change_is_named_in_the_answer_and_the_log(serve: Serve) -> None:
    server = serve("--sync=never", config=limits(item_bytes=1000))
    with server.connect() as line:
        server.config.write_text(limits(item_bytes=2_000_000) + "[queue.q]\nmax_items = 1\n")
        answer = reload(line)
        assert answer.startswith(b"SERVER_ERROR reloaded, but limits.item_bytes = 2000000 "), answer
        server.wait_for("limits.item_bytes = 2000000 takes effect at the next start")
        assert line.set("q", bytes(1001)) == b"SERVER_ERROR object too large for cache"
        # All else has changed.
        assert [line.set("q", bytes(1000)), line.set("q", b"x")] == [b"STORED", b"NOT_STORED"]
    server.stop()
    server.start()
    with server.connect() as line:
        assert line.set("large", bytes(2_000_000)) == b"STORED"
        assert reload(line) == b"OK"


def test_a_mistake_changes_nothing_and_is_named_in_the_answer(serve: Serve) -> None:
    server = serve("--sync=never", config=limits(item_bytes=1000))
    with server.connect() as line:
        server.config.write_text("[limits]\nitem_bytes = 10\nitem_bits = 1\n")
        answer = reload(line)
        assert answer.startswith(b"SERVER_ERROR the old configuration holds: "), answer
        assert b"line 3" in answer and b"item_bits" in answer
        assert line.set("q", bytes(1000)) == b"STORED"


def test_the_answer_keeps_its_place_among_others(serve: Serve) -> None:
    server = serve("--sync=always", config="")
    with server.connect() as line:
        line.send(b"set q 0 0 1\r\nx\r\nreload\r\nget q\r\nreload\r\nmn\r\nquit\r\n")
        assert line.file.read() == b"STORED\r\nOK\r\nVALUE q 0 1\r\nx\r\nEND\r\nOK\r\nMN\r\n"


def test_kestrels_clients_get_kestrels_words(serve: Serve) -> None:
    with serve("--compat=kestrel").connect() as line:
        assert reload(line) == b"Reloaded config."


def enter(server: QueueServer, secret: bytes) -> tuple[Line, bytes]:
    line = server.connect()
    return line, line.set("auth", secret)


def test_passwords_are_read_again(serve: Serve, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("ann:secret\nbob:word\n")
    server = serve(f"--auth-file={known}")
    (ann, _), (bob, _) = enter(server, b"ann secret"), enter(server, b"bob word")
    bob.send(b"get q/t=20000\r\n")
    known.write_text("ann:secret\ncid:new\nbob:changed\n")
    server.signal(signal.SIGHUP)
    server.wait_for("configuration read")
    # A client whose password is no longer valid is disconnected, even while it waits; the others stay.
    assert bob.file.read() == b""
    assert ann.ask(b"mn") == b"MN"
    for secret, answer in [
        (b"cid new", b"STORED"),
        (b"bob changed", b"STORED"),
        (b"bob word", b"CLIENT_ERROR authentication failure"),
    ]:
        line, said = enter(server, secret)
        assert said == answer
        line.close()
    known.write_text("nonsense\n")
    mistake = f"{known}: line 1: a line is not name:password"
    assert reload(ann) == f"SERVER_ERROR the old configuration holds: {mistake}".encode()
    assert enter(server, b"cid new")[1] == b"STORED"
    ann.close()


def fingerprint(server: QueueServer) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain,
        context.wrap_socket(plain) as client,
    ):
        return client.getpeercert(binary_form=True) or b""


def test_certificates_are_read_again(serve: Serve, tmp_path: Path) -> None:
    certificate, key = certificate_and_key(tmp_path)
    server = serve("--tls-cert", str(certificate), "--tls-key", str(key))
    first = fingerprint(server)
    assert fingerprint(server) == first
    certificate_and_key(tmp_path)
    server.signal(signal.SIGHUP)
    server.wait_for("configuration read")
    second = fingerprint(server)
    assert second and second != first
    certificate.write_text("nothing\n")
    server.signal(signal.SIGHUP)
    server.wait_for("the old configuration holds: .*no certificate in this file")
    assert fingerprint(server) == second
