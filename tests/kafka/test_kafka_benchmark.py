"""The benchmark runs, with few messages, and checks its counts."""

import pytest
from broker import Broker
from millstream_bench import kafka


def test_each_way_has_a_figure(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka, "HOPS", 200)
    monkeypatch.setattr(kafka, "IDLE_SECONDS", 0.5)
    found = kafka.measure(broker, messages=3000, repeats=1)
    assert len(found) == 14 and all(figure >= 0 for figure in found.values())
    with pytest.raises(AssertionError, match="read: 1 messages, and there are 2"):
        kafka.check("read", 1, 2)
