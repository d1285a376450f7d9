"""The examples, each as the processes that a README tells to start, with 1, 2 and 3 workers.

What comes out is judged by a plain model in Python that reads the same input.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from documents import GUIDE, ROOT, blocks

EXAMPLES = ROOT / "examples"
TIMEOUT = 60

Command = list[str]
Run = Callable[..., subprocess.CompletedProcess[str]]
EachWorkers = pytest.mark.parametrize("workers", [1, 2, 3])
EachLanguage = pytest.mark.parametrize("language", ["python", "rust"])


def python_flow(name: str, workers: int) -> Command:
    path = EXAMPLES / name / f"{name}.py"
    return [sys.executable, "-m", "millstream", "run", str(path), "--workers", str(workers)]


@pytest.fixture
def flow_command(request: pytest.FixtureRequest) -> Callable[[str, str, int], Command]:
    """How to start an example: its name, its language, its workers."""

    def command(name: str, language: str, workers: int) -> Command:
        if language == "python":
            return python_flow(name, workers)
        rust: Path = request.getfixturevalue("rust_examples")
        return ["env", f"WORKERS={workers}", str(rust / name)]

    return command


@contextmanager
def process(command: Command, **settings: str) -> Iterator[subprocess.Popen[str]]:
    """A process that must end by itself, and well, once the block has done its part."""
    running = subprocess.Popen(
        command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield running
        out, errors = running.communicate(timeout=TIMEOUT)
        assert running.returncode == 0, f"{command}\n{out}\n{errors}"
    except BaseException:
        running.kill()
        # pytest shows it below the error of the block.
        print(*command, *running.communicate(), sep="\n")
        raise


@contextmanager
def receiver(millstream_bin: Path, out: Path, framing: str, connections: int) -> Iterator[str]:
    """`millstream receive` on a free port; yields its address. After the block it has received all."""
    command = [millstream_bin, "receive", "--listen", ":0", "--framing", framing, "--out", out]
    with process([*map(str, command), "--connections", str(connections)]) as running:
        assert running.stderr is not None
        line = running.stderr.readline()
        assert line.startswith("listening on "), line
        yield line.removeprefix("listening on ").strip()


def send(run: Run, *args: object) -> None:
    """`millstream send`, to a flow that may still be starting."""
    sent = run("send", *args, "--connect-timeout", TIMEOUT, timeout=2 * TIMEOUT)
    assert sent.returncode == 0, sent.stderr


def generate(run: Run, kind: str, out: Path, count: int) -> bytes:
    """`millstream generate`; returns what was written."""
    assert run("generate", kind, "--out", out, "--count", count).returncode == 0
    return out.read_bytes()


def frames(stream: bytes) -> Iterator[bytes]:
    """Payloads with four bytes of length in front."""
    at = 0
    while at < len(stream):
        (length,) = struct.unpack_from(">I", stream, at)
        yield stream[at + 4 : at + 4 + length]
        at += 4 + length


# Celsius.


@EachWorkers
def test_celsius(
    workers: int, run: Run, millstream_bin: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    data = generate(run, "celsius", tmp_path / "celsius", 20_000)
    out = tmp_path / "fahrenheit"
    source = f"127.0.0.1:{free_port()}"
    with receiver(millstream_bin, out, "lines", connections=workers) as address:
        with process(python_flow("celsius", workers), CELSIUS=source, FAHRENHEIT=address):
            send(run, tmp_path / "celsius", "--framing", "fixed:4", "--to", source)
    expected = Counter(f"{degrees * 9 / 5 + 32:.1f}" for (degrees,) in struct.iter_unpack(">f", data))
    assert Counter(out.read_text().splitlines()) == expected


# Alphabet.


@EachWorkers
def test_alphabet(
    workers: int, run: Run, millstream_bin: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    data = generate(run, "votes", tmp_path / "votes", 20_000)
    out = tmp_path / "totals"
    source = f"127.0.0.1:{free_port()}"
    with receiver(millstream_bin, out, "fixed:9", connections=workers) as address:
        with process(python_flow("alphabet", workers), VOTES=source, TOTALS=address):
            send(run, tmp_path / "votes", "--framing", "fixed:5", "--to", source)
    expected: defaultdict[bytes, list[int]] = defaultdict(list)
    for letter, votes in struct.iter_unpack(">cI", data):
        expected[letter].append(votes + (expected[letter][-1] if expected[letter] else 0))
    totals: defaultdict[bytes, list[int]] = defaultdict(list)
    for letter, total in struct.iter_unpack(">cQ", out.read_bytes()):
        totals[letter].append(total)
    # Not only the last total of each letter: every one, in order.
    assert totals == expected


# Word count.


@EachLanguage
@EachWorkers
def test_word_count(
    language: str, workers: int, flow_command: Callable[[str, str, int], Command], run: Run, tmp_path: Path
) -> None:
    small = EXAMPLES / "word_count" / "book.txt"
    large = tmp_path / "lines"
    generate(run, "lines", large, 5_000)
    for book in (small, large):
        command = flow_command("word_count", language, workers)
        done = subprocess.run(
            command, env=os.environ | {"BOOK": str(book)}, capture_output=True, text=True, timeout=TIMEOUT
        )
        assert done.returncode == 0, done.stderr
        words = Counter(book.read_text().lower().split())
        assert sorted(done.stdout.splitlines()) == sorted(f"{count} {word}" for word, count in words.items())


# Programs in Rust.


def test_lines_over_tcp_and_dead_letters(
    rust_examples: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    letters = tmp_path / "letters"
    command = [str(rust_examples / "tcp_letters")]
    with process(command, LISTEN=address, LETTERS=str(letters)) as flow:
        with connect(address) as client:
            client.sendall(b"tea 300\nrum nine\ntea 400\n\xff 1\n")
        out, errors = flow.communicate(timeout=TIMEOUT)
    assert out == "tea 700\n"
    assert errors.splitlines()[-1] == "2 lines were no orders"
    assert "rum nine" in letters.read_text()


def test_a_source_and_a_sink_of_ones_own(rust_examples: Path, tmp_path: Path) -> None:
    for first in (0, 3):
        command = [str(rust_examples / "own_connectors")]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == " ".join(f"tick {first + n}" for n in range(3)).split()


def test_two_processes(rust_examples: Path, tmp_path: Path) -> None:
    command = [str(rust_examples / "two_processes")]
    with ExitStack() as running:
        both = [running.enter_context(process_in(tmp_path, [*command, number])) for number in "01"]
        assert [one.wait(TIMEOUT) for one in both] == [0, 0], (tmp_path / "log").read_text()
    lines = (tmp_path / "digits.txt").read_text().splitlines()
    assert sorted(lines) == [f"{digit} 400" for digit in range(10)]


# Market Spread.

ORDER = struct.Struct(">BBI6s4sdd21s")
QUOTE = struct.Struct(">B4s21sdd")
RESULT = struct.Struct(">BI6s4sddddQ")


class Results:
    """Takes the results in, from one connection for each worker."""

    def __init__(self, connections: int) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.seen: list[tuple[Any, ...]] = []
        self.news = threading.Condition()
        self.threads = [threading.Thread(target=self.take, daemon=True) for _ in range(connections)]
        for thread in self.threads:
            thread.start()

    def take(self) -> None:
        connection, _ = self.server.accept()
        with connection, connection.makefile("rb") as stream:
            while prefix := stream.read(4):
                payload = stream.read(int.from_bytes(prefix, "big"))
                with self.news:
                    self.seen.append(RESULT.unpack(payload)[:-1])  # without the time
                    self.news.notify_all()

    def of(self, order_id: bytes) -> list[object]:
        """The symbols of the results of orders with this id."""
        return [result[3] for result in self.seen if result[2] == order_id]

    def wait_for(self, order_id: bytes, symbols: set[bytes]) -> list[object]:
        """Waits until there is a result for each symbol, and returns all results of the id so far."""
        with self.news:
            assert self.news.wait_for(lambda: symbols <= set(self.of(order_id)), TIMEOUT)
            return self.of(order_id)


def connect(address: str) -> socket.socket:
    host, port = address.split(":")
    for _ in range(300):
        try:
            return socket.create_connection((host, int(port)))
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise AssertionError(f"nothing listens on {address}")


def wait_settled(
    orders: socket.socket, results: Results, normal: list[bytes], rejecting: list[bytes]
) -> None:
    """Returns when the flow has handled the initial quotes.

    A round of orders goes to all symbols, the normal ones first. Orders keep their places on the way to each
    worker: when the rejecting symbols have all answered, the normal ones that are not quoted yet have, too.
    """
    for number in range(100):
        order_id = b"TRY%03d" % number
        for symbol in normal + rejecting:
            order = ORDER.pack(1, 1, 0, order_id, symbol, 1.0, 1.0, b"0" * 21)
            orders.sendall(struct.pack(">I", len(order)) + order)
        if len(results.wait_for(order_id, set(rejecting))) == len(rejecting):
            return
        time.sleep(0.05)
    raise AssertionError("the initial quotes are not all in force")


@EachLanguage
@EachWorkers
def test_market_spread(
    language: str,
    workers: int,
    flow_command: Callable[[str, str, int], Command],
    run: Run,
    free_port: Callable[[], int],
    tmp_path: Path,
) -> None:
    kinds = {"initial": 350, "nbbo": 20_000, "orders": 20_000}
    data = {k: generate(run, f"market-spread-{k}", tmp_path / k, count) for k, count in kinds.items()}
    market: dict[bytes, tuple[float, float, bool]] = {}
    for _, symbol, _, bid, offer in map(QUOTE.unpack, frames(data["initial"] + data["nbbo"])):
        wide = offer - bid >= 0.05 or (offer - bid) / ((bid + offer) / 2) >= 0.05
        market[symbol] = (bid, offer, wide)
    expected = []
    for _, side, account, order_id, symbol, quantity, price, _ in map(ORDER.unpack, frames(data["orders"])):
        bid, offer, wide = market.get(symbol, (0.0, 0.0, True))
        if wide:
            expected.append((side, account, order_id, symbol, quantity, price, bid, offer))
    rejecting = [symbol for symbol, (_, _, wide) in market.items() if wide]
    normal = [symbol for symbol in market if symbol not in rejecting]
    assert len(expected) == 5 and len(rejecting) == 15

    results = Results(workers)
    quotes_at, orders_at = (f"127.0.0.1:{free_port()}" for _ in range(2))
    command = flow_command("market_spread", language, workers)
    with process(command, QUOTES=quotes_at, ORDERS=orders_at, RESULTS=results.address):
        send(run, tmp_path / "initial", "--to", quotes_at)
        with connect(orders_at) as orders:
            wait_settled(orders, results, normal, rejecting)
            send(run, tmp_path / "nbbo", "--to", quotes_at)
            # Invalid messages are skipped: one of another length, and one of another type.
            orders.sendall(struct.pack(">I", 3) + b"bad")
            wrong = ORDER.pack(2, 1, 0, b"poison", rejecting[0], 1.0, 1.0, b"0" * 21)
            orders.sendall(struct.pack(">I", len(wrong)) + wrong)
            orders.sendall(data["orders"])
    for thread in results.threads:
        thread.join(TIMEOUT)
    real = [result for result in results.seen if not result[2].startswith(b"TRY")]
    assert sorted(real) == sorted(expected)


# Orders.


def test_the_order_desk_in_rust_passes_the_tests_of_the_one_in_python(rust_examples: Path) -> None:
    command = [str(rust_examples / "orders"), "test", str(EXAMPLES / "orders" / "tests" / "limits")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert (done.returncode, done.stdout) == (0, "passed 93, failed 0\n"), done.stdout + done.stderr


def test_both_order_desks_answer_the_same(
    rust_examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls that Python publishes, taken by both in two runs, Rust from its snapshot the second time."""
    # Another test of this process may have imported another module of this name.
    monkeypatch.delitem(sys.modules, "desk", raising=False)
    monkeypatch.syspath_prepend(EXAMPLES / "orders")
    import desk
    import millstream as ms

    orders = ms.publisher(desk.Orders, tmp_path / "orders")
    exports = []
    for day in range(2):
        orders.set_limit("ACCT-1", 50_000.0)
        for number in range(500):
            side = "12X"[number % 3]
            orders.new_order(desk.NewOrder(f"A-{number}", "ACCT-1", "VOD.L", side, number % 7, 72.5 + day))
            if number % 5 == 0:
                orders.cancel(f"A-{number // 2}")
        command = [str(rust_examples / "orders"), "run", str(tmp_path / "orders"), str(tmp_path / "rust")]
        subprocess.run(command, check=True, capture_output=True, timeout=TIMEOUT)
    ms.serve(desk.Desk, tmp_path / "orders", out=tmp_path / "python", drain=True)
    for name in ("rust", "python"):
        command = [sys.executable, "-m", "millstream", "service", "export", str(tmp_path / name)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT)
        # Not when and where an answer was recorded; its own `at` stands indented.
        exports.append([line for line in done.stdout.splitlines() if not line.startswith(("#", "at:"))])
    assert exports[0] == exports[1]
    assert len(exports[0]) > 1_000
    # A flow reads what the service has put out.
    done = subprocess.run(
        [str(rust_examples / "orders"), "count", str(tmp_path / "python")],
        check=True,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    methods = [line[:-1] for line in exports[0] if line[:1] not in " -"]
    reasons = [line.split(": ", 1)[1].strip("'\"") for line in exports[0] if line.startswith("  reason: ")]
    expected = Counter(f"rejected, {reason}" for reason in reasons)
    expected.update(method for method in methods if method != "rejected")
    assert sorted(done.stdout.splitlines()) == sorted(f"{count} {word}" for word, count in expected.items())


@pytest.mark.parametrize("language", ["python", "rust"])
def test_the_order_desk_runs_as_a_system(
    language: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As its README tells: up, orders, status, export, latency, down."""
    for name in ("desk.py", "report.py", "place.py", "desk.toml", "rust.toml"):
        (tmp_path / name).write_text((EXAMPLES / "orders" / name).read_text())
    file = {"python": "desk.toml", "rust": "rust.toml"}[language]
    if language == "rust":
        program: Path = request.getfixturevalue("rust_examples") / "orders"
        text = (tmp_path / file).read_text()
        assert '"../../target/release/examples/orders"' in text
        (tmp_path / file).write_text(text.replace("../../target/release/examples/orders", str(program)))

    def verb(*words: str) -> str:
        command = [sys.executable, "-m", "millstream", "service", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    up = [sys.executable, "-m", "millstream", "service", "up", file]
    for day in (1, 2):
        with process_in(tmp_path, up) as running:
            subprocess.run([sys.executable, "place.py", "3"], cwd=tmp_path, check=True, timeout=TIMEOUT)
            deadline = time.monotonic() + TIMEOUT
            while True:
                found = json.loads(verb("status", file, "--json"))["services"]
                lags = [lag["records"] for service in found for lag in service["inputs"]]
                states = [service["state"] for service in found]
                if set(lags) == {0} and set(states) == {"running"}:
                    break
                assert running.poll() is None and time.monotonic() < deadline, found
            verb("down", file)
            assert running.wait(TIMEOUT) == 0
        # The second day the ids are known already.
        totals = verb("export", "data/totals").split("---\n")
        assert totals[-1].split("counted:")[1].split() == (
            f"accepted: 3 rejected: {3 * (day - 1)} canceled: 0".split()
        )
        assert len(totals) == 3 * day
    latency = json.loads(verb("history", "--latency", "data/totals", "--json"))
    whole = [hop["count"] for hop in latency["hops"] if "take" not in hop["part"]]
    assert latency["calls"] == 6 and whole == [6, 6, 6]


@contextmanager
def process_in(folder: Path, command: Command) -> Iterator[subprocess.Popen[str]]:
    """A process in a folder, which is killed if it has not ended."""
    with open(folder / "log", "a") as log:
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True)
        try:
            yield running
        finally:
            running.kill()
            running.wait()


# The guide and the README.


GUIDES = (
    "flows.md",
    "state.md",
    "errors.md",
    "running.md",
    "time-and-windows.md",
    "joins.md",
    "journal.md",
    "recovery.md",
    "http.md",
    "http-post.md",
    "outbox.md",
    "two-machines.md",
    "queues.md",
    "testing.md",
    "replay.md",
    "types.md",
    "postgres.md",
    "objects.md",
    "brokers.md",
)


@pytest.mark.parametrize(
    "block",
    [block for name in GUIDES for block in blocks(GUIDE / name, "python") if "import millstream" in block],
)
def test_the_python_examples_of_the_guides_run(block: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", block]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr


def test_the_rust_example_of_the_readme_is_the_one_that_is_tested() -> None:
    program = (EXAMPLES / "word_count" / "main.rs").read_text()
    for part in blocks(ROOT / "README.md", "rust")[0].split("\n\n"):
        indented = [textwrap.indent(part.strip("\n"), " " * depth) for depth in (0, 4)]
        assert any(text in program for text in indented), part
