"""Flows fed over TCP, killed with -9 under load: all that was recorded is in the output once, in order.

The recorded input is the judge: what the system had taken from the sender and the flow had not read is lost
with the flow, as documented. ``make kills`` kills more often (``MILLSTREAM_KILLS``, default 3
here). A failure prints the seed.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import struct
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flow_traffic import KILLS, PATIENCE, Killed, Sender, journal_items, journal_length, recorded, touch

SEED = int(os.environ.get("MILLSTREAM_SEED", "0")) or random.randrange(1 << 31)

WORD_COUNT = """
import os
import millstream as ms

flow = ms.Flow("word-count")
ends = {"connections": 1} if "LAST" in os.environ else {}
lines = ms.tcp.listen(f"127.0.0.1:{os.environ['PORT']}", decode=str, **ends).durable(keep="all")
keyed = flow.source("lines", lines).flat_map(str.split).key_by(str.lower)
each = keyed.count("each", name="each").items().map(lambda pair: f"{pair[0]} {pair[1]}")
each.sink("file", ms.files.write(os.environ["OUT"]))
each.sink("journal", ms.journals.append(os.environ["JOURNAL"]))
"""

MARKET_SPREAD = """
import os
import millstream as ms
from millstream.market_spread import Market, Order, Quote, spread

