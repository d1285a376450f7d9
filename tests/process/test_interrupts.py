"""Ctrl-C on flows with slow steps: the first ends the run after the current item, the second at once, and a
notebook is interrupted after the flow. Handles of flows that were started do the same without signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

FLOW = """
import sys, time
import millstream as ms

def work(line):
    print("did", line, flush=True)
    time.sleep({seconds})
    return line

with open({path!r}, "w") as file:
    file.write("".join(f"{{n}}\\n" for n in range(6000)))
flow = ms.Flow("slow")
flow.source("in", ms.files.lines({path!r})).map(work).sink("out", ms.testing.collect())
"""
RUN = """
try:
    ms.run(flow)
    print("ended", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def started(code: str) -> subprocess.Popen[str]:
    """The code in a process of its own, once its step is at work."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "did 0\n"
    return process


def test_the_first_signal_ends_after_the_current_item(tmp_path: Path) -> None:
    process = started(FLOW.format(path=str(tmp_path / "lines"), seconds=0.5) + RUN)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")
    lines = out.splitlines()
    # 6,000 lines are one read of the file.
    assert lines[-1] == "ended" and len(lines) <= 4, lines


def test_the_second_signal_does_not_wait_for_the_item(tmp_path: Path) -> None:
    process = started(FLOW.format(path=str(tmp_path / "lines"), seconds=3600) + RUN)
    process.send_signal(signal.SIGINT)
    # The first must be received before the second is sent: the same signal twice is one.
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, "interrupted\n", "")


def test_a_second_signal_at_any_moment_of_an_item_ends_the_process_well(tmp_path: Path) -> None:
    for milliseconds in range(0, 100, 10):
        process = started(FLOW.format(path=str(tmp_path / "lines"), seconds=0.1) + RUN)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(milliseconds / 1000)
        out, errors = process.communicate(timeout=60)
        # An interpreter that is ending has no handler any more: a signal after the run ends it.
        well = (0, 130, -signal.SIGINT) if out.endswith("ended\n") else (0, 130)
        assert process.returncode in well and errors == "", (milliseconds, errors)


@pytest.mark.parametrize("verb", ["run", "diff"])
def test_a_signal_while_the_file_of_a_flow_is_read(tmp_path: Path, verb: str) -> None:
    file = tmp_path / "slow.py"
    file.write_text("import time\nprint('begun', flush=True)\ntime.sleep(3600)\n")
    (tmp_path / "state").mkdir()
    command = [sys.executable, "-m", "millstream", verb, str(file)]
    if verb == "diff":
        command += [str(file), "--replay", str(tmp_path / "state")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    where = f"{file}: cannot be loaded" if verb == "run" else str(file)
    assert (process.returncode, errors) == (130, f"millstream {verb}: {where}: interrupted\n")


def test_a_native_verb_ends_well(tmp_path: Path) -> None:
    """The native program has handled the signal: Python does not report it once more."""
    ms.Journal(tmp_path / "orders").close()
    command = [sys.executable, "-m", "millstream", "journal", "serve", str(tmp_path / "orders")]
    process = subprocess.Popen([*command, "--listen", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stderr.readline().startswith("listening on ")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "interrupted" not in errors, errors


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    code = FLOW.replace(".map(work)", '.flat_map(lambda n: ["x"] * 3000).merge(empty).map(work)')
    code = code.replace("flow = ms", "empty = None\nflow = ms").replace(
        'flow.source("in"', 'empty = flow.source("empty", ms.testing.items([]))\nflow.source("in"'
    )
    code = code.format(path=str(tmp_path / "lines"), seconds=0.01).replace("did {line}", "did")
    code = code.replace('print("did", line', 'print("did 0"')
    process = started(code + RUN)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and out.splitlines()[-1] == "ended"
    assert errors.startswith('flow "slow": stopped with ') and errors.count("\n") == 1, errors
    left = int(errors.split(" with ")[1].split(" ")[0])
    assert errors.endswith(" items in its steps: they are dropped\n")
    assert left > 1000


def test_ipython_raises_after_the_flow(tmp_path: Path) -> None:
    cells = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell({FLOW.format(path=str(tmp_path / "lines"), seconds=0.2)!r})
result = shell.run_cell("ms.run(flow)")
print(type(result.error_in_exec).__name__, flush=True)
print(shell.run_cell("1 + 1").result, flush=True)
"""
    process = started(cells)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "\nKeyboardInterrupt\n" in out and out.rstrip().endswith("2"), out


def endless(seconds: float) -> tuple[ms.Flow, list[Any]]:
    """A flow without an end whose step takes so long."""
    flow = ms.Flow("endless")
    out = ms.testing.collect()

    def work(n: int) -> int:
        time.sleep(seconds)
        return n

    flow.source("in", ms.generate(lambda: iter(int, 1))).map(work, name="work").sink("out", out)
    return flow, out


def test_a_started_flow_is_stopped_and_waited_for() -> None:
    flow, out = endless(0.001)
    running = flow.start()
    with pytest.raises(TimeoutError, match=r"the flow has not ended within 0\.01 s"):
        running.wait(timeout=0.01)
    while len(out) < 10:
        time.sleep(0.01)
    running.stop()
    report = running.wait(timeout=60)
    assert report.step("work")["items_in"] == len(out) >= 10
    assert running.wait().to_json() == running.report().to_json() == report.to_json()


def test_the_block_stops_the_flow() -> None:
    flow, out = endless(0.001)
    with flow.start(workers=2) as running:
        while len(out) < 10:
            time.sleep(0.01)
    assert running.report().step("work")["items_in"] == len(out)


def test_the_error_of_the_block_is_not_hidden_and_that_of_the_flow_is_raised() -> None:
    flow, _ = endless(0.001)
    with pytest.raises(ZeroDivisionError), flow.start():
        _ = 1 / 0
    failing = ms.Flow("failing")
    failing.source("in", ms.testing.items([1])).map(lambda n: n / 0, name="divide").sink(
        "out", ms.testing.collect()
    )
    with pytest.raises(ms.StepError, match="divide"), failing.start() as running:
        running.wait()
    assert running.wait().flow == "failing"


def test_a_dropped_handle_stops_its_flow() -> None:
    flow, _ = endless(0.001)
    before = threading.active_count()
    running = flow.start()
    del running
    assert threading.active_count() <= before + 1


def test_a_started_flow_keeps_state_as_run_does(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(ms.FlowUsageError, match="workers is a number"):
        endless(0)[0].start(workers=0)
    with pytest.raises(ms.FlowUsageError, match="drop_state needs"):
        endless(0)[0].start(drop_state=["x"])
    flow = ms.Flow("kept")
    out = ms.testing.collect()
    flow.source("in", ms.testing.items(range(10))).sink("out", out)
    flow.start(state=state).wait(timeout=60)
    assert out == list(range(10)) and os.listdir(state)


HUNG = """
import asyncio, itertools, sys, time
import millstream as ms

def hangs(n):
    if n == 50:
        print("did 0", flush=True)
        time.sleep(3600)
    return n

async def never_answers(n):
    if n == 50:
        print("did 0", flush=True)
        await asyncio.sleep(3600)
    return n

flow = ms.Flow("hung")
numbers = flow.source("numbers", ms.generate(itertools.count, rate=1000))
"""


def test_a_hung_call_that_an_end_waits_for_is_named() -> None:
    code = HUNG + 'numbers.map(hangs, name="ask").sink("out", ms.testing.discard())\n'
    process = started(code + RUN)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said == 'step "ask": the end of the flow waits for the item or the call that it is in\n'
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (130, "interrupted\n", "")


@pytest.mark.parametrize("options", ["", "concurrency=1", "ordered=False"])
@pytest.mark.parametrize("keeps", [True, False])
def test_a_hung_asyncio_call_is_abandoned(tmp_path: Path, options: str, keeps: bool) -> None:
    step = f'numbers.map_async(never_answers, name="ask", {options}).sink("out", ms.testing.discard())\n'
    run = RUN.replace("run(flow)", f"run(flow, state={str(tmp_path / 'state')!r})") if keeps else RUN
    process = started(HUNG + step + run)
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "ended\n")
    what = "the next start repeats what is not committed" if keeps else "their items are dropped"
    said = f"1 of its calls have not ended a second after the stop, and are abandoned: {what}\n"
    # With a state the call is saved, and is waited for only where another one needs its place.
    assert said in errors or (keeps and not errors)
