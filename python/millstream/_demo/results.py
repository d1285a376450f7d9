"""Whether a run did what was ordered: its counts, and each result against the one that is expected.

Running quotes never change a symbol that rejects. So the result of each rejected order is known from the
files that are sent, but for the moment at which it was rejected. The orders of a symbol stay in order on one
worker and one connection, so results are compared symbol by symbol, whatever order the symbols come in.
"""

from __future__ import annotations

import itertools
from collections import defaultdict

from ..market_spread import Market, Order, Quote, Result, spread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any


QUOTE_BYTES = 42
ORDER_BYTES = 53
RESULT_BYTES = 55


def messages(path: str, length: int) -> Iterator[bytes]:
    """The messages of a file, without their prefixes of four bytes."""
    with open(path, "rb") as file:
        while frame := file.read(4 + length):
            yield frame[4:]


def expected(initial: str, orders: str, count: int) -> Iterator[Result]:
    """The results of the first ``count`` orders of the stream, which is the file again and again."""
    markets: defaultdict[bytes, Market] = defaultdict(Market)
    for quote in map(Quote.unpack, messages(initial, QUOTE_BYTES)):
        spread(markets[quote.symbol], quote)
    rejected = []
    length = 0
    for order in map(Order.unpack, messages(orders, ORDER_BYTES)):
        result = spread(markets[order.symbol], order)
        if result is not None:
            rejected.append((length, result))
        length += 1
    for begin in range(0, count, length):
        for at, result in rejected:
            if begin + at < count:
                yield result


def by_symbol(results: Iterable[Any]) -> dict[bytes, list[tuple[object, ...]]]:
    """Results without the moment at which each was given."""
    found: dict[bytes, list[tuple[object, ...]]] = {}
    for one in results:
        values = one.side, one.account, one.id, one.symbol, one.quantity, one.price, one.bid, one.offer
        found.setdefault(one.symbol, []).append(values)
    return found


def wrong(received: Iterable[Any], wanted: Iterable[Any]) -> Iterator[str]:
    """What is wrong with the results of some symbols: the first of each."""
    got = by_symbol(received)
    want = by_symbol(wanted)
    for symbol in sorted(got | want):
        pairs = itertools.zip_longest(want.get(symbol, ()), got.get(symbol, ()), fillvalue="nothing")
        for at, (one, other) in enumerate(pairs):
            if one != other:
                name = symbol.decode("ascii", "replace").strip()
                yield f"result {at} of symbol {name}: expected {one}, received {other}"
                break


def counted(initial: str, orders: str, results: str, sent: dict[str, Any]) -> dict[str, Any]:
    """Compares what a run ordered, sent and received; what was handled is not known here."""
    received = [Result.unpack(result) for result in messages(results, RESULT_BYTES)]
    wanted = list(expected(initial, orders, sent["streams"][1]["messages"]))
    return {
        "ordered": sum(stream["ordered"] for stream in sent["streams"]),
        "sent": sum(stream["messages"] for stream in sent["streams"]),
        "handled": 0,
        "expected_results": len(wanted),
        "results": len(received),
        "wrong_results": list(wrong(received, wanted)),
        "interrupted": sent["interrupted"],
    }
