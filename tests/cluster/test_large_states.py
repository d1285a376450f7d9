"""States of one key that are longer than a segment of the state journal: killed, resumed, divided anew."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from millstream.__main__ import main
from shapes import command, output
from supervised import Supervised, wait_for

COUNT = 300
"""So many texts of 64 KiB are the state of each step: 19 MiB, and a segment has 16."""

MESSAGE = "('message', '00000000', 65536)\n"

FLOW = """
import hashlib
import os
import time
from pathlib import Path

import millstream as ms

COUNT, GO, OUT = int(os.environ["COUNT"]), Path(os.environ["GO"]), os.environ["OUT"]


def text(number):
    return f"{number:08d}" * 8192


class Texts(ms.Source):
    \"\"\"COUNT texts and, once the file GO exists, one more and the end.\"\"\"

    def partitions(self):
        return ["all"]

    def open(self, partition, position):
        return Reading(position or 0)


class Reading:
    def __init__(self, at):
        self.at = at

    def next_batch(self):
        end = COUNT + 1 if GO.exists() else COUNT
        if self.at > COUNT:
            return None
        batch = [text(number) for number in range(self.at, min(self.at + 20, end))]
        self.at += len(batch)
        return batch

    def next_awake(self):
        return 0.01

    def position(self):
        return self.at


class Keep:
    \"\"\"A list as state.\"\"\"

    def __init__(self):
        self.texts = []

    def on_item(self, key, value):
        self.texts.append(value)

    def on_end(self, key):
        return [self.texts]


def summary(kind):
    def line(texts):
        return kind, len(texts), hashlib.sha256("".join(map(str, texts)).encode()).hexdigest()
    return line


@ms.source(resume=True, dedupe=ms.Dedupe(lambda message: message), buffer=20)
def messages(resume=None):
    if resume is None:
        for number in range(COUNT):
            yield ms.At(number + 1, text(number))
    while not GO.exists():
        time.sleep(0.01)
    # The server delivers all of them again, and a new one.
    for number in range(COUNT + 1):
        yield ms.At(COUNT + 1, text(number))


flow = ms.Flow("large")
texts = flow.source("texts", Texts()).event_time(lambda text: int(text[:8])).key_by(lambda text: "all")
none = texts.filter(lambda text: False)
window = texts.window("window", ms.windows.tumbling(1_000_000), ordered=True).collect().values()
pairs = texts.join("join", none, how="full", within=1_000_000).values()
lines = [
    window.map(lambda window: window.value).map(summary("window")),
    texts.collect(COUNT + 2).values().map(summary("collect")),
    texts.stateful("list", Keep).values().map(summary("list")),
    pairs.map(lambda pair: ("join", pair[0][:8], pair[1])),
    flow.source("messages", messages).map(lambda text: ("message", text[:8], len(text))),
]
for kind, stream in zip(["window", "collect", "list", "join", "message"], lines):
    stream.sink("out " + kind, ms.files.write(f"{OUT}.{kind}"))
"""


class Trial:
    """The flow in a folder, with the output of a run that nothing interrupts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.go = folder / "go"
        self.flow = folder / "large.py"
        self.out = folder / "out" / "out.txt"
        self.flow.write_text(FLOW)
        self.go.touch()
        whole = folder / "whole" / "out.txt"
        Supervised(command(self.flow), self.environment(whole)).end(0)
        self.go.unlink()
        self.expected = output(whole)

    def environment(self, out: Path) -> dict[str, str]:
        out.parent.mkdir(exist_ok=True)
        return os.environ | {"COUNT": str(COUNT), "GO": str(self.go), "OUT": str(out)}

    def start(self, *options: object) -> Supervised:
        state = ["--state", self.state, "--epoch", "200ms"]
        return Supervised(command(self.flow, *state, *options), self.environment(self.out))

    def interrupt(self, number: int, capfd: pytest.CaptureFixture[str], *options: object) -> None:
        """Runs the flow until all but the last text are committed, and sends it a signal."""
        running = self.start(*options)

        def is_committed() -> bool:
            capfd.readouterr()
            assert running.process.poll() is None, running.text
            if main(["state", "info", str(self.state), "--json"]):
                return False
            found = json.loads(capfd.readouterr().out)
            read = {source["name"]: source["position"] for source in found["sources"]}
            written = {sink["name"]: sink["length"] for sink in found["sinks"]}
            return (read.get("texts"), written.get("out message")) == (COUNT, COUNT * len(MESSAGE))

        wait_for(is_committed, "the commit of all texts")
        running.process.send_signal(number)
        running.process.wait()

    def finish(self, *options: object) -> None:
        self.go.touch()
        self.start(*options).end(0)
        assert output(self.out) == self.expected


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path)


def test_they_survive_the_death_of_the_process(trial: Trial, capfd: pytest.CaptureFixture[str]) -> None:
    assert len(trial.expected) == 3 + 2 * (COUNT + 1)
    for _ in range(2):
        trial.interrupt(signal.SIGKILL, capfd)
    capfd.readouterr()
    assert main(["state", "get", str(trial.state), "list", "all", "--json"]) == 0
    assert len(capfd.readouterr().out) > COUNT << 16
    # With another number of workers, whose keys are others.
    trial.finish("--workers", 2)


def test_they_move_to_another_process(trial: Trial, capfd: pytest.CaptureFixture[str]) -> None:
    trial.interrupt(signal.SIGTERM, capfd)
    assert main(["scale", str(trial.state), "--processes", "2"]) == 0, capfd.readouterr()
    trial.finish("--processes", 2)
