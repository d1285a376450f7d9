"""The reports of all processes of a flow, as one table."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


HEADINGS = ("step", "process", "in", "out", "busy ms", "skipped", "p50 us", "p99 us", "max us")


def merged(reports: Sequence[dict[str, Any]]) -> str:
    """A table with a row for each step of each process, and one for the step in all of them.

    Args:
        reports: those of the processes in their order, as ``Report.to_json`` writes them; with the number of
            the process under ``process`` where it is not the position in the list.

    Returns:
        The table. Percentiles of several processes cannot be added, so the row of all has none.

    Example:
        >>> step = {"name": "out", "items_in": 2, "items_out": 2, "busy_ms": 0.5, "skipped": 0}
        >>> step["latency_us"] = {"p50": 1.0, "p99": 2.0, "max": 2.0}
        >>> one = {"flow": "count", "seconds": 1.0, "steps": [step], "workers": [[step]]}
        >>> print(merged([one, one]).splitlines()[0])
        flow count ran 1.000 s on 2 processes x 1 workers
    """
    rows: list[tuple[str, ...]] = [HEADINGS]
    for at in range(len(reports[0]["steps"])):
        each = [report["steps"][at] for report in reports]
        for number, (report, one) in enumerate(zip(reports, each, strict=True)):
            latency = one["latency_us"]
            process = report.get("process", number)
            rows.append(row(f"p{process}", [one], [latency["p50"], latency["p99"]]))
        rows.append(row("all", each, []))
    first = reports[0]
    seconds = max(report["seconds"] for report in reports)
    places = f"{len(reports)} processes x {len(first['workers'])} workers"
    head = f"flow {first['flow']} ran {seconds:.3f} s on {places}"
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    lines = ["  ".join([one[0].ljust(widths[0]), *map(str.rjust, one[1:], widths[1:])]) for one in rows]
    return "\n".join([head, *lines]) + "\n"


def row(process: str, steps: Sequence[dict[str, Any]], percentiles: Sequence[float]) -> tuple[str, ...]:
    """The cells of a step, summed over these processes."""

    def total(name: str) -> float:
        return float(sum(step[name] for step in steps))

    shown = [f"{each:.1f}" for each in percentiles] or ["-", "-"]
    return (
        steps[0]["name"],
        process,
        f"{total('items_in'):.0f}",
        f"{total('items_out'):.0f}",
        f"{total('busy_ms'):.1f}",
        f"{total('skipped'):.0f}",
        *shown,
        f"{max(step['latency_us']['max'] for step in steps):.1f}",
    )
