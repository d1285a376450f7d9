"""The flow of the demo, and how its latencies are taken.

*Internal* latency is the age of a batch, since its frames were cut out of the read buffer, at the end of the
state step (and at the flush of the sink, for results); the engine measures it. *End-to-end* latency is open
loop: message ``i`` of a stream is due at ``start + i * interval``, and its latency runs from then until the
state step has handled it, however late the sender was. A message that was due and never sent is in it too,
with its lateness at the end of the run. It is taken batch by batch: every message of a batch is given the age
of its first one at the moment in which the whole batch is handled, which is never less than its own.
"""

from __future__ import annotations

import threading
import time
from array import array

from .. import tcp
from .._streams.flow import Flow
from ..market_spread import Market, Order, Quote, spread
from ..testing import discard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._streams.streams import Stream


INITIAL = 350
"""The initial quotes, one for each symbol, which have no schedule."""
UNSENT_GROUPS = 10_000
"""The number of groups, about, into which messages that were not sent are divided."""
SHARES = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "p999_us": 0.999, "p9999_us": 0.9999, "max_us": 1.0}


def describe(results_at: str, on_bound: Callable[[str, str], object], probe: Probe) -> Flow:
    """The flow: two streams into one state for each symbol; rejected orders go to ``results_at``.

    ``on_bound`` is called with the name of each source and where it listens.
    """
    flow = Flow("market-spread")

    def listen(name: str, connections: int, decode: Any) -> Stream:
        source = tcp.listen(
            "127.0.0.1:0",
            connections=connections,
            decode=decode,
            on_bound=lambda host, port: on_bound(name, f"{host}:{port}"),
        )
        return flow.source(name, source, on_error="skip")

    # Two connections bring quotes: the initial ones, then the running ones.
    quotes = listen("quotes", 2, Quote)
    orders = listen("orders", 1, Order)
    messages = (
        quotes.key_by("symbol").merge(orders.key_by("symbol")).map_batch(lambda batch: batch, name="messages")
    )
    results = messages.stateful("spread", spread, state=Market).values()
    results.sink("results", tcp.send_to(results_at))
    # Gets each batch after the state step: the readers of a stream run in the order in which they were added.
    messages.map_batch(probe.book, name="probe").values().sink("nothing", discard())
    return flow


class Probe:
    """When each batch was done: the number of its first message, its length, the time."""

    def __init__(self) -> None:
        self.initial = threading.Event()
        self.cpu_seconds = 0.0
        self._seen = {Quote: 0, Order: 0}
        self._rows = array("q")
        self._schedule: tuple[int, float] | None = None

    def book(self, values: list[Any]) -> list[Any]:
        """Books a batch, which is of one stream."""
        kind = type(values[0])
        first = self._seen[kind]
        self._seen[kind] = first + len(values)
        if kind is Quote:
            first -= INITIAL
            if first < 0:
                if self._seen[Quote] >= INITIAL:
                    self.cpu_seconds = time.process_time()
                    self.initial.set()
                return []
        self._rows.extend((first, len(values), time.monotonic_ns()))
        return []

    @property
    def handled(self) -> int:
        """The messages that are handled, without the initial quotes."""
        return sum(self._seen.values()) - INITIAL

    def schedule(self, start_ns: int, interval_ns: float) -> None:
        """Sets when the first message of each stream is due, and the time between two."""
        self._schedule = start_ns, interval_ns

    def ended(self, sent: dict[str, Any]) -> None:
        """Books what was due and never sent, as late as it was at the end."""
        self.cpu_seconds = time.process_time() - self.cpu_seconds
        for stream in sent["streams"]:
            index = stream["messages"]
            ordered = stream["ordered"]
            group = max((ordered - index) // UNSENT_GROUPS, 1)
            while index < ordered:
                count = min(group, ordered - index)
                self._rows.extend((index, count, sent["end_ns"]))
                index += count

    def latencies(self) -> dict[str, float] | None:
        """Percentiles in microseconds, each batch weighted by its length; None without a schedule."""
        if self._schedule is None:
            return None
        start_ns, interval_ns = self._schedule
        rows = self._rows
        aged = sorted(
            (rows[i + 2] - start_ns - rows[i] * interval_ns, rows[i + 1]) for i in range(0, len(rows), 3)
        )
        total = sum(weight for _, weight in aged)
        found: dict[str, float] = {"count": total}
        passed = 0
        ages = iter(aged)
        age = 0.0
        for name, share in SHARES.items():
            while passed < share * total:
                age, weight = next(ages)
                passed += weight
            found[name] = age / 1e3
        return found
