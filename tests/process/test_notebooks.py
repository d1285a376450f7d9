"""Cells of a real IPython kernel: an interrupt ends the flow of a cell, and the kernel runs the next one."""

import time
from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest
from jupyter_client import manager

PATIENCE = 60.0
SLOW = """
import time
import millstream as ms

def work(number):
    print("did", number, flush=True)
    time.sleep({seconds})
    return number

flow, out = ms.Flow("slow"), ms.testing.collect()
flow.source("in", ms.testing.items(range(100_000))).map(work).sink("out", out)
"""
QUICK = """
flow, after = ms.Flow("quick"), ms.testing.collect()
flow.source("in", ms.testing.items(range(10))).sink("out", after)
ms.run(flow)
assert after == list(range(10))
print("quick is done", flush=True)
"""


class Kernel:
    """A kernel and a client of it."""

    def __init__(self) -> None:
        self.manager, self.client = manager.start_new_kernel(startup_timeout=PATIENCE)

    def begin(self, code: str) -> str:
        """Sends a cell; returns the number of the request."""
        return str(self.client.execute(code))

    def wait_for_output(self, request: str, text: str) -> None:
        """Waits until a cell has printed this."""
        printed = ""
        while text not in printed:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream":
                printed += message["content"]["text"]

    def shown(self, request: str) -> str:
        """Waits until a cell has shown something; returns it as HTML."""
        while True:
            message = self.client.get_iopub_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == request and message["msg_type"] == "display_data":
                return str(message["content"]["data"]["text/html"])

    def reply(self, request: str) -> dict[str, Any]:
        """How a cell ended."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                message = self.client.get_shell_msg(timeout=1)
            except Empty:
                assert self.manager.is_alive(), "the kernel has died"
                continue
            if message["parent_header"]["msg_id"] == request:
                content: dict[str, Any] = message["content"]
                return content
        raise TimeoutError("the cell has not ended")

    def run(self, code: str) -> None:
        """Runs a cell, which must succeed."""
        reply = self.reply(self.begin(code))
        assert reply["status"] == "ok", reply

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    kernel = Kernel()
    try:
        yield kernel
    finally:
        kernel.stop()


def test_an_interrupt_ends_the_cell_and_the_next_one_runs_a_flow(kernel: Kernel) -> None:
    kernel.run(SLOW.format(seconds=0.2))
    for _ in range(2):
        cell = kernel.begin("ms.run(flow)")
        kernel.wait_for_output(cell, "did 0")
        kernel.manager.interrupt_kernel()
        reply = kernel.reply(cell)
        assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        # It ended orderly: what was done has arrived, and not all was done.
        kernel.run("assert 1 <= len(out) < 100_000, len(out)")
    quick = kernel.begin(QUICK)
    kernel.wait_for_output(quick, "quick is done")
    assert kernel.reply(quick)["status"] == "ok"


def test_a_second_interrupt_does_not_wait_for_the_step(kernel: Kernel) -> None:
    kernel.run(SLOW.format(seconds=3600))
    cell = kernel.begin("ms.run(flow)")
    kernel.wait_for_output(cell, "did 0")
    for _ in range(2):
        kernel.manager.interrupt_kernel()
        # The first has to be seen before the second comes: the same signal twice is one.
        time.sleep(0.5)
    reply = kernel.reply(cell)
    assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
    kernel.run(QUICK)
    assert kernel.manager.is_alive()


def test_cells_stop_wait_for_and_look_at_a_started_flow(kernel: Kernel) -> None:
    kernel.run(SLOW.format(seconds=0.01))
    kernel.run("running = flow.start()")
    kernel.run("while len(out) < 5: time.sleep(0.01)")
    # What is reported is as new as the workers have published it.
    kernel.run("while not running.report().steps: time.sleep(0.01)")
    kernel.run("while running.report().step('in')['items_out'] < 5: time.sleep(0.01)")
    # Another flow runs beside it, and an interrupt of a cell is not one of the flow.
    kernel.run(QUICK)
    cell = kernel.begin("print('waits', flush=True)\nrunning.wait()")
    kernel.wait_for_output(cell, "waits")
    kernel.manager.interrupt_kernel()
    assert kernel.reply(cell)["ename"] == "KeyboardInterrupt"
    kernel.run("before = len(out)\nwhile len(out) < before + 5: time.sleep(0.01)")
    kernel.run("running.stop()\nreport = running.wait(timeout=60)")
    kernel.run("assert report.step('out')['items_in'] == len(out) < 100_000, (str(report), len(out))")
