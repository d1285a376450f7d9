"""Answers to calls, and queries of components that run."""

from __future__ import annotations

import enum
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import millstream as ms
import pytest
from millstream import _millstream
from millstream._service.options import Hooks, Retention
from millstream.service import NoAnswerError, Recorder, ServiceError, Trial, query
from test_service_gateway import command, gateway

LONG = 60.0


class Orders(Protocol):
    def place(self, id: str, quantity: int = 1) -> None: ...

    def cancel(self, id: str) -> None: ...


class Replies(Protocol):
    def accepted(self, id: str, total: int) -> None: ...


class Side(enum.Enum):
    BUY = 1


@dataclass
class Position:
    side: Side
    price: Decimal
    total: int


class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.total = 0

    def place(self, id: str, quantity: int = 1) -> None:
        self.total += quantity
        self.replies.accepted(id, self.total)

    def cancel(self, id: str) -> None: ...

    @query
    def total_of(self, key: str, times: int = 1, negative: bool = False) -> dict[str, int]:
        return {key: self.total * times * (-1 if negative else 1)}

    @query
    def position(self) -> Position:
        return Position(Side.BUY, Decimal("1.50"), self.total)

    @query
    def failing(self) -> None:
        raise LookupError("no such order")

    @query
    def calling(self) -> None:
        self.replies.accepted("none", 0)


@contextmanager
def served(folder: Path) -> Iterator[None]:
    """The desk, on a thread, until the block ends."""
    ms.Journal(folder / "replies").close()
    stopper = _millstream.Stopper()
    hooks = Hooks(stopper, _millstream.Meter(), Retention(), (), lambda _: None)
    thread = threading.Thread(
        target=ms.serve,
        args=(Desk, folder / "orders"),
        kwargs={"out": folder / "replies", "hooks": hooks, "wait_for_inputs": True},
    )
    thread.start()
    try:
        yield
    finally:
        stopper.stop()
        thread.join(LONG)
        assert not thread.is_alive()


def test_a_call_returns_the_first_output_that_it_causes(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    out = tmp_path / "replies"
    with served(tmp_path):
        for total in (2, 4):
            answer = ms.call(orders.place, f"A-{total}", 2, out=out, timeout=LONG)
            assert answer is not None
            assert (answer.method, answer.arguments) == ("accepted", {"id": f"A-{total}", "total": total})
        # A default is completed.
        answer = ms.call(orders.place, "B", out=out, timeout=LONG)
        assert answer is not None and answer.arguments["total"] == 5
        with pytest.raises(NoAnswerError, match=r"record 4: no answer in .*replies after 0.01 s") as late:
            ms.call(orders.cancel, "B", out=out, timeout=0.01)
        assert isinstance(late.value, TimeoutError)


def test_a_call_without_an_output_says_so(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    out = tmp_path / "replies"
    with served(tmp_path):
        ended = threading.Event()

        def place() -> None:
            while not ended.is_set():
                ms.publisher(Orders, tmp_path / "orders").place("B")

        placing = threading.Thread(target=place)
        placing.start()
        try:
            assert ms.call(orders.cancel, "B", out=out, timeout=LONG) is None
        finally:
            ended.set()
            placing.join()


def test_what_is_no_call_is_refused(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    with pytest.raises(ServiceError, match="call takes a method of a publisher"):
        ms.call(print, "A", out=tmp_path / "replies")
    with pytest.raises(ServiceError, match="replies"):
        ms.call(orders.cancel, "A", out=tmp_path / "replies")
    assert ms.Journal(tmp_path / "orders").next == 0
    with pytest.raises(ServiceError, match="a recorder has no service"):
        ms.call(Recorder().publisher(Orders).cancel, "A", out=tmp_path / "replies")


def test_a_component_that_runs_is_asked(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    out = tmp_path / "replies"
    with pytest.raises(ServiceError, match="replies: position: no service with queries runs on this output"):
        ms.ask(out, "position")
    with served(tmp_path):
        ms.call(orders.place, "A", 3, out=out, timeout=LONG)
        recorded = ms.Journal(out).next
        assert ms.ask(out, "total_of", key="A") == {"A": 3}
        assert ms.ask(out, "total_of", key="A", times=2) == {"A": 6}
        assert ms.ask(out, "position") == {"side": "BUY", "price": "1.50", "total": 3}
        cases: list[tuple[str, dict[str, Any], str]] = [
            ("total_of", {}, "missing a required argument: 'key'"),
            ("total_of", {"key": "A", "times": "many"}, "times: 'many' is no int"),
            ("sum", {}, "the component has no query sum; it has calling, failing, position, total_of"),
            ("failing", {}, "failing: LookupError: no such order"),
            ("calling", {}, "a query makes no calls"),
        ]
        for name, arguments, message in cases:
            with pytest.raises(ServiceError, match=message):
                ms.ask(out, name, **arguments)
        assert ms.Journal(out).next == recorded
        ms.call(orders.place, "A", 1, out=out, timeout=LONG)
        assert ms.ask(out, "total_of", key="A") == {"A": 4}


def test_queries_are_plain_methods_in_a_trial() -> None:
    trial = Trial(Desk)
    trial.component.place("A", 2)
    assert trial.component.total_of("A") == {"A": 2}
    with pytest.raises(ServiceError, match="a query is a plain method"):

        @query
        async def total() -> int:
            return 0


DESK = """
from typing import Protocol


class Orders(Protocol):
    def place(self, id: str) -> None: ...


class Replies(Protocol):
    def accepted(self, id: str, total: int) -> None: ...


class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies, self.total_of_all = replies, 0

    def place(self, id: str) -> None:
        self.total_of_all += 1
        self.replies.accepted(id, self.total_of_all)

    @query
    def total(self, key: str, times: int = 1) -> dict[str, int]:
        return {key: self.total_of_all * times}
"""


def test_a_gateway_answers_and_serves_the_state(tmp_path: Path) -> None:
    text = "from millstream.service import query\n" + DESK
    (tmp_path / "desk.py").write_text(text)
    options = ["--calls", "orders=desk.py:Desk", "--answers", "orders=replies", "--state", "replies"]
    with gateway(tmp_path, *options) as (client, process):
        words = command("run", "desk.py:Desk", "--in", "orders", "--out", "replies", "--wait-for-inputs")
        desk = subprocess.Popen(words, cwd=tmp_path)
        try:
            answer = client.post("/Orders/place?answer=1&timeout=60", json={"id": "A"}).json()
            assert answer["answer"]["arguments"] == {"id": "A", "total": 1}
            while (state := client.get("/state/replies/total?key=A&times=2")).status_code == 503:
                pass
            assert (state.status_code, state.json()) == (200, {"A": 2})
            assert client.get("/state/replies?key=A").json() == {"A": 1}
            assert client.get("/state/replies?key=A&times=x").status_code == 400
            desk.send_signal(signal.SIGTERM)
            assert desk.wait(LONG) == 0
            assert client.get("/state/replies?key=A").status_code == 503
        finally:
            desk.kill()
            desk.wait()
