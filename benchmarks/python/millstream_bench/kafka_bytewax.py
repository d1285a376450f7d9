"""The flows of the Kafka benchmark in Bytewax 0.21, beside which those of Millstream are measured.

    python kafka_bytewax.py SERVERS FROM [copy TO | count TO]

Reads a topic to its end: to nothing, or to the topic TO as it is or with a count by key, at least once.
Prints the number of messages, and messages per second. It needs `bytewax` and `confluent-kafka`, and not
Millstream.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

__all__ = ["main"]

BATCH = 10_000
TUNED = {"fetch.queue.backoff.ms": "5", "queued.min.messages": "100000", "fetch.wait.max.ms": "100"}


def main(servers: str, source: str, what: str = "nothing", target: str | None = None) -> None:
    """Runs the flow and prints its rate."""
    # Other type checkers than the one of Bytewax's users do not have its stubs here.
    from importlib import import_module

    op: Any = import_module("bytewax.operators")
    kafka: Any = import_module("bytewax.connectors.kafka")
    dataflow: Any = import_module("bytewax.dataflow")
    testing: Any = import_module("bytewax.testing")

    flow = dataflow.Dataflow("bench")
    made = kafka.KafkaSource([servers], [source], tail=False, add_config=TUNED, batch_size=BATCH)
    messages = op.input("in", flow, made)
    seen = 0

    def count(items: list[Any]) -> list[Any]:
        nonlocal seen
        seen += len(items)
        return items

    messages = op.flat_map_batch("seen", messages, count)
    if what == "nothing":
        op.output("out", messages, testing.TestingSink(_Nothing()))
    elif what == "copy":

        def to_copy(message: Any) -> Any:
            return kafka.KafkaSinkMessage(message.key, message.value)

        op.output("out", op.map("message", messages, to_copy), kafka.KafkaSink([servers], target))
    else:
        keyed = op.key_on("key", messages, lambda message: message.key.decode())
        counted = op.stateful_map("count", keyed, lambda total, _: ((total or 0) + 1, (total or 0) + 1))

        def to_message(pair: tuple[str, int]) -> Any:
            return kafka.KafkaSinkMessage(pair[0].encode(), str(pair[1]).encode())

        out = op.map("message", counted, to_message)
        op.output("out", out, kafka.KafkaSink([servers], target))
    began = perf_counter()
    testing.run_main(flow)
    print(seen, seen / (perf_counter() - began))


class _Nothing(list[Any]):
    """A list that keeps nothing."""

    def extend(self, _: object) -> None:
        pass

    def append(self, _: object) -> None:
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