flow = ms.Flow("market-spread")
quotes = ms.tcp.listen(os.environ["QUOTES"], connections=2, decode=Quote).durable(keep="all")
orders = ms.tcp.listen(os.environ["ORDERS"], connections=1, decode=Order).durable(keep="all")
(
    flow.source("quotes", quotes).key_by("symbol")
    .merge(flow.source("orders", orders).key_by("symbol"))
    .stateful("spread", spread, state=Market)
    .values()
    .sink("results", ms.journals.append(os.environ["RESULTS_JOURNAL"]))
)
"""


def command(flow: Path, workers: int, state: Path) -> list[str]:
    options = ["--workers", str(workers), "--state", str(state), "--epoch", "20ms", "--sync", "never"]
    return [sys.executable, "-m", "millstream", "run", str(flow), *options]


def judge(
    flow: str, workers: int, killed: Killed, sent: int, pairs: dict[str, tuple[list[str], list[str]]]
) -> None:
    """Compares what should be with what is, for each sink; both as lines that begin with their key."""
    lost: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    disordered = 0
    for expected, found in pairs.values():
        lost += Counter(expected) - Counter(found)
        repeated += Counter(found) - Counter(expected)
        disordered += by_key(expected) != by_key(found)
    figures = {
        "promise": 9,
        "flow": flow,
        "workers": workers,
        "input": sent,
        "lost": lost.total(),
        "repeated": repeated.total(),
        "disordered": disordered,
        "first_seed": SEED,
    } | killed.figures()
    print(json.dumps(figures))
    assert not lost and not repeated and not disordered, figures


def by_key(lines: list[str]) -> dict[str, list[str]]:
    keys = defaultdict(list)
    for line in lines:
        keys[line.partition(" ")[0]].append(line)
    return keys


@pytest.mark.parametrize("workers", [1, 2])
def test_word_count(tmp_path: Path, workers: int, free_port: Callable[[], int]) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    flow, state, out, journal = (tmp_path / name for name in ("flow.py", "state", "out", "journal"))
    flow.write_text(WORD_COUNT)
    port = free_port()
    environment = os.environ | {"PORT": str(port), "OUT": str(out), "JOURNAL": str(journal)}
    words = (f"w{chance.randrange(500)} W{chance.randrange(50)}".encode() for _ in itertools.count())
    killed = Killed(command(flow, workers, state), environment, lambda: journal_length(journal), chance)
    sender = Sender(port, words)
    killed.kill(KILLS)
    connections = sender.connections
    last = killed.start(LAST="1")
    killed.go_on(last)
    sender.connected_after(connections)
    sender.stop()
    _, told = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, told
    expected = []
    counts = Counter[str]()
    lines = recorded(state, "lines")
    for word in b" ".join(lines).decode().lower().split():
        counts[word] += 1
        expected.append(f"{word} {counts[word]}")
    found = [record.decode() for record in journal_items(journal)]
    pairs = {"file": (expected, out.read_text().splitlines()), "journal": (expected, found)}
    judge("word count", workers, killed, len(lines), pairs)


def symbols() -> dict[bytes, tuple[float, float]]:
    """Bid and offer of each symbol: one in five rejects. They never change, so that it does not matter which
    of a quote and an order is faster."""
    return {
        b"%4d" % number: (10.0 + number, 10.0 + number + (0.0 if number % 5 else 0.06))
        for number in range(100)
    }


def quote(symbol: bytes, bid: float, offer: float) -> bytes:
    return struct.pack(">B4s21sdd", 2, symbol, b"20260105-09:30:00.000", bid, offer)


def orders(chance: random.Random) -> Iterator[bytes]:
    names = list(symbols())
    for number in itertools.count():
        head = struct.pack(">BBI6s4s", 1, 1, 7, b"%06x" % (number % (1 << 24)), chance.choice(names))
        yield head + struct.pack(">dd21s", 100.0, 10.0, b"20260105-09:30:00.000")


def results(lines: list[bytes]) -> list[str]:
    """What a result says of its order and quote, its symbol first; not when it was made."""
    return [f"{line[11:15].decode().strip()} {line[:47].hex()}" for line in lines]


def expected_results(orders: list[bytes]) -> list[str]:
    quotes = symbols()
    found = []
    for order in orders:
        bid, offer = quotes[order[12:16]]
        if offer - bid >= 0.05:
            found.append(order[1:32] + struct.pack(">dd", bid, offer))
    return results(found)


def market_spread(
    command: list[str], environment: dict[str, str], folder: Path, workers: int, ports: list[int]
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    state = folder / "state"
    journal = folder / "results"
    addresses = {"QUOTES": f"127.0.0.1:{ports[0]}", "ORDERS": f"127.0.0.1:{ports[1]}"}
    more = {"RESULTS_JOURNAL": str(journal), "STATE": str(state), "WORKERS": str(workers)}
    killed = Killed(command, environment | addresses | more, lambda: journal_length(journal), chance)
    again = itertools.cycle([quote(symbol, *prices) for symbol, prices in symbols().items()])
    quotes = Sender(ports[0], again)
    # Each symbol is quoted before there are orders: from then on all is known of what comes out.
    first = killed.start()
    started = time.monotonic()
    while journal_length(state / "inputs" / "quotes") < 2 or len(recorded(state, "quotes")) < 200:
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < started + PATIENCE
        time.sleep(0.05)
    # And committed: after a kill, inputs are repeated each in its own order, but not one after the other.
    before = journal_length(state / "epochs")
    while journal_length(state / "epochs") < before + 20:
        assert first.poll() is None, first.communicate()[1]
        assert time.monotonic() < started + PATIENCE
        time.sleep(0.05)
    ordering = Sender(ports[1], orders(chance))
    killed.go_on(first)
    first.kill()
    first.communicate(timeout=PATIENCE)
    killed.kill(KILLS)
    connections = [sender.connections for sender in (ordering, quotes)]
    last = killed.start()
    killed.go_on(last)
    ordering.connected_after(connections[0])
    quotes.connected_after(connections[1])
    ordering.stop()
    quotes.stop()
    touch(ports[0])
    _, told = last.communicate(timeout=PATIENCE)
    assert last.returncode == 0, told
    sent = recorded(state, "orders")
    judge(
        "market spread",
        workers,
        killed,
        len(sent),
        {
            "journal": (expected_results(sent), results(journal_items(journal))),
        },
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_market_spread_in_python(tmp_path: Path, workers: int, free_port: Callable[[], int]) -> None:
    flow = tmp_path / "flow.py"
    flow.write_text(MARKET_SPREAD)
    ports = [free_port(), free_port()]
    market_spread(command(flow, workers, tmp_path / "state"), dict(os.environ), tmp_path, workers, ports)


@pytest.mark.parametrize("workers", [1, 2])
def test_market_spread_in_rust(
    tmp_path: Path, workers: int, rust_examples: Path, free_port: Callable[[], int]
) -> None:
    ports = [free_port(), free_port()]
    market_spread([str(rust_examples / "market_spread")], dict(os.environ), tmp_path, workers, ports)
