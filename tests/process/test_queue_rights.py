"""What clients may do by their names: with real clients, on both protocols, and after a reload. And how fast
passwords can be tried."""

import select
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymemcache
import pytest
from queue_server import Line, QueueServer, Serve
from test_queue_verbs import bad, good, verbs

RIGHTS = """
[user.shop]
write = ["orders", "mails*"]

[user.mill]
read = ["orders", "orders+*"]

[user.ops]
read = ["*"]
write = ["*"]
admin = ["*"]
"""


def passwords(folder: Path, *names: str) -> dict[str, Path]:
    """A file with all names for the server, and one for each."""
    for name in names:
        (folder / name).write_text(f"{name}:{name}-secret\n")
    (folder / "all").write_text("".join(f"{name}:{name}-secret\n" for name in names))
    return {name: folder / name for name in (*names, "all")}


def enter(port: int, name: str) -> Line:
    line = Line(port)
    assert line.set("auth", f"{name} {name}-secret".encode()) == b"STORED"
    return line


def test_pymemcache_gets_an_error_for_what_it_may_not(serve: Serve, tmp_path: Path) -> None:
    files = passwords(tmp_path, "shop", "mill", "ops")
    server = serve("--sync=never", f"--auth-file={files['all']}", config=RIGHTS)

    def client(name: str) -> Any:
        client = pymemcache.Client(("127.0.0.1", server.port), timeout=20, default_noreply=False)
        assert client.set("auth", f"{name} {name}-secret")
        return client

    shop = client("shop")
    mill = client("mill")
    assert shop.set("orders", b"one") and shop.set("mails-new", b"m")
    assert mill.get("orders/open") == b"one" and mill.get("orders/close") is None
    # It closes its connection after an error, and would have to authenticate again.
    denied = pymemcache.exceptions.MemcacheClientError
    with pytest.raises(denied, match='"shop" may not read queue "orders"'):
        shop.get("orders")
    with pytest.raises(denied, match='"mill" may not write to queue "orders"'):
        mill.set("orders", b"two")
    with pytest.raises(denied, match='"mill" may not administer queue "orders"'):
        client("mill").delete("orders")
    with pytest.raises(denied, match="may not flush_all"):
        client("shop").flush_all()
    told = {key for key in client("mill").stats() if key.startswith(b"queue_") and key.endswith(b"_sync")}
    assert told == {b"queue_orders_sync"}
    with enter(server.port, "ops") as ops:
        assert ops.stats()["denials"] == "4"
    assert '"shop" may not read queue "orders"' in server.log()


def test_verbs_are_suggested_too(serve: Serve, run: Callable[..., Any], tmp_path: Path) -> None:
    files = passwords(tmp_path, "shop", "mill", "ops")
    server = serve("--sync=never", f"--auth-file={files['all']}", config=RIGHTS)
    shop, mill, ops = (verbs(run, server, "--auth-file", files[name]) for name in ("shop", "mill", "ops"))
    good(shop("put", "orders", "one"))
    good(ops("put", "secret", "x"))
    assert '"shop" may not read queue "orders"' in bad(shop("get", "orders"))
    assert '"mill" may not write to queue "orders"' in bad(mill("put", "orders", "two"))
    assert [line.split()[0] for line in good(mill("list")).splitlines()] == ["queue", "orders"]
    assert "secret" not in good(mill("list")) and "secret" in good(ops("list"))
    for verb, arguments in [
        ("status", ["READONLY"]),
        ("reload", []),
        ("delete", ["orders"]),
        ("flush", ["orders"]),
        ("redrive", ["orders", "mails"]),
    ]:
        assert '"mill" may not' in bad(mill(verb, *arguments)), verb
    good(mill("drain", "orders"))
    good(ops("delete", "orders"))


