"""The two ends of ``millstream-bench service --python``.

They are called ``publish FOLDER FROM UNTIL RATE`` and ``consume FOLDER FROM``, with times in ns of
``CLOCK_MONOTONIC``. Order, schedule and report are those of the two ends in Rust. Both are started with
``PYTHONHASHSEED=0``, so that texts have the same hash in both.
"""

from __future__ import annotations

import json
import math
import sys
from array import array
from dataclasses import dataclass
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import Protocol

from millstream.service import char, i32, publisher, serve

__all__ = ["main"]

SYMBOLS = ("VOD.L", "BP.L", "HSBA.L", "AZN.L", "SHEL.L", "ULVR.L", "GSK.L", "RIO.L")
DAY_NS = 86_400_000_000_000
MASK = (1 << 64) - 1


@dataclass(slots=True)
class NewOrderSingle:
    """FIX NewOrderSingle."""

    sender_comp_id: str
    target_comp_id: str
    msg_seq_num: int
    sending_time: int
    poss_dup_flag: bool
    cl_ord_id: str
    account: str
    settl_type: char
    settl_date: i32
    handl_inst: char
    exec_inst: str
    min_qty: float
    max_floor: float
    ex_destination: str
    symbol: str
    security_id_source: char
    security_id: str
    side: char
    transact_time: int
    order_qty: float
    ord_type: char
    price: float
    stop_px: float
    currency: str
    time_in_force: char
    expire_time: int
    order_capacity: char
    text: str


class Orders(Protocol):
    """What the publisher calls."""

    def new_order_single(self, order: NewOrderSingle) -> None: ...

    def end(self) -> None: ...


def order(number: int, due: int) -> NewOrderSingle:
    """The order of this number, due at this time."""
    return NewOrderSingle(
        "CLIENT01",
        "EXCHANGE",
        number,
        due,
        False,
        f"20261121-{number % 100_000_000:08}",
        f"ACCT-00{number % 1000:03}",
        "0",
        20_261_123,
        "1",
        "G",
        100.0,
        500.0,
        "XLON",
        SYMBOLS[number % 8],
        "4",
        "GB00BH4HKS39",
        "2" if number % 2 else "1",
        due,
        100.0 + number % 900,
        "2",
        72.0 + number % 100 / 100,
        0.0,
        "GBP",
        "0",
        due + DAY_NS,
        "A",
        "algo=VWAP;parent=0000042",
    )


def digest(order: NewOrderSingle) -> int:
    """Of all fields, so that each of them is read."""
    return hash(
        (
            order.sender_comp_id,
            order.target_comp_id,
            order.msg_seq_num,
            order.sending_time,
            order.poss_dup_flag,
            order.cl_ord_id,
            order.account,
            order.settl_type,
            order.settl_date,
            order.handl_inst,
            order.exec_inst,
            order.min_qty,
            order.max_floor,
            order.ex_destination,
            order.symbol,
            order.security_id_source,
            order.security_id,
            order.side,
            order.transact_time,
            order.order_qty,
            order.ord_type,
            order.price,
            order.stop_px,
            order.currency,
            order.time_in_force,
            order.expire_time,
            order.order_capacity,
            order.text,
        )
    )


def publish(folder: str, start: int, until: int, rate: float) -> dict[str, int]:
    """Publishes on schedule, whatever the consumer does; with rate 0 as many as go. Gives how many, and their
    digest, which is taken after the run: it costs the publisher no time."""
    out = publisher(Orders, folder)
    gap = 1e9 / rate if rate > 0 else 0.0
    number = 0
    sent = array("q")
    while clock_gettime_ns(CLOCK_MONOTONIC) < start:
        pass
    while True:
        due = start + int(number * gap) if gap else clock_gettime_ns(CLOCK_MONOTONIC)
        if due >= until:
            break
        while clock_gettime_ns(CLOCK_MONOTONIC) < due:
            pass
        out.new_order_single(order(number, due))
        sent.append(due)
        number += 1
    out.end()
    of_all = 0
    for number, due in enumerate(sent):
        of_all ^= digest(order(number, due))
    return {"sent": len(sent), "digest": of_all & MASK}


def consume(folder: str, measured_from: int) -> dict[str, object]:
    """Takes orders until the publisher has ended."""
    samples = array("q")
    digests = [0]
    received = [0]
    times = array("q")

    class Digest(Orders):
        def new_order_single(self, order: NewOrderSingle) -> None:
            digests[0] ^= digest(order)
            received[0] += 1
            now = clock_gettime_ns(CLOCK_MONOTONIC)
            if order.sending_time >= measured_from:
                samples.append(now - order.sending_time)
                times.append(now)

        def end(self) -> None:
            raise KeyboardInterrupt

    try:
        serve(Digest, folder, wait="spin")
    except KeyboardInterrupt:
        pass
    seconds = (times[-1] - times[0]) / 1e9 if times else 0.0
    return {
        "latency": latency(samples),
        "rate": max(len(samples) - 1, 0) / max(seconds, 1e-9),
        "received": received[0],
        "digest": digests[0] & MASK,
    }


def latency(samples: array[int]) -> dict[str, float]:
    """The percentiles in microseconds."""
    ordered = sorted(samples) or [0]

    def at(quantile: float) -> float:
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] / 1e3

    return {
        "count": len(samples),
        "p50_us": at(0.5),
        "p90_us": at(0.9),
        "p99_us": at(0.99),
        "p999_us": at(0.999),
        "p9999_us": at(0.9999),
        "max_us": ordered[-1] / 1e3,
    }


def main(arguments: list[str]) -> None:
    """One of the two ends."""
    match arguments:
        case ["publish", folder, start, until, rate]:
            print(json.dumps(publish(folder, int(start), int(until), float(rate))))
        case ["consume", folder, measured_from]:
            print(json.dumps(consume(folder, int(measured_from))))
        case _:
            sys.exit("usage: publish FOLDER FROM UNTIL RATE | consume FOLDER FROM")


if __name__ == "__main__":
    main(sys.argv[1:])
