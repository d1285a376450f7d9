"""The verbs of `millstream queue` that talk to a server: with and without a password and TLS, any bytes, dead
letters, damage."""

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from queue_server import QueueServer, Serve
from test_queue_access import certificate_and_key
from test_queue_lifecycle import damage

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]
Queue = Callable[..., Done]

ANY_BYTES = [b"", b"plain", b"two\nlines\n", "gr\u00fcn".encode(), bytes(range(256)), b"\r\nEND\r\n"]


def verbs(run: Run, server: QueueServer, *options: object, **others: object) -> Queue:
    """Runs one verb against this server."""

    def verb(name: str, *args: object, **more: object) -> Done:
        address = f"127.0.0.1:{server.port}"
        return run("queue", name, *args, "--server", address, *options, **others, **more)

    return verb


def good(done: Done) -> str:
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def bad(done: Done) -> str:
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1, done
    return done.stderr


def every_verb(queue: Queue) -> None:
    good(queue("put", "jobs", "one"))
    good(queue("put", "jobs", "two"))
    good(queue("put", "jobs", "three"))
    assert "jobs" in good(queue("list")) and '"items":3' in good(queue("list", "--json"))
    assert "items 3" in good(queue("stats", "jobs"))
    assert good(queue("peek", "jobs")) == "one\n"
    good(queue("confirm", "jobs"))
    assert good(queue("get", "jobs")) == "two\n"
    good(queue("redrive", "jobs", "others"))
    assert good(queue("drain", "others")) == "three\n"
    good(queue("put", "jobs", "four"))
    good(queue("flush", "jobs"))
    assert good(queue("drain", "jobs")) == ""
    good(queue("delete", "jobs"))
    good(queue("status", "readonly"))
    assert good(queue("status")) == "READONLY\n"
    assert "its status is READONLY" in bad(queue("put", "jobs", "five"))
    good(queue("status", "UP"))
    good(queue("reload"))


def test_every_verb_talks_to_a_plain_server(serve: Serve, run: Run) -> None:
    every_verb(verbs(run, serve("--sync=never")))


def test_every_verb_talks_to_a_server_with_password_and_tls(serve: Serve, run: Run, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("ann:secret word\nbob:other\n")
    certificate, key = certificate_and_key(tmp_path)
    server = serve("--sync=never", f"--auth-file={known}", f"--tls-cert={certificate}", f"--tls-key={key}")
    tls = ["--tls-ca", certificate, "--tls-name", "localhost"]
    every_verb(verbs(run, server, *tls, "--auth-file", known))
    environment = {**os.environ, "MILLSTREAM_QUEUE_AUTH": "bob:other"}
    every_verb(verbs(run, server, *tls, env=environment))


def test_what_keeps_a_verb_out_is_named(serve: Serve, run: Run, tmp_path: Path) -> None:
    known = tmp_path / "known"
    wrong = tmp_path / "wrong"
    empty = tmp_path / "empty"
    known.write_text("ann:secret\n")
    wrong.write_text("ann:wrong\n")
    empty.write_text("\n")
    certificate, key = certificate_and_key(tmp_path)
    server = serve(f"--auth-file={known}", f"--tls-cert={certificate}", f"--tls-key={key}")
    tls = ["--tls-ca", certificate, "--tls-name", "localhost"]
    assert "authentication failure" in bad(verbs(run, server, *tls, "--auth-file", wrong)("list"))
    assert "unauthenticated" in bad(verbs(run, server, *tls)("list"))
    assert f"{empty}: the first line is not NAME:PASSWORD" in bad(
        verbs(run, server, *tls, "--auth-file", empty)("list")
    )
    assert str(tmp_path / "none") in bad(verbs(run, server, *tls, "--auth-file", tmp_path / "none")("list"))
    assert f"{known}: no certificate in this file" in bad(verbs(run, server, "--tls-ca", known)("list"))
    other = tmp_path / "other"
    other.mkdir()
    stranger, _ = certificate_and_key(other)
    said = bad(verbs(run, server, "--tls-ca", stranger, "--tls-name", "localhost")("list"))
    assert 'no TLS connection to "localhost"' in said


def test_a_certificate_of_an_authority_must_be_for_the_server(serve: Serve, run: Run, tmp_path: Path) -> None:
    authority, authority_key = certificate_and_key(tmp_path)
    certificate = tmp_path / "leaf.pem"
    key = tmp_path / "leaf-key.pem"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=queues"
    extensions = ["subjectAltName=DNS:queues.example,IP:127.0.0.1", "basicConstraints=critical,CA:FALSE"]
    added = [word for extension in extensions for word in ("-addext", extension)]
    signed = ["-CA", str(authority), "-CAkey", str(authority_key)]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*make.split(), *added, *signed, *files], check=True, capture_output=True)
    server = serve(f"--tls-cert={certificate}", f"--tls-key={key}")
    good(verbs(run, server, "--tls-ca", authority)("list"))
    good(verbs(run, server, "--tls-ca", authority, "--tls-name", "queues.example")("list"))
    said = bad(verbs(run, server, "--tls-ca", authority, "--tls-name", "other.example")("list"))
    assert 'no TLS connection to "other.example"' in said


