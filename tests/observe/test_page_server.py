"""The server of the page: its answers and refusals, and clients that must not disturb the flow."""

import contextlib
import json
import re
import resource
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from observed import HEALTHY, PATIENCE, Observed, until

ITEMS = 30_000
COUNTED = f"""
import millstream as ms

flow = ms.Flow("counted")
(flow.source("numbers", ms.generate(lambda: range({ITEMS}), rate=6000, batch_size=100))
     .map(lambda n: n + 1, name="one more")
     .sink("out", ms.testing.discard()))
"""


def test_the_figures_of_a_flow(tmp_path: Path) -> None:
    with Observed(tmp_path, HEALTHY, "--state", str(tmp_path / "state"), "--epoch", "200ms") as flow:
        flow.wait_running()
        until("commits", lambda: (flow.snapshot()["epochs"] or {}).get("commits", 0) > 2)
        assert flow.snapshot()["flow"] == "healthy"
        until("no bottleneck", lambda: flow.snapshot()["bottleneck"] is None)
        until("a rate", lambda: 100 < flow.step("one more")["in_rate"] < 2000)
        until("ages", lambda: flow.step("one more")["ages"])
        assert flow.get("/healthz") == (200, "alive\n")
        assert len(flow.history("step", "one more")["times_ms"]) > 1
        assert flow.history("epochs", "")["series"]["waiting"]
        text = flow.get("/metrics")[1]
        assert 'millstream_epoch_commits_total{flow="healthy"}' in text
        opened = flow.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
        assert opened.endswith("# EOF\n")
        shown = flow.step("out")["items_in"]
        errors = flow.stop()
        assert int(next(line.split()[1] for line in errors.splitlines() if line.startswith("out "))) >= shown


def test_only_get_requests_are_answered(tmp_path: Path) -> None:
    with Observed(tmp_path, HEALTHY) as flow:
        assert flow.get("/api/snapshot.json", "POST")[0] == 405
        assert flow.get("/", "DELETE")[0] == 405
        assert flow.get("/", Host="evil.example")[0] == 403
        assert flow.get("/", Origin="http://evil.example")[0] == 403
        status, body = flow.get("/nothing/<script>")
        assert status in (400, 404) and "<html" not in body


