"""``ms.http.reply``: a request is answered by the flow that processes it."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import millstream as ms
import pytest

PATIENCE = 60.0


class Requests:
    """A source of requests, and what clients do with it.

    Args:
        reply: for how long a request waits.
        options: options of the source.
    """

    def __init__(self, reply: float = PATIENCE, **options: Any) -> None:
        self.bound: Queue[str] = Queue()
        self.source = ms.http.listen(
            "127.0.0.1:0", item="request", reply=reply, on_bound=self.bound.put, **options
        )
        self.address = ""

    def send(self, body: object) -> http.client.HTTPConnection:
        """Posts JSON."""
        connection = http.client.HTTPConnection(self.address, timeout=PATIENCE)
        connection.request("POST", "/", json.dumps(body), {"Content-Type": "application/json"})
        return connection

    def ask_raw(self, body: object) -> tuple[int, bytes, dict[str, str]]:
        """Posts JSON; returns status, body and headers of the answer, with names in lower case."""
        connection = self.send(body)
        answer = connection.getresponse()
        raw = answer.read()
        connection.close()
        return answer.status, raw, {name.lower(): value for name, value in answer.headers.items()}

    def ask(self, body: object) -> tuple[int, Any]:
        """The same, for an answer that is JSON."""
        status, raw, headers = self.ask_raw(body)
        assert headers["content-type"] == "application/json"
        return status, json.loads(raw)

    def start(self, flow: ms.Flow, **options: Any) -> Any:
        running = flow.start(**options)
        self.address = self.bound.get(timeout=PATIENCE)
        return running


def doubling(requests: Requests) -> ms.Flow:
    flow = ms.Flow("double")
    doubled = flow.source("asked", requests.source).map(
        lambda request: request.reply({"double": 2 * request.body})
    )
    doubled.sink("answers", ms.http.reply(requests.source))
    return flow


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("durable", [False, True])
def test_each_client_gets_the_reply_to_its_request(workers: int, durable: bool, tmp_path: Path) -> None:
    requests = Requests()
    flow = ms.Flow("double")
    asked = flow.source("asked", requests.source).redistribute()
    asked.map(lambda request: request.reply({"double": 2 * request.body})).sink(
        "answers", ms.http.reply(requests.source)
    )
    options: dict[str, Any] = {"state": tmp_path / "state", "epoch": 0.02} if durable else {}
    running = requests.start(flow, workers=workers, **options)
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(requests.ask, range(200)))
    running.stop()
    running.wait()
    assert answers == [(200, {"double": 2 * n}) for n in range(200)]


def test_a_reply_is_sent_after_the_commit_and_without_a_state_directory_at_once(tmp_path: Path) -> None:
    requests = Requests(reply=0.5)
    running = requests.start(doubling(requests), state=tmp_path / "state", epoch=3600)
    # The flow has replied, and nothing is committed: the request is accepted, and that is all.
    assert requests.ask(1) == (202, {"items": 1})
    running.stop()
    running.wait()

    requests = Requests()
    running = requests.start(doubling(requests), epoch=3600)
    assert requests.ask(1) == (200, {"double": 2})
    running.stop()
    running.wait()


def test_the_last_commit_of_a_run_sends_what_waits(tmp_path: Path) -> None:
    requests = Requests()
    seen = threading.Event()
    flow = ms.Flow("double")

    def double(request: ms.http.Request) -> ms.http.Reply:
        seen.set()
        return request.reply({"double": 2 * request.body})

    flow.source("asked", requests.source).map(double).sink("answers", ms.http.reply(requests.source))
    running = requests.start(flow, state=tmp_path / "state", epoch=3600)
    with ThreadPoolExecutor(1) as clients:
        answer = clients.submit(requests.ask, 4)
        assert seen.wait(PATIENCE)
        running.stop()
        running.wait()
        assert answer.result() == (200, {"double": 8})


def test_bodies_statuses_and_headers() -> None:
    replies: dict[str, Any] = {
        "json": lambda request: request.reply([None, "ü"], 201, {"X-Of": "one"}),
        "text": lambda request: request.reply("ü"),
        "bytes": lambda request: request.reply(b"\xff", 500),
        "none": lambda request: request.reply(status=204),
        "own": lambda request: request.reply("<Response/>", headers={"Content-Type": "application/xml"}),
    }
    requests = Requests()
    flow = ms.Flow("kinds")
    answers = flow.source("asked", requests.source).map(lambda request: replies[request.body](request))
    answers.sink("answers", ms.http.reply(requests.source))
    running = requests.start(flow)
    found = {}
    for kind in replies:
        status, raw, headers = requests.ask_raw(kind)
        found[kind] = (status, headers.get("content-type"), raw, headers.get("x-of"))
    running.stop()
    running.wait()
    assert found == {
        "json": (201, "application/json", '[null,"ü"]'.encode(), "one"),
        "text": (200, "text/plain; charset=utf-8", "ü".encode(), None),
        "bytes": (500, "application/octet-stream", b"\xff", None),
        "none": (204, None, b"", None),
        "own": (200, "application/xml", b"<Response/>", None),
    }


def test_a_request_without_a_reply_is_accepted_and_the_first_reply_counts() -> None:
    requests = Requests(reply=0.3)
    flow = ms.Flow("some")
    asked = flow.source("asked", requests.source).filter(lambda request: request.body > 0)
    twice = asked.flat_map(lambda request: [request.reply({"n": n}) for n in (1, 2)])
    twice.sink("answers", ms.http.reply(requests.source))
    running = requests.start(flow)
    assert requests.ask(0) == (202, {"items": 1})
    assert requests.ask(1) == (200, {"n": 1})
    running.stop()
    running.wait()


def test_a_disconnected_client_delays_no_other() -> None:
    requests = Requests()
    seen = threading.Event()
    may_go_on = threading.Event()
    flow = ms.Flow("gone")

    def wait(request: ms.http.Request) -> ms.http.Reply:
        seen.set()
        may_go_on.wait(PATIENCE)
        return request.reply(request.body)

    flow.source("asked", requests.source).map(wait).sink("answers", ms.http.reply(requests.source))
    running = requests.start(flow)
    gone = requests.send(1)
    assert seen.wait(PATIENCE)
    gone.close()
    may_go_on.set()
    assert requests.ask(2) == (200, 2)
    running.stop()
    running.wait()


def test_what_is_no_reply_is_for_the_policy(caplog: pytest.LogCaptureFixture) -> None:
    wrong: list[Any] = [
        {"status": 200},
        lambda request: request.reply("x", status=99),
        lambda request: request.reply("x", status=204),
        lambda request: request.reply("x", headers={"a b": "c"}),
        lambda request: request.reply({"n": float("nan")}),
        lambda request: request.reply({1, 2}),
    ]
    requests = Requests(reply=0.3)
    flow = ms.Flow("wrong")
    made = flow.source("asked", requests.source).map(
        lambda request: (
            request.reply("right")
            if request.body == len(wrong)
            else wrong[request.body](request)
            if callable(wrong[request.body])
            else wrong[request.body]
        )
    )
    made.sink("answers", ms.http.reply(requests.source), on_error="skip")
    running = requests.start(flow)
    assert [requests.ask(n)[0] for n in range(len(wrong))] == [202] * len(wrong)
    assert requests.ask_raw(len(wrong))[1] == b"right"
    running.stop()
    running.wait()


@pytest.mark.parametrize("durable", [False, True])
def test_a_flow_that_fails_answers_and_the_next_run_has_the_same_request(
    durable: bool, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"state": tmp_path / "state", "epoch": 0.02} if durable else {}
    ids: list[str] = []

    def fails(request: ms.http.Request) -> ms.http.Reply:
        ids.append(request.id)
        raise ValueError("planted")

    requests = Requests()
    flow = ms.Flow("double")
    flow.source("asked", requests.source).map(fails).sink("answers", ms.http.reply(requests.source))
    running = requests.start(flow, **options)
    # It is recorded, or was taken: that it has failed is in the log of the flow.
    assert requests.ask(1) == (202, {"items": 1})
    with pytest.raises(ms.StepError, match="planted"):
        running.wait()
    if not durable:
        return

    def works(request: ms.http.Request) -> ms.http.Reply:
        ids.append(request.id)
        return request.reply({"n": request.body})

    # The first request waits for no reply any more; a second one gets its own.
    requests = Requests()
    flow = ms.Flow("double")
    flow.source("asked", requests.source).map(works).sink("answers", ms.http.reply(requests.source))
    running = requests.start(flow, **options)
    assert requests.ask(2) == (200, {"n": 2})
    running.stop()
    running.wait()
    assert ids[0] == ids[1] != ids[2]


def test_mistakes_are_found_before_a_request_comes(tmp_path: Path) -> None:
    with pytest.raises(ms.FlowUsageError, match='reply needs item="request"'):
        ms.http.listen("127.0.0.1:0", reply=1)
    with pytest.raises(ms.FlowUsageError, match="no source of requests"):
        ms.http.reply(ms.files.lines(tmp_path / "in"))
    with pytest.raises(ms.FlowUsageError, match="source is a ByteSource"):
        ms.http.reply("asked")  # type: ignore[arg-type]
    with pytest.raises(ms.FlowUsageError, match="give it a time to wait for replies"):
        ms.http.reply(ms.http.listen("127.0.0.1:0", item="request"))


PROGRAM = """
import sys
import millstream as ms

asked = ms.http.listen(
    "127.0.0.1:0", item="request", reply=60, on_bound=lambda address: open(sys.argv[1], "w").write(address)
)
flow = ms.Flow("double")
shared = flow.source("asked", asked).key_by(lambda request: request.body % 7).values()
doubled = shared.map(lambda request: request.reply({"double": 2 * request.body}))
doubled.sink("answers", ms.http.reply(asked))
"""


def test_processes(tmp_path: Path) -> None:
    """The replies go to the process that has the clients."""
    program = tmp_path / "flow.py"
    bound = tmp_path / "bound"
    program.write_text(PROGRAM.replace("sys.argv[1]", repr(str(bound))))
    command = [sys.executable, "-m", "millstream", "run", "--processes", "2"]
    command += ["--state", str(tmp_path / "state"), "--epoch", "50ms", str(program)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + PATIENCE
        while not bound.exists() or not bound.read_text():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.02)
        requests = Requests()
        requests.address = bound.read_text()
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(requests.ask, range(50)))
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 0, errors
    assert answers == [(200, {"double": 2 * n}) for n in range(50)]