def test_any_bytes_flags_and_expiry_go_out_and_in_again(serve: Serve, run: Run) -> None:
    server = serve("--sync=never")
    queue = verbs(run, server)
    with server.connect() as line:
        for number, item in enumerate(ANY_BYTES):
            line.send(b"set q %d %d %d\r\n%s\r\n" % (number, 3600 * (number % 2), len(item), item))
            assert line.read() == b"STORED"
        drained = good(queue("drain", "q", "--json"))
        items = [json.loads(text) for text in drained.splitlines()]
        assert [item["flags"] for item in items] == list(range(len(ANY_BYTES)))
        assert ["expires_ms" in item for item in items] == [bool(n % 2) for n in range(len(ANY_BYTES))]
        bodies = [
            item["text"].encode() if "text" in item else base64.b64decode(item["base64"]) for item in items
        ]
        assert bodies == ANY_BYTES
        assert line.get("q") is None
        good(queue("put", "q", "--json", input=drained))
        for number, item in enumerate(ANY_BYTES):
            answer = line.ask(b"get q/details")
            words = answer.split()
            assert words[2:4] == [b"%d" % number, b"%d" % len(item)]
            assert (int(words[6]) - items[number].get("expires_ms", 0)) in range(1000)
            assert line.value(answer) == item
        said = bad(queue("put", "q", "--json", input='{"text":"a"}\n{"flags":1}\n'))
        assert "line 2" in said and "text" in said
        assert line.get("q") == b"a"


def test_dead_letters_are_redriven_complete(serve: Serve, run: Run) -> None:
    server = serve("--sync=never", config="[queue.work]\nmax_deliveries = 1\nerror_queue = 'dead'\n")
    queue = verbs(run, server)
    with server.connect() as line:
        for number in range(2_500):
            line.send(b"set work %d 0 2 noreply\r\nhi\r\n" % number)
        for _ in range(2_500):
            line.send(b"get work/open\r\nget work/abort\r\n")
            assert line.value(line.read()) == b"hi" and line.read() == b"END"
    assert json.loads(good(queue("redrive", "dead", "work", "--count", "10", "--json"))) == {"moved": 10}
    assert "2490 items from dead to work" in good(queue("redrive", "dead", "work"))
    flags = [json.loads(text)["flags"] for text in good(queue("drain", "work", "--json")).splitlines()]
    assert flags == list(range(2_500))
    assert 'there is no queue "none"' in bad(queue("redrive", "none", "work"))


