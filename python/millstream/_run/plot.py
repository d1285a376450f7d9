"""Pictures of the metrics of a run: ``report.plot()``, and the table of a running flow in a notebook."""

from __future__ import annotations

from html import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._millstream import Report


PERCENTILES = ("p50", "p90", "p99", "p99.9")
"""The percentiles of the latency that are drawn."""


def plot(report: Report) -> Any:
    """Draws for each step the items per second that went in, and percentiles of their age at its end.

    Args:
        report: the metrics.

    Returns:
        The figure of matplotlib.

    Raises:
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    steps = report.steps
    names = [step["name"] for step in steps]
    places = range(len(steps))
    figure = Figure(figsize=(11, 1.5 + 0.35 * len(steps)), layout="constrained")
    rates, ages = figure.subplots(1, 2, sharey=True)
    seconds = max(report.seconds, 1e-9)
    rates.barh(places, [max(step["items_in"], step["items_out"]) / seconds for step in steps])
    rates.set_yticks(places, names)
    rates.invert_yaxis()
    rates.set_xlabel("items/s")
    rates.set_title(f"flow {report.flow}: {report.seconds:.1f} s")
    for number, percentile in enumerate(PERCENTILES):
        values = [step["latency_us"][percentile] / 1e3 for step in steps]
        ages.plot(values, places, "o", label=percentile, color=f"C{number}")
    if any(step["latency_us"]["max"] > 0 for step in steps):
        ages.set_xscale("log")
    ages.set_xlabel("age at the end of the step, ms")
    ages.legend()
    ages.grid(axis="y", alpha=0.3)
    return figure


def table(report: Report) -> str:
    """The counters of a flow as a table of HTML; names are escaped."""
    rows = "".join(
        f"<tr><td>{escape(step['name'])}</td><td>{step['items_in']:,}</td><td>{step['items_out']:,}</td>"
        f"<td>{step['latency_us']['p50'] / 1e3:.2f}</td><td>{step['latency_us']['p99'] / 1e3:.2f}</td></tr>"
        for step in report.steps
    )
    head = "<tr><th>step</th><th>in</th><th>out</th><th>p50 ms</th><th>p99 ms</th></tr>"
    return f"<table><caption>flow {escape(report.flow)}: {report.seconds:.1f} s</caption>{head}{rows}</table>"
