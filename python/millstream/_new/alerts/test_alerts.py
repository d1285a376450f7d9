"""Run by: pytest"""

import json
from typing import Any

import alerts
import millstream as ms


def reading(second: int, celsius: Any, sensor: str = "boiler") -> str:
    time = f"2026-03-02T10:00:{second:02}+00:00"
    return json.dumps({"sensor": sensor, "time": time, "celsius": celsius})


READINGS = [
    reading(0, 31.0),
    reading(5, 35.0),
    reading(4, "broken"),
    reading(6, 12.0, sensor="cellar"),
    reading(15, 24.0),
    reading(25, 24.0),
]
ALERT = {"sensor": "boiler", "since": "10:00:00", "mean": 33.0}


def test_a_hot_window_is_one_alert() -> None:
    outputs = ms.testing.run_all(alerts.flow, {"readings": READINGS})
    assert outputs["alerts"] == [ALERT]


def test_a_broken_reading_is_a_dead_letter() -> None:
    (letter,) = ms.testing.run_all(alerts.flow, {"readings": READINGS})["check.dead_letters"]
    assert letter.item["celsius"] == "broken"


def test_a_crash_anywhere_changes_nothing() -> None:
    ms.testing.crash_everywhere(alerts.flow, {"readings": READINGS})