def test_dead_letters_have_a_cause_and_recover_their_expiry(serve: Serve, run: Run, tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("ann:secret\n")
    certificate, key = certificate_and_key(tmp_path)
    config = "[queue.work]\nmax_deliveries = 2\nerror_queue = 'dead'\n"
    listen = f"--listen=unix:{tmp_path / 'socket'}"
    tls = (f"--tls-cert={certificate}", f"--tls-key={key}")
    server = serve("--sync=never", listen, *tls, f"--auth-file={known}", config=config)
    options = ["--tls-ca", certificate, "--tls-name", "localhost", "--auth-file", known]
    queue = verbs(run, server, *options)
    good(queue("put", "work", "poison", "--expire", "3600"))
    plain: dict[str, Any] = json.loads(good(queue("peek", "work", "--json")))
    assert plain["deliveries"] == 0 and not {"origin", "first_failed_ms"} & set(plain)
    with socket.socket(socket.AF_UNIX) as consumer:
        consumer.settimeout(20)
        consumer.connect(str(tmp_path / "socket"))
        consumer.sendall(b"set auth 0 0 10\r\nann secret\r\n" + b"get work/open\r\nget work/abort\r\n" * 2)
        consumer.sendall(b"quit\r\n")
        while consumer.recv(1000):
            pass
    dead: dict[str, Any] = json.loads(good(queue("peek", "dead", "--json")))
    assert (dead["text"], dead["deliveries"], dead.get("expires_ms")) == ("poison", 0, None)
    origin = dead["origin"]
    assert dead["first_failed_ms"] <= origin["left_ms"] == dead["added_ms"]
    expected = {"queue": "work", "reason": "failed", "deliveries": 2, "expires_ms": plain["expires_ms"]}
    assert {name: origin[name] for name in expected} == expected
    assert "failing_items 0" in good(queue("stats", "dead"))
    server.kill()
    server.start()
    good(queue("redrive", "dead", "work"))
    again = json.loads(good(queue("peek", "work", "--json")))
    assert again["expires_ms"] == plain["expires_ms"] and again["deliveries"] == 0
    assert (again["origin"], again["first_failed_ms"]) == (origin, dead["first_failed_ms"])
    drained = good(queue("drain", "work", "--json"))
    good(queue("put", "work", "--json", input=drained))
    put = json.loads(good(queue("get", "work", "--json")))
    assert (put["text"], put["expires_ms"]) == ("poison", -(-plain["expires_ms"] // 1000) * 1000)
    assert "origin" not in put


def test_an_item_opened_in_process_shows_the_history_that_peek_shows(
    serve: Serve, run: Run, tmp_path: Path
) -> None:
    config = """
        [queue.work]
        max_deliveries = 2
        error_queue = "dead"
        expire_to = "late"
    """
    server = serve("--sync=never", config=config, name="histories")
    queue = verbs(run, server)
    good(queue("put", "work", "poison", "--expire", "3600"))
    with server.connect() as line:
        for _ in range(2):
            assert line.get("work/open") == b"poison"
            assert line.get("work/abort") is None
        line.set("work", b"slow", expiry=-1)
        line.set("work", b"fresh")
        assert line.get("work/open") == b"fresh"
    seen = {name: json.loads(good(queue("peek", name, "--json"))) for name in ("dead", "late", "work")}
    assert server.stop() == 0
    with ms.Queues(tmp_path / "histories", config=tmp_path / "histories.toml") as queues:
        for name, expected in seen.items():
            with queues[name].open() as item:
                assert item is not None and item.body.decode() == expected["text"]
                assert milliseconds(item.first_failed) == expected.get("first_failed_ms")
                origin = item.origin
                known = expected.get("origin")
                if known is None or origin is None:
                    assert known is origin
                    continue
                shown = {"queue": origin.queue, "reason": origin.reason, "deliveries": origin.deliveries}
                shown["left_ms"] = milliseconds(origin.left)
                if origin.expires is not None:
                    shown["expires_ms"] = milliseconds(origin.expires)
                assert shown == known
    reasons = [seen[name].get("origin", {}).get("reason") for name in ("dead", "late", "work")]
    assert reasons == ["failed", "expired", None]
    assert seen["work"]["deliveries"] == 1 and seen["work"]["first_failed_ms"] > 0


def milliseconds(moment: float | None) -> int | None:
    return None if moment is None else round(moment * 1000)


def test_confirm_takes_all_or_none(serve: Serve, run: Run) -> None:
    server = serve("--sync=never", config="[queue.q]\nmax_deliveries = 1\n")
    queue = verbs(run, server)
    with server.connect() as line:
        for item in (b"1", b"2", b"3"):
            line.set("q", item)
        assert 'queue "q": it has 3 items, not 4: none was confirmed' in bad(
            queue("confirm", "q", "--count", 4)
        )
        good(queue("confirm", "q", "--count", 2))
        assert [line.get("q"), line.get("q")] == [b"3", None]
        assert 'there is no queue "x"' in bad(queue("confirm", "x"))


@pytest.mark.parametrize("live", [True, False])
def test_a_damaged_queue_is_salvaged_and_deleted(live: bool, serve: Serve, run: Run) -> None:
    server = serve("--sync=always")
    with server.connect() as line:
        for number in range(6):
            line.send(b"set jobs %d 3600 6\r\nitem-%d\r\n" % (number, number))
            assert line.read() == b"STORED"
        assert line.get("jobs") == b"item-0"
    server.stop()
    path = damage(server.folder, "jobs", b"item-3")
    before = path.read_bytes()
    salvage = ["queue", "salvage", "jobs", "--dir", server.folder, "--json"]
    if live:
        server.start()
        assert "--live" in bad(run(*salvage))
        salvage += ["--live", "--server", f"127.0.0.1:{server.port}"]
    done = run(*salvage)
    report = json.loads(good(done))
    assert (report["items"], report["expired"], report["into"]) == (4, 0, "jobs.salvaged")
    [lost] = report["lost"]
    assert (lost["first_record"], lost["last_record"]) == (3, 3)
    assert path.name in lost["why"] and "offset" in lost["why"]
    assert "has items already" in bad(run(*salvage))
    assert path.read_bytes() == before
    if not live:
        server.start()
    queue = verbs(run, server)
    items = [json.loads(text) for text in good(queue("drain", "jobs.salvaged", "--json")).splitlines()]
    assert [(item["text"], item["flags"]) for item in items] == [(f"item-{n}", n) for n in (1, 2, 4, 5)]
    assert all("expires_ms" in item for item in items)
    assert "is closed" in bad(queue("get", "jobs"))
    good(queue("delete", "jobs"))
    assert not (server.folder / "jobs").exists()
    assert 'there is no queue "jobs"' in bad(queue("delete", "jobs"))
    good(queue("put", "jobs", "new"))
    assert good(queue("get", "jobs")) == "new\n"


def starling_file(*items: bytes) -> bytes:
    return b"".join(b"\0" + (len(item) + 4).to_bytes(4, "little") + bytes(4) + item for item in items)


def test_a_queue_that_has_refused_items_is_not_forgotten_with_its_figures(run: Run, serve: Serve) -> None:
    server = serve("--sync=never", config="[queue.fan]\nfanout_only = true\n")
    queue = verbs(run, server)
    assert 'first get of one, such as "fan+audit"' in bad(queue("put", "fan", "one"))
    with server.connect() as line:
        # A queue that was used later and has nothing on disk is forgotten.
        assert line.get("other") is None
        while b"STAT" in line.ask(b"stats other"):
            while line.read() != b"END":
                pass
            time.sleep(0.1)
    assert "refused_no_fanout 1" in good(queue("stats", "fan"))
    # The advice.
    good(queue("drain", "fan+audit"))
    good(queue("put", "fan", "one"))
    assert good(queue("drain", "fan+audit")) == "one\n"


def test_an_import_is_checked_before_anything_is_written(run: Run, serve: Serve, tmp_path: Path) -> None:
    old = tmp_path / "old"
    new = tmp_path / "new"
    old.mkdir()
    for name in (b"a", b"with blank", b"z", b"not-\xff-utf8"):
        (Path(os.fsdecode(os.fsencode(old) + b"/" + name))).write_bytes(starling_file(b"1", b"2"))
    command = ["queue", "import", "--from", "starling", old, "--dir", new]
    said = bad(run(*command))
    assert "with blank" in said and "not UTF-8" in said and "nothing was imported" in said, said
    assert not new.exists()
    chosen = [*command, "--queue", "a", "--queue", "z"]
    assert good(run(*chosen)).splitlines() == ["a: 2 items", "z: 2 items"]
    (old / "b").write_bytes(starling_file(b"3"))
    said = bad(run(*command, "--queue", "b", "--queue", "z"))
    assert 'queue "z" has 2 items already' in said and "--append" in said, said
    assert not (new / "b").exists()
    assert good(run(*command, "--queue", "b", "--queue", "z", "--append")).splitlines() == [
        "b: 1 items",
        "z: 2 items",
    ]
    server = serve(name="new")
    with server.connect() as line:
        for queue, items in [("a", [b"1", b"2"]), ("b", [b"3"]), ("z", [b"1", b"2", b"1", b"2"])]:
            assert [line.get(queue) for _ in items] == items and line.get(queue) is None
