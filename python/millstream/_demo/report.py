"""The figures of a run of the demo: as a table, as JSON, and whether they may be believed."""

from __future__ import annotations

import json

from .flow import INITIAL, SHARES, Probe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._millstream import Report


def measured(
    report: Report,
    probe: Probe,
    run: tuple[float | None, dict[str, Any]],
    received: int,
    counts: dict[str, Any],
) -> dict[str, Any]:
    """The report of a run: ``run`` is the rate that was ordered, and the report of the sender."""
    import resource

    steps = {step["name"]: step for step in json.loads(report.to_json())["steps"]}
    rate, sent = run
    streams = sent["streams"]
    handled = max(steps["spread"]["items_in"] - INITIAL, 0)
    lags = [stream["lag_us"]["max"] for stream in streams if stream["lag_us"] is not None]
    return {
        "language": "Python",
        "workers": 1,
        "durable_sync": None,
        "rate_ordered": rate,
        "rate_reached": sum(stream["messages_per_second"] for stream in streams),
        "messages": handled,
        "counts": counts | {"handled": handled},
        "results": received,
        "skipped": steps["quotes"]["skipped"] + steps["orders"]["skipped"],
        "internal": internal(steps["spread"]),
        "internal_results": internal(steps["results"]),
        "end_to_end": probe.latencies(),
        "sender_lag_max_us": max(lags, default=None),
        "cpu_s_per_million": probe.cpu_seconds * 1e6 / max(handled, 1),
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def internal(step: dict[str, Any]) -> dict[str, float]:
    """The percentiles that the engine has of a step."""
    # The engine writes p99.9, and reports have p999_us.
    us = {f"{name.replace('.', '')}_us": value for name, value in step["latency_us"].items()}
    return {"count": step["items_in"]} | {name: us.get(name, 0.0) for name in SHARES}


def disagreement(counts: dict[str, Any]) -> str | None:
    """What does not agree, in words; None if all was done that was ordered.

    What became due in the last moment of a run that a signal ended was not sent.
    """
    agree = (
        (counts["sent"] == counts["ordered"] or counts["interrupted"])
        and counts["handled"] == counts["sent"]
        and counts["results"] == counts["expected_results"]
    )
    if agree and not counts["wrong_results"]:
        return None
    text = (
        "the counts disagree: ordered {ordered}, sent {sent}, handled {handled}; "
        "results expected {expected_results}, received {results}"
    ).format(**counts)
    return "; ".join([text, *counts["wrong_results"][:1]])


def as_text(report: dict[str, Any]) -> str:
    """The report as a person reads it."""
    rate = report["rate_ordered"]
    counts = report["counts"]
    ordered = "as fast as possible" if rate is None else f"{rate / 1e6:.3f} M msg/s ordered"
    head = ("p50", "p90", "p99", "p99.9", "p99.99", "max", "messages")
    latencies = {
        "internal, all messages": report["internal"],
        "internal, results to the socket": report["internal_results"],
        "end to end, open loop": report["end_to_end"],
    }
    lines = [
        f"Market Spread in Python, 1 worker, {ordered}: {report['rate_reached'] / 1e6:.3f} M msg/s, "
        f"{report['messages']} messages, {report['results']} results, {report['skipped']} skipped",
        "ordered {ordered}, sent {sent}, handled {handled}; results expected {expected_results}, "
        "received {results}, ".format(**counts)
        + f"{len(counts['wrong_results'])} of them wrong",
        row("latency, us", head),
        *(row(name, figures(latency)) for name, latency in latencies.items() if latency is not None),
    ]
    if report["sender_lag_max_us"] is not None:
        lines.append(f"the sender was at most {report['sender_lag_max_us']} us behind its schedule")
    lines.append(
        f"CPU {report['cpu_s_per_million']:.3f} s per million messages, "
        f"peak memory {report['peak_memory_mib']:.1f} MiB"
    )
    return "\n".join(lines)


def figures(latency: dict[str, float]) -> tuple[str, ...]:
    """The cells of a row."""
    return (*(f"{latency[name]:.1f}" for name in SHARES), str(latency["count"]))


def row(name: str, cells: tuple[str, ...]) -> str:
    """A row of the table of latencies."""
    return f"{name:<34} " + " ".join(f"{cell:>9}" for cell in cells[:-1]) + f" {cells[-1]:>11}"