def program(folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    file = folder / "never_runs.py"
    file.write_text(HEALTHY)
    command = [sys.executable, "-m", "millstream", "run", str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def test_a_flow_does_not_start_without_its_address(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = program(tmp_path, "--http", address)
    assert done.returncode == 1 and address in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--http", "0.0.0.0:0"], "needs a token"),
        (["--http-open"], "--http"),
        (["--http", "127.0.0.1:0", "--http-token-file", "/no/such/file"], "/no/such/file"),
    ],
)
def test_bad_usage_is_named(options: list[str], named: str, tmp_path: Path) -> None:
    done = program(tmp_path, *options)
    assert done.returncode == 2 and named in done.stderr, done.stderr


def test_a_token_from_a_file(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("abc123\n")
    with Observed(tmp_path, HEALTHY, "--http-token-file", str(secret)) as flow:
        assert flow.get("/")[0] == 200
        assert flow.get("/metrics")[0] == 401
        assert flow.get("/metrics", Authorization="Bearer no")[0] == 403
        assert flow.get("/metrics", Authorization="Bearer abc123")[0] == 200


def connected(flow: Observed, request: bytes) -> socket.socket:
    client = socket.create_connection((flow.host, flow.port), timeout=PATIENCE)
    client.sendall(request)
    return client


@pytest.fixture
def many_files() -> Iterator[None]:
    """Lets this process open thousands of sockets."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Observed]:
    """A flow whose page needs the token `abc`."""
    secret = tmp_path / "token"
    secret.write_text("abc\n")
    with Observed(tmp_path, HEALTHY, "--http-token-file", str(secret)) as flow:
        flow.wait_running()
        yield flow


def assert_probes_are_answered(flow: Observed) -> None:
    for _ in range(20):
        assert flow.get("/healthz") == (200, "alive\n")
        assert flow.get("/readyz")[0] == 200
        assert flow.get("/metrics")[0] == 401
        assert flow.get("/metrics", Authorization="Bearer abc")[0] == 200


@pytest.mark.usefixtures("many_files")
@pytest.mark.parametrize(
    "request_text",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
        b"GET /events?token=no HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /metrics?token=abc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
    ids=["silent", "half a header", "a wrong token", "the page", "a probe", "the metrics"],
)
def test_a_thousand_connections_do_not_hold_up_probes(guarded: Observed, request_text: bytes) -> None:
    """None of them reads or sends more, so all that the server has is taken by them."""
    clients = [connected(guarded, request_text) for _ in range(1_000)]
    assert_probes_are_answered(guarded)
    # Nor does one that keeps sending a little.
    for client in clients[-20:]:
        with contextlib.suppress(OSError):
            client.sendall(b"x")
    assert_probes_are_answered(guarded)
    for client in clients:
        client.close()


def subscribed(flow: Observed, address: str) -> tuple[socket.socket, bytes]:
    """A client of the events, from one of the addresses of this machine, and the first line of its answer."""
    target = (flow.host, flow.port)
    source = (address, 0)
    client = socket.create_connection(target, timeout=PATIENCE, source_address=source)
    client.sendall(b"GET /events?token=abc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return client, client.recv(12)


def test_an_address_has_half_of_the_places_of_clients(guarded: Observed) -> None:
    first = [subscribed(guarded, "127.0.0.1") for _ in range(32)]
    refused = [subscribed(guarded, "127.0.0.1") for _ in range(3)]
    second = [subscribed(guarded, "127.0.0.2") for _ in range(32)]
    none_left = [subscribed(guarded, "127.0.0.3")]
    assert {line for _, line in first + second} == {b"HTTP/1.1 200"}
    assert {line for _, line in refused + none_left} == {b"HTTP/1.1 503"}
    assert b"too many open connections from this address; try again later" in refused[0][0].recv(4096)
    assert_probes_are_answered(guarded)
    for client, _ in first + refused + second + none_left:
        client.close()
    until("a place", lambda: subscribed(guarded, "127.0.0.1")[1] == b"HTTP/1.1 200")


def test_a_client_that_is_idle_leaves_its_place_to_others(guarded: Observed) -> None:
    text = b"GET /api/snapshot.json?token=abc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    idle = [connected(guarded, text) for _ in range(32)]
    assert {client.recv(12) for client in idle} == {b"HTTP/1.1 200"}
    # Until then its next request may be on the way.
    until("a place", lambda: subscribed(guarded, "127.0.0.1")[1] == b"HTTP/1.1 200")
    for client in idle:
        client.close()


def test_a_connection_without_a_request_is_closed(guarded: Observed) -> None:
    """After 10 seconds; also one that sends another byte of its header each second."""
    silent = connected(guarded, b"")
    slow = connected(guarded, b"GET /events?token=abc HTTP/1.1\r\nX: ")
    slow.settimeout(1)
    while True:
        try:
            slow.sendall(b"x")
            if slow.recv(100) == b"":
                break
        except TimeoutError:
            continue
        except OSError:
            break
    assert silent.recv(100) == b""


def flood(flow: Observed, done: threading.Event) -> None:
    """Requests until the flow has ended."""
    while not done.is_set():
        try:
            flow.get("/metrics")
            flow.get("/api/snapshot.json")
        except OSError:
            done.wait(0.01)


def test_clients_that_abuse_the_server_do_not_disturb_the_flow(tmp_path: Path) -> None:
    with Observed(tmp_path, COUNTED) as flow:
        # Clients that never read, that send one byte of their header, a header without an end, or no HTTP.
        idle = [connected(flow, b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(20)]
        idle += [connected(flow, b"G") for _ in range(15)]
        idle += [connected(flow, b"\x16\x03\x01\xff\xff") for _ in range(3)]
        for _ in range(3):
            huge = connected(flow, b"GET / HTTP/1.1\r\nX: ")
            try:
                huge.sendall(b"x" * (4 << 20))
                assert huge.recv(64).startswith(b"HTTP/1.1 4")
            except ConnectionError:
                pass  # it was disconnected before it had sent all of that
            huge.close()
        done = threading.Event()
        floods = [threading.Thread(target=flood, args=[flow, done]) for _ in range(4)]
        for thread in floods:
            thread.start()
        try:
            errors = flow.ended()
        finally:
            done.set()
        for thread in floods:
            thread.join()
        for client in idle:
            client.close()
        counts = {
            line.split()[0]: line.split()[1:3]
            for line in errors.splitlines()
            if line.startswith(("out ", "numbers "))
        }
        assert counts["out"][0] == str(ITEMS), errors


def test_the_demo_has_a_page() -> None:
    command = [sys.executable, "-m", "millstream", "demo", "--http", "127.0.0.1:0", "--rate", "5000"]
    demo = subprocess.Popen(
        [*command, "--seconds", "3", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert demo.stdout is not None and demo.stderr is not None
    try:
        line = demo.stderr.readline()
        found = re.search(r"http://([\d.:]+)/", line)
        assert found, line
        seen = 0
        while demo.poll() is None:
            try:
                with urllib.request.urlopen(
                    f"http://{found[1]}/api/snapshot.json", timeout=PATIENCE
                ) as answer:
                    snapshot = json.load(answer)
            except OSError:
                break  # the demo has ended
            if snapshot["steps"]:
                assert snapshot["flow"] == "market-spread"
                steps = {step["name"]: step for step in snapshot["steps"]}
                seen = max(seen, steps["spread"]["items_in"])
        report = json.loads(demo.communicate(timeout=PATIENCE)[0])
    finally:
        demo.kill()
        demo.wait()
    # The quotes before the run are processed too, and not counted.
    assert demo.returncode == 0 and 0 < seen <= report["messages"] + 350
