"""Errors at the start of a service: inputs that are missing or wrong, components that lack something."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import millstream as ms
import pytest
from millstream.service import Recorder, every

TIMEOUT = 60


class Orders(Protocol):
    def place(self, id: str) -> None: ...

    def cancel(self, id: str) -> None: ...


class Replies(Protocol):
    def accepted(self, id: str) -> None: ...


class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies = replies

    def place(self, id: str) -> None:
        self.replies.accepted(id)

    def cancel(self, id: str) -> None: ...


DESK = """\
from typing import Protocol

class Orders(Protocol):
    def place(self, id: str) -> None: ...

class Replies(Protocol):
    def accepted(self, id: str) -> None: ...

class Desk(Orders):
    def __init__(self, replies: Replies) -> None:
        self.replies = replies

    def place(self, id: str) -> None:
        self.replies.accepted(id)
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "desk.py").write_text(DESK)
    command = [sys.executable, "-m", "millstream", "service", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True)


def refused(folder: Path, *arguments: str) -> str:
    process = start(folder, *arguments)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1, errors
    assert len(errors.splitlines()) == 1
    return errors


# Inputs.


def test_an_input_that_is_not_there_is_an_error_and_nothing_is_made(tmp_path: Path) -> None:
    ms.publisher(Orders, tmp_path / "orders")
    errors = refused(tmp_path, "run", "desk.py:Desk", "--in", "orders", "--in", "ordres", "--out", "replies")
    assert errors == "millstream service run: ordres: there is no journal here\n"
    with pytest.raises(ms.ServiceError, match="ordres: there is no journal here"):
        ms.serve(Desk, tmp_path / "ordres", out=tmp_path / "replies", drain=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ms.ServiceError, match="empty: there is no journal here"):
        ms.serve(Desk, tmp_path / "empty", out=tmp_path / "replies", drain=True)
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"desk.py", "orders", "empty"}


def waiting(folder: Path) -> subprocess.Popen[str]:
    """A service that waits for its input."""
    process = start(
        folder, "run", "desk.py:Desk", "--in", "orders", "--out", "replies", "--wait-for-inputs", "--drain"
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "millstream: waiting for orders\n"
    assert not (folder / "orders").exists() and not (folder / "replies").exists()
    return process


def test_an_input_may_be_waited_for(tmp_path: Path) -> None:
    process = waiting(tmp_path)
    ms.publisher(Orders, tmp_path / "made").place("A-1")
    os.rename(tmp_path / "made", tmp_path / "orders")
    out, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "calls 1, ticks 0, skipped 0, dead letters 0\n"), errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting(number: int, tmp_path: Path) -> None:
    process = waiting(tmp_path)
    process.send_signal(number)
    out, _ = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out) == (0, "calls 0, ticks 0, skipped 0, dead letters 0\n")
    assert not (tmp_path / "orders").exists() and not (tmp_path / "replies").exists()


@pytest.mark.parametrize("spelling", ["orders", "./orders", "../{name}/orders", "{whole}/orders", "link"])
def test_a_service_does_not_read_its_own_output(spelling: str, tmp_path: Path) -> None:
    ms.publisher(Orders, tmp_path / "orders").place("A-1")
    os.symlink("orders", tmp_path / "link")
    out = spelling.format(name=tmp_path.name, whole=tmp_path)
    before = len(ms.Journal(tmp_path / "orders", "r"))
    errors = refused(tmp_path, "run", "desk.py:Desk", "--in", "orders", "--out", out, "--drain")
    assert f"orders and {out} are one journal" in errors
    errors = refused(
        tmp_path, "run", "desk.py:Desk", "--in", "orders", "--out", "replies", "--dead-letters", out
    )
    assert f"orders and {out} are one journal" in errors
    assert len(ms.Journal(tmp_path / "orders", "r")) == before


class Prices(Protocol):
    def price(self, value: float) -> None: ...


def test_a_journal_of_another_interface_is_refused(tmp_path: Path) -> None:
    ms.publisher(Prices, tmp_path / "prices").price(1.0)
    text = "prices: holds calls of Prices only; the component is called through Orders"
    for run in (
        lambda: ms.serve(Desk, tmp_path / "prices", out=tmp_path / "replies", drain=True),
        lambda: ms.service.replay(Desk, tmp_path / "prices"),
    ):
        with pytest.raises(ms.ServiceError, match=text):
            run()
    # A journal may hold the calls of several interfaces, in any order.
    ms.publisher(Orders, tmp_path / "prices").place("A-1")
    assert ms.serve(Desk, tmp_path / "prices", out=tmp_path / "replies", drain=True).calls == 2


def test_records_that_are_no_calls_are_refused(tmp_path: Path) -> None:
    with ms.Journal(tmp_path / "lines") as lines:
        lines.append_many([b"a line", b"another"])
    with pytest.raises(ms.ServiceError, match="lines, record 0: is no call.* called through Orders"):
        ms.serve(Desk, tmp_path / "lines", out=tmp_path / "replies", drain=True)
    ms.publisher(Orders, tmp_path / "lines").place("A-1")
    report = ms.serve(Desk, tmp_path / "lines", out=tmp_path / "replies", on_error="skip", drain=True)
    assert (report.calls, report.skipped) == (3, 2)


def test_an_empty_journal_may_become_anything(tmp_path: Path) -> None:
    ms.Journal(tmp_path / "orders").close()
    assert ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", drain=True).calls == 0


# Components.


class Lacking(Orders):
    def place(self, id: str) -> None: ...


class AbstractOrders(ABC):
    @abstractmethod
    def place(self, id: str) -> None: ...


class LackingAbstract(AbstractOrders):
    pass


