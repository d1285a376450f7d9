"""Market Spread as a flow of Python objects, measured: ``millstream-bench market-spread --python``.

It speaks with the benchmark in lines of JSON. Out: where it listens; that the initial quotes are handled; at
the end what it measured. In, before the end: when the senders' schedule started, and the nanoseconds between
two messages; then when the senders ended, and the messages that were due and never sent, in groups of a first
message and a count.

End-to-end latency is taken batch by batch: every message of a batch is given the age of its first one at the
moment in which the whole batch is handled, which is never less than its own.
"""

from __future__ import annotations

import json
import sys
import time
from array import array

import millstream as ms
from millstream.market_spread import Market, Order, Quote, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INITIAL = 350


class Probe:
    """When each batch was done: its stream, the number of its first message, its length, the time."""

    def __init__(self) -> None:
        self.seen = {Quote: 0, Order: 0}
        self.rows = array("Q")
        self.cpu_start = 0.0

    def book(self, values: list[Any]) -> list[Any]:
        """Books a batch, which is of one stream."""
        kind = type(values[0])
        first = self.seen[kind]
        self.seen[kind] = first + len(values)
        if kind is Quote:
            first -= INITIAL
            if first < 0:
                if self.seen[Quote] == INITIAL:
                    self.cpu_start = time.process_time()
                    send_line({"initial": INITIAL})
                return []
        self.rows.extend((first, len(values), time.monotonic_ns()))
        return []

    def unsent(self, end_ns: int, groups: list[tuple[int, int]]) -> None:
        """Books what was due and never sent, as late as it was at the end."""
        for first, count in groups:
            self.rows.extend((first, count, end_ns))

    def latencies(self, start_ns: int, interval_ns: float) -> dict[str, float]:
        """Percentiles in microseconds, each batch weighted by its length."""
        rows = self.rows
        aged = sorted(
            (rows[i + 2] - start_ns - rows[i] * interval_ns, rows[i + 1]) for i in range(0, len(rows), 3)
        )
        total = sum(weight for _, weight in aged)
        found: dict[str, float] = {"count": total}
        marks = iter(
            [("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999), ("p9999_us", 0.9999)]
        )
        name, share = next(marks)
        passed = 0
        for age, weight in aged:
            passed += weight
            while passed >= share * total:
                found[name] = age / 1e3
                name, share = next(marks, ("", 2.0))
        found["max_us"] = aged[-1][0] / 1e3 if aged else 0.0
        return found


def send_line(line: dict[str, Any]) -> None:
    """Sends a line to the benchmark."""
    print(json.dumps(line), flush=True)


def main(results_at: str, spin: bool) -> None:
    """Runs the flow, one worker, until both streams have ended."""
    flow = ms.Flow("market-spread-python")
    bound: dict[str, str] = {}

    def listen(name: str, connections: int, decode: Any) -> ms.Stream:
        def on_bound(host: str, port: int) -> None:
            bound[name] = f"{host}:{port}"
            if len(bound) == 2:
                send_line(bound)

        source = ms.tcp.listen("127.0.0.1:0", connections=connections, decode=decode, on_bound=on_bound)
        return flow.source(name, source, on_error="skip")

    probe = Probe()
    quotes, orders = listen("quotes", 2, Quote), listen("orders", 1, Order)
    messages = (
        quotes.key_by("symbol").merge(orders.key_by("symbol")).map_batch(lambda batch: batch, name="messages")
    )
    results = messages.stateful("spread", spread, state=Market).values()
    results.sink("results", ms.tcp.send_to(results_at))
    # Gets each batch after the state step: the readers of a stream run in the order in which they were added.
    messages.map_batch(probe.book, name="probe").values().sink("nothing", ms.testing.collect())
    report = ms.run(flow, spin=spin)
    import resource

    cpu = time.process_time() - probe.cpu_start
    schedule = json.loads(sys.stdin.readline())
    ended = json.loads(sys.stdin.readline())
    probe.unsent(ended["end_ns"], ended["unsent"])
    end_to_end = (
        probe.latencies(schedule["start_ns"], schedule["interval_ns"]) if schedule["start_ns"] else None
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    send_line(
        {
            "report": json.loads(report.to_json()),
            "end_to_end": end_to_end,
            "cpu_seconds": cpu,
            "peak_memory_mib": memory,
        }
    )


if __name__ == "__main__":
    main(sys.argv[1], "--spin" in sys.argv[2:])