def test_kestrels_listener_and_a_unix_socket_keep_to_rights(
    serve: Serve, free_port: Callable[[], int], tmp_path: Path
) -> None:
    files = passwords(tmp_path, "shop", "mill", "ops")
    port = free_port()
    listen = (f"--listen-kestrel=127.0.0.1:{port}", f"--listen=unix:{tmp_path / 'socket'}")
    serve("--sync=never", *listen, f"--auth-file={files['all']}", config=RIGHTS)
    with enter(port, "mill") as mill:
        assert mill.set("orders", b"x") == b'CLIENT_ERROR "mill" may not write to queue "orders"'
        assert mill.ask(b"delete orders") == b'CLIENT_ERROR "mill" may not administer queue "orders"'
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(tmp_path / "socket"))
        client.sendall(b"set auth 0 0 16\r\nmill mill-secret\r\nflush orders\r\nquit\r\n")
        answer = b"".join(iter(lambda: client.recv(1000), b""))
    assert answer == b'STORED\r\nCLIENT_ERROR "mill" may not administer queue "orders"\r\n'


def test_a_reload_changes_rights_and_names_users_without_any(serve: Serve, tmp_path: Path) -> None:
    files = passwords(tmp_path, "shop", "mill", "ops")
    server = serve("--sync=never", f"--auth-file={files['all']}", config="")
    with enter(server.port, "mill") as mill, enter(server.port, "ops") as ops:
        assert mill.set("orders", b"x") == b"STORED"
        server.config.write_text("[user.ops]\nadmin = ['*']\n[user.gone]\nread = ['*']\n")
        assert ops.ask(b"reload") == b"OK"
        assert mill.ask(b"get orders") == b'CLIENT_ERROR "mill" may not read queue "orders"'
        server.wait_for('"mill" has no rights, since there is no')
        server.wait_for("user.gone: there is no such name")
        server.config.write_text("[user.ops]\nadmin = ['a b']\n")
        answer = ops.ask(b"reload")
        assert b'user.ops.admin: "a b": queue name has a character' in answer
        assert ops.ask(b"status UP") == b"END"


def test_rights_without_passwords_are_a_mistake(run: Callable[..., Any], tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[user.ann]\nread = ['*']\n")
    done = run("queue", "serve", "--dir", tmp_path / "q", "--config", config)
    assert done.returncode == 1
    assert done.stderr == (
        f"millstream queue serve: {config}: user.ann: rights need names and passwords (--auth-file)\n"
    )


def attack(server: QueueServer, source: str, number: int) -> list[socket.socket]:
    """So many connections from this address, each with one wrong password."""
    clients = []
    for _ in range(number):
        client = socket.create_connection(("127.0.0.1", server.port), 20, (source, 0))
        client.sendall(b"set auth 0 0 9\r\nann wrong\r\n")
        clients.append(client)
    return clients


def test_one_address_tries_passwords_slowly_and_others_are_not_slowed(serve: Serve, tmp_path: Path) -> None:
    """Of 60 passwords on as many connections few are looked at before another address comes in."""
    files = passwords(tmp_path, "ann")
    server = serve(f"--auth-file={files['ann']}")
    attackers = attack(server, "127.0.0.2", 60)
    with enter(server.port, "ann") as ann:
        failures = int(ann.stats()["auth_failures"])
        assert failures < 30, "every password was tried at once"
        server.wait_for(r'127\.0\.0\.2:\d+: wrong password for "ann"; the next one from there')
        # Each is answered in the end, in order, as long as this test waits; no attempt is answered twice.
        answered, _, _ = select.select(attackers, [], [], 20)
        assert answered[0].recv(100) == b"CLIENT_ERROR authentication failure\r\n"
        assert int(ann.stats()["auth_failures"]) < 60
    for attacker in attackers:
        attacker.close()
    # Authenticated connections stay, and the right password works from the same address, a little later.
    with socket.create_connection(("127.0.0.1", server.port), 20, ("127.0.0.2", 0)) as client:
        client.sendall(b"set auth 0 0 14\r\nann ann-secret\r\nmn\r\nquit\r\n")
        assert client.makefile("rb").read() == b"STORED\r\nMN\r\n"


def test_siberites_consumer_groups_are_warned_of_once(serve: Serve) -> None:
    server = serve("--sync=never")
    with server.connect() as line:
        assert line.set("work", b"x") == b"STORED"
        assert line.get("other.cg") is None and "Siberite" not in server.log()
        assert line.get("work.cg/t=1") is None
        assert line.get("work.more") is None and line.get("work:cg") is None
        assert line.get("work") == b"x"
    assert server.log().count("no consumer group of") == 1
    assert 'a client reads "work.cg"' in server.log() and '"work+cg"' in server.log()
