"""Counters and gauges of the user's program, beside those of the engine: on the page and for Prometheus."""

from __future__ import annotations

from .. import _millstream


def counter(name: str, help: str = "") -> _millstream.Counter:
    """Returns the counter of this name, which any function of a step may increase.

    It is on the page of a flow, and in ``/metrics`` as ``millstream_user_NAME_total``: summed over the
    workers, and with the label ``process`` for each process. It begins with 0 when the process does, and
    counts work: with a state directory an item that is processed again after a crash counts again.

    Args:
        name: its name, without ``_total``: letters, digits and ``_``. A name is for one thing: values of the
            data, of which there is no end, are no part of it.
        help: what it counts, in one sentence.

    Returns:
        The counter; the same one at each call with this name.

    Raises:
        FlowUsageError: the name is not valid, or is that of a gauge, or there are 1,000 names.

    Example:
        >>> import millstream as ms
        >>> rejected = ms.counter("orders_rejected", "Orders without a price")
        >>> def priced(order: dict) -> bool:
        ...     if "cents" not in order:
        ...         rejected.inc()
        ...     return "cents" in order
        >>> flow, out = ms.Flow("orders"), ms.testing.collect()
        >>> flow.source("in", ms.testing.items([{"cents": 3}, {}])).filter(priced).sink("out", out)
        >>> _ = ms.run(flow)
        >>> rejected.value
        1.0
    """
    return _millstream.user_counter(name, help)


def gauge(name: str, help: str = "") -> _millstream.Gauge:
    """Returns the gauge of this name, which any function of a step may set.

    It is on the page of a flow, and in ``/metrics`` as ``millstream_user_NAME``. Of several workers the last
    one that sets it counts; of several processes the page shows the sum.

    Args:
        name: its name: letters, digits and ``_``.
        help: what it is, in one sentence.

    Returns:
        The gauge; the same one at each call with this name.

    Raises:
        FlowUsageError: the name is not valid, or is that of a counter, or there are 1,000 names.

    Example:
        >>> import millstream as ms
        >>> newest = ms.gauge("newest_order_seconds", "The time of the newest order")
        >>> flow, out = ms.Flow("orders"), ms.testing.collect()
        >>> orders = flow.source("in", ms.testing.items([{"at": 5}]))
        >>> orders.inspect(lambda order: newest.set(order["at"])).sink("out", out)
        >>> _ = ms.run(flow)
        >>> newest.value
        5.0
    """
    return _millstream.user_gauge(name, help)
