"""Alerts: sensors whose mean temperature over ten seconds is above a limit.

millstream run alerts.py                        the readings of readings.jsonl, to the end
millstream run alerts.py:live --state state     what sensors.py sends over TCP, until Ctrl-C
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import millstream as ms

LIMIT = 30.0
"""Degrees Celsius."""
WINDOW = 10
"""Seconds over which readings are averaged."""
LATENESS = 2
"""Seconds for which a reading may be overtaken by later ones."""


def check(reading: dict[str, Any]) -> dict[str, Any]:
    """Returns the reading with a time and a number in it; raises if it has none."""
    time = datetime.fromisoformat(reading["time"])
    celsius = float(reading["celsius"])
    return {"sensor": str(reading["sensor"]), "time": time, "celsius": celsius}


def describe(name: str, source: Any) -> ms.Flow:
    """Returns the flow: readings of a source in, alerts out."""
    flow = ms.Flow(name)
    broken = ms.dead_letter(ms.files.write(f"{name}.broken.txt"))
    means = (
        flow.source("readings", source, on_error=broken)
        .map(check, name="check", on_error=broken)
        .event_time(lambda reading: reading["time"], lateness=LATENESS)
        .key_by(lambda reading: reading["sensor"])
        .map(lambda reading: reading["celsius"])
        .window("mean", ms.windows.tumbling(WINDOW))
        .mean()
    )
    alerts = means.filter(lambda mean: mean.value > LIMIT).items().map(alert)
    alerts.sink("alerts", ms.files.write_json_lines(f"{name}.jsonl"))
    lines = alerts.map(lambda alert: "{sensor}: {mean} degrees since {since}".format(**alert))
    lines.sink("screen", ms.stdout())
    return flow


def alert(mean: tuple[str, ms.windows.Windowed[float]]) -> dict[str, Any]:
    sensor, window = mean
    return {"sensor": sensor, "since": f"{window.start:%H:%M:%S}", "mean": round(window.value, 1)}


flow = describe("alerts", ms.files.json_lines("readings.jsonl"))

# Readings that arrive are recorded before they are processed: a killed flow resumes without a loss.
sensors = ms.tcp.listen("127.0.0.1:7001", framing="lines", decode=json.loads)
live = describe("live", sensors.durable())

if __name__ == "__main__":
    ms.run(flow)