class NotYet(Protocol):
    def place(self, id: str) -> None:
        raise NotImplementedError("place")


class LackingNotYet(NotYet):
    pass


class Async(Desk):
    async def place(self, id: str) -> None:  # type: ignore[override]
        ...


def logged(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*arguments: Any) -> Any:
        return method(*arguments)

    return call


class AsyncWrapped(Desk):
    @logged
    async def place(self, id: str) -> None: ...


class Generator(Desk):
    def place(self, id: str):  # type: ignore[no-untyped-def]
        yield id


class Answers(Desk):
    def place(self, id: str) -> str:  # type: ignore[override]
        return id


class AnswersWithoutSaying(Desk):
    def place(self, id):  # type: ignore[no-untyped-def]
        return f"{id} was placed"


class Short(Desk):
    def place(self) -> None:  # type: ignore[override]
        ...


class NoMethod(Desk):
    place = 7  # type: ignore[assignment]


class Ticks(Desk):
    @every(1.0)
    async def tick(self, now_ns: int) -> None: ...


class TicksWithout(Desk):
    @every(1.0)
    def tick(self) -> None: ...


@pytest.mark.parametrize(
    ("component", "text"),
    [
        (Lacking, "Lacking, cancel of interface Orders: the component has no such method"),
        (LackingAbstract, "LackingAbstract, place of interface AbstractOrders: the component has no such"),
        (LackingNotYet, "LackingNotYet, place of interface NotYet: the component has no such method"),
        (Async, "Async, place of interface Orders: is async"),
        (AsyncWrapped, "AsyncWrapped, place of interface Orders: is async"),
        (Generator, "Generator, place of interface Orders: is a generator"),
        (Answers, "Answers, place of interface Orders: returns str; a method of a service returns None"),
        (AnswersWithoutSaying, "AnswersWithoutSaying, place of interface Orders: returns a value"),
        (Short, "Short, place of interface Orders: cannot be called with 1 arguments"),
        (NoMethod, "NoMethod, place of interface Orders: is no method"),
        (Ticks, "Ticks, tick, which is called every so often: is async"),
        (TicksWithout, "TicksWithout, tick, which is called every so often: cannot be called with 1"),
    ],
)
def test_a_component_that_does_not_do_what_its_interface_says(
    component: type, text: str, tmp_path: Path
) -> None:
    ms.publisher(Orders, tmp_path / "orders").place("A-1")
    (tmp_path / "in.yaml").write_text("place: A-1\n")
    for start in (
        lambda: ms.serve(component, tmp_path / "orders", out=tmp_path / "replies", drain=True),
        lambda: ms.service.replay(component, tmp_path / "orders"),
        lambda: ms.service.check(component, tmp_path),
        lambda: ms.service.Trial(component),
    ):
        with pytest.raises(ms.ServiceError) as raised:
            start()
        assert str(raised.value).startswith(text) or f": {text}" in str(raised.value)


def test_a_method_that_an_interface_has_with_a_body_need_not_be_there_again(tmp_path: Path) -> None:
    class Counting(Protocol):
        def place(self, id: str) -> None:
            self.placed: int = getattr(self, "placed", 0) + 1

    class Counter(Counting): ...

    Counter.__init__ = object.__init__  # type: ignore[method-assign]
    ms.publisher(Counting, tmp_path / "orders").place("A-1")
    assert ms.serve(Counter, tmp_path / "orders", drain=True).calls == 1


def interface(method: Any) -> type:
    class Odd(Protocol): ...

    Odd.place = method  # type: ignore[attr-defined]
    return Odd


def star(self: Any, *ids: str) -> None: ...
def double_star(self: Any, **ids: str) -> None: ...
def by_keyword(self: Any, *, id: str) -> None: ...
async def asynchronous(self: Any, id: str) -> None: ...
def answering(self: Any, id: str) -> int: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (star, r"interface Odd, place: takes \*ids"),
        (double_star, r"interface Odd, place: takes \*\*ids"),
        (by_keyword, "interface Odd, place: takes id by keyword only"),
        (asynchronous, "interface Odd, place: is async"),
        (answering, "interface Odd, place: returns int"),
        (property(answering), "interface Odd, place: is a property, not a method"),
        (staticmethod(answering), "interface Odd, place: is a staticmethod, not a method"),
        (classmethod(answering), "interface Odd, place: is a classmethod, not a method"),
    ],
)
def test_an_interface_whose_calls_cannot_be_recorded(method: Any, text: str, tmp_path: Path) -> None:
    odd = interface(method)
    with pytest.raises(ms.ServiceError, match=text):
        Recorder().publisher(odd)
    with pytest.raises(ms.ServiceError, match=text):
        ms.publisher(odd, tmp_path / "orders")
    assert not (tmp_path / "orders").exists()


def test_a_wrong_interface_is_reported_with_the_component(tmp_path: Path) -> None:
    class Odd(Protocol):
        def place(self, *ids: str) -> None: ...

    class Placer(Odd):
        def place(self, *ids: str) -> None: ...

    ms.publisher(Orders, tmp_path / "orders")
    with pytest.raises(ms.ServiceError, match=r"Placer: interface Odd, place: takes \*ids"):
        ms.serve(Placer, tmp_path / "orders", drain=True)


def test_what_is_no_class_is_no_interface(tmp_path: Path) -> None:
    with pytest.raises(ms.ServiceError, match="is no interface: it is no class"):
        ms.publisher(lambda: 7, tmp_path / "orders")


def test_time_does_not_pass_for_a_service_that_waits(tmp_path: Path) -> None:
    """The input is looked for repeatedly, and no attempt leaves a file."""
    process = waiting(tmp_path)
    time.sleep(0.3)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["desk.py"]
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT) == 0
