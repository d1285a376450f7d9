"""The profile of a run: ``millstream run --profile FILE`` writes it for https://www.speedscope.app.

It has three parts. *Steps*: the time that each worker spent in each step, as the engine measures it anyway.
*Functions*: the stacks of Python on the threads of the workers, sampled 100 times a second; the lowest frame
is the function of a step. *Waits*: the time of the collector of reference cycles, and the time that threads
waited for the lock of the interpreter.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
import time

from .. import _millstream
from .._errors.command import PACKAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any


INTERVAL_S = 0.01
"""The time between two samples."""
STACKS_MAX = 20_000
"""The number of different stacks that are kept; further ones count as one."""
DEPTH_MAX = 128
"""The number of frames of a stack that are kept: those that are called first."""
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Profile:
    """Measures from ``begin`` to ``end``.

    Args:
        path: where the profile is written.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.stacks: dict[tuple[CodeType | str, ...], float] = {}
        self.collections: dict[int, float] = {}
        self.waits = (0.0, 0)
        self.collecting_since = 0.0
        self.ended = threading.Event()
        self.sampler = threading.Thread(target=self.sample, name="millstream-profile", daemon=True)

    def begin(self) -> None:
        """Begins to measure."""
        with open(self.path, "w", encoding="utf-8"):
            pass  # a path that cannot be written is an error before the flow starts
        gc.callbacks.append(self.on_collection)
        self.waits = _millstream.measure_lock_waits(True)
        self.sampler.start()

    def end(self, flow: str, report: _millstream.Report | None) -> None:
        """Ends to measure, and writes the profile; ``report`` is that of a run that has not failed."""
        self.ended.set()
        self.sampler.join()
        seconds, count = _millstream.measure_lock_waits(False)
        self.waits = (seconds - self.waits[0], count - self.waits[1])
        gc.callbacks.remove(self.on_collection)
        written = Written()
        if report is not None:
            written.add("steps", steps_of(report))
        written.add("functions", [(functions(stack), weight) for stack, weight in self.stacks.items()])
        written.add("waits", self.all_waits())
        with open(self.path, "w", encoding="utf-8") as file:
            json.dump(written.document(flow), file)

    def sample(self) -> None:
        """Samples the threads until the end."""
        own = {threading.get_ident(), threading.main_thread().ident}
        last = time.perf_counter()
        while not self.ended.wait(INTERVAL_S):
            now = time.perf_counter()
            for ident, frame in sys._current_frames().items():
                if ident not in own:
                    self.add(stack_of(frame), now - last)
            last = now

    def add(self, stack: tuple[CodeType | str, ...], seconds: float) -> None:
        """Adds the time of a sample to its stack."""
        if stack not in self.stacks and len(self.stacks) >= STACKS_MAX:
            stack = ("(other stacks)",)
        self.stacks[stack] = self.stacks.get(stack, 0.0) + seconds

    def on_collection(self, phase: str, about: dict[str, int]) -> None:
        """Is called by the collector when it begins and ends."""
        if phase == "start":
            self.collecting_since = time.perf_counter()
            return
        took = time.perf_counter() - self.collecting_since
        generation = about["generation"]
        self.collections[generation] = self.collections.get(generation, 0.0) + took

    def all_waits(self) -> list[tuple[list[Frame], float]]:
        """The stacks of the collector and of the lock."""
        waits: list[tuple[list[Frame], float]] = [
            ([("collector of cycles", "", 0), (f"generation {generation}", "", 0)], seconds)
            for generation, seconds in sorted(self.collections.items())
        ]
        seconds, count = self.waits
        waits.append(([(f"waiting for the lock of the interpreter ({count} times)", "", 0)], seconds))
        return waits


Frame = tuple[str, str, int]
"""The name of a function, its file, and its first line."""


def stack_of(frame: FrameType | None) -> tuple[CodeType | str, ...]:
    """The functions of a stack without those of this package, the first caller first."""
    codes: list[CodeType | str] = []
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            codes.append(frame.f_code)
        frame = frame.f_back
    return tuple(codes[: -DEPTH_MAX - 1 : -1]) or ("millstream",)


def functions(stack: tuple[CodeType | str, ...]) -> list[Frame]:
    """A stack with names."""
    return [
        (code, "", 0)
        if isinstance(code, str)
        else (getattr(code, "co_qualname", code.co_name), code.co_filename, code.co_firstlineno)
        for code in stack
    ]


def steps_of(report: _millstream.Report) -> list[tuple[list[Frame], float]]:
    """A stack for each step on each worker, and one for the rest of its time."""
    stacks: list[tuple[list[Frame], float]] = []
    for number, steps in enumerate(report.workers):
        worker = (f"worker {number}", "", 0)
        busy = 0.0
        for step in steps:
            seconds = step["busy_ms"] / 1e3
            busy += seconds
            stacks.append(([worker, (f"{step['name']} ({step['kind']})", "", 0)], seconds))
        stacks.append(
            ([worker, ("no step: waiting, or the engine itself", "", 0)], max(0.0, report.seconds - busy))
        )
    return stacks


class Written:
    """The profiles of a document, which share their frames."""

    def __init__(self) -> None:
        self.frames: dict[Frame, int] = {}
        self.profiles: list[dict[str, Any]] = []

    def add(self, name: str, stacks: list[tuple[list[Frame], float]]) -> None:
        """Adds a profile of stacks and their seconds."""
        numbers = [
            [self.frames.setdefault(frame, len(self.frames)) for frame in stack] for stack, _ in stacks
        ]
        weights = [seconds for _, seconds in stacks]
        self.profiles.append(
            {
                "type": "sampled",
                "name": name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": numbers,
                "weights": weights,
            }
        )

    def document(self, flow: str) -> dict[str, Any]:
        """The whole document."""
        frames = [
            {"name": name, **({"file": file, "line": line} if file else {})}
            for name, file, line in self.frames
        ]
        return {
            "$schema": SCHEMA,
            "name": f"flow {flow}",
            "exporter": "millstream",
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
            "profiles": self.profiles,
        }
