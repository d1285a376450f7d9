"""Generator functions as sources, fed by an asyncio server: options, buffers, failures, stops."""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import datetime
import logging
import socketserver
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import millstream as ms
import pytest


class Lines(socketserver.ThreadingTCPServer):
    """Sends numbered lines to each client, and ends."""

    daemon_threads = True

    def __init__(self, count: int) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.writelines(b"%d\n" % number for number in range(count))

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@pytest.fixture
def port() -> Iterator[int]:
    with Lines(3000) as server:
        yield server.port
        server.shutdown()


@ms.source
async def lines(port: int) -> AsyncIterator[int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async for line in reader:
        yield int(line)
    writer.close()


def run(source: Any, **options: Any) -> list[Any]:
    flow = ms.Flow("adapter")
    out = ms.testing.collect()
    flow.source("in", source).sink("out", out)
    ms.run(flow, **options)
    return list(out)


def test_lines_of_a_server(port: int) -> None:
    assert run(lines(port)) == list(range(3000))


def test_durable_lines_and_two_partitions(port: int, tmp_path: Path) -> None:
    @ms.source(durable=True, partitions=["a", "b"])
    async def both(partition: str) -> AsyncIterator[str]:
        async for line in lines.function(port):
            yield f"{partition}{line}"

    found = run(both, state=tmp_path / "state", workers=2)
    assert sorted(found) == sorted(f"{name}{n}" for name in "ab" for n in range(3000))


def test_a_generator_that_is_not_asynchronous_and_lists() -> None:
    @ms.source(batches=True)
    def lists() -> Iterator[list[int]]:
        yield [1, 2]
        yield []
        yield [3]

    assert run(lists) == [1, 2, 3]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_the_generator_waits_while_the_buffer_is_full(asynchronous: bool) -> None:
    made = [0]

    def one() -> int:
        made[0] += 1
        return made[0]

    @ms.source(buffer=10)
    def plain() -> Iterator[int]:
        while made[0] < 1000:
            yield one()

    @ms.source(buffer=10)
    async def awaiting() -> AsyncIterator[int]:
        while made[0] < 1000:
            yield one()

    ahead = []

    def slow(number: int) -> int:
        ahead.append(made[0] - number)
        return number

    flow = ms.Flow("full")
    out = ms.testing.collect()
    source: Any = awaiting if asynchronous else plain
    flow.source("in", source, batch_size=1).map(slow).sink("out", out)
    ms.run(flow)
    assert list(out) == list(range(1, 1001))
    # One batch in the flow, one in the buffer, and the item that waits.
    assert max(ahead) <= 21


def test_an_error_names_the_source_and_has_its_cause() -> None:
    @ms.source
    async def fails() -> AsyncIterator[int]:
        yield 1
        raise OSError("no route")

    with pytest.raises(ms.FlowError, match="in") as caught:
        run(fails)
    assert isinstance(caught.value.__cause__, OSError)
    frames = [entry.name for entry in pytest.ExceptionInfo.from_exception(caught.value.__cause__).traceback]
    assert "fails" in frames


@pytest.mark.parametrize("asynchronous", [True, False])
def test_retries_resume_and_are_counted(asynchronous: bool) -> None:
    calls: list[Any] = []

    def some(resume: int | None) -> Iterator[ms.At[int]]:
        calls.append(resume)
        for number in range(resume or 0, 6):
            if number == 2 * len(calls):
                raise OSError("broken")
            yield ms.At(number + 1, number)

    retry = ms.Backoff(first=0.001, tries=2)

    @ms.source(resume=True, retry=retry)
    async def awaiting(resume: int | None = None) -> AsyncIterator[ms.At[int]]:
        for at in some(resume):
            yield at

    @ms.source(resume=True, retry=retry)
    def plain(resume: int | None = None) -> Iterator[ms.At[int]]:
        yield from some(resume)

    flow = ms.Flow("retries")
    out = ms.testing.collect()
    source: Any = awaiting if asynchronous else plain
    flow.source("in", source).sink("out", out)
    report = ms.run(flow)
    assert list(out) == list(range(6))
    assert calls == [None, 2, 4]
    assert report.step("in")["faults"] == 2


def test_retries_end() -> None:
    @ms.source(retry=ms.Backoff(first=0, tries=3))
    async def fails() -> AsyncIterator[int]:
        calls.append(1)
        raise OSError("no route")
        yield 1

    calls: list[int] = []
    with pytest.raises(ms.FlowError):
        run(fails)
    assert len(calls) == 3


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_flow_error_is_not_tried_again(asynchronous: bool) -> None:
    """It is for what a person must change, such as a login."""

    @ms.source(retry=ms.Backoff(first=0))
    async def awaiting() -> AsyncIterator[int]:
        calls.append(1)
        raise ms.FlowError("the login is refused")
        yield 1

    @ms.source(retry=ms.Backoff(first=0))
    def plain() -> Iterator[int]:
        calls.append(1)
        raise ms.FlowError("the login is refused")
        yield 1

    calls: list[int] = []
    with pytest.raises(ms.FlowError, match="the login is refused"):
        run(awaiting if asynchronous else plain)
    assert len(calls) == 1


def test_resume_continues_after_the_last_commit(tmp_path: Path) -> None:
    @ms.source(resume=True)
    async def numbers(end: int, resume: int | None = None) -> AsyncIterator[ms.At[int]]:
        for number in range(resume or 0, end):
            yield ms.At(number + 1, number)

    out = tmp_path / "out"
    for end in (5, 8):
        flow = ms.Flow("resume")
        flow.source("in", numbers(end)).map(str).sink("out", ms.files.write(out))
        ms.run(flow, state=tmp_path / "state")
    assert out.read_text().split() == [str(number) for number in range(8)]


@pytest.mark.parametrize(("state", "durable"), [(True, True), (True, False), (False, False)])
def test_acks_are_called_while_the_generator_lives(state: bool, durable: bool, tmp_path: Path) -> None:
    acked: list[int] = []
    enough = threading.Event()

    @ms.source(ack=True, durable=durable)
    async def deliveries() -> AsyncIterator[ms.At[int]]:
        alive = True

        def acknowledge(number: int) -> Any:
            async def call() -> None:
                assert alive
                acked.append(number)

            return call

        try:
            for number in range(10):
                yield ms.At(None, number, ack=acknowledge(number))
            enough.set()
            await asyncio.Event().wait()
        finally:
            alive = False

    flow = ms.Flow("acks")
    out = ms.testing.collect()
    flow.source("in", deliveries).sink("out", out)
    # No epoch ends by time: the only commit is that of the stop.
    with flow.start(state=tmp_path / "state" if state else None, epoch=3600.0) as running:
        assert enough.wait(60)
        while len(out) < 10 and running.report() is not None:
            threading.Event().wait(0.01)
        assert not state or durable or not acked
    assert acked == list(range(10))


def test_failing_acks_are_faults(tmp_path: Path) -> None:
    @ms.source(ack=True)
    async def one() -> AsyncIterator[ms.At[int]]:
        yield ms.At(None, 1, ack=lambda: 1 / 0)
        await asyncio.sleep(0.2)

    flow = ms.Flow("acks")
    flow.source("in", one).sink("out", ms.testing.collect())
    assert ms.run(flow).step("in")["faults"] == 1


def test_stops_close_generators() -> None:
    closed = []

    @ms.source
    async def waits() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            closed.append(1)

    flow = ms.Flow("stop")
    out = ms.testing.collect()
    flow.source("in", waits).sink("out", out)
    with flow.start():
        while not out:
            threading.Event().wait(0.01)
    assert closed == [1]


def test_a_generator_that_ignores_its_cancellation_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream._connectors.adapter.declare.CLOSE_SECONDS", 0.1)
    free = asyncio.Event()

    @ms.source
    async def stubborn() -> AsyncIterator[int]:
        yield 1
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                pass

    flow = ms.Flow("stop")
    out = ms.testing.collect()
    flow.source("in", stubborn).sink("out", out)
    with flow.start():
        while not out:
            threading.Event().wait(0.01)
    assert "stubborn has not finished within 0.1 s" in caplog.text
    from millstream._connectors.adapter.loop import event_loop

    event_loop().call_soon_threadsafe(free.set)


@pytest.mark.parametrize("state", [True, False])
def test_partitions_that_do_not_end_do_not_add_up(
    state: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("millstream._connectors.adapter.declare.CLOSE_SECONDS", 0.3)
    free = threading.Event()

    @ms.source(partitions=["a", "b"])
    def stubborn(partition: str) -> Iterator[str]:
        yield partition
        free.wait()

    flow = ms.Flow("stop")
    out = ms.testing.collect()
    flow.source("in", stubborn).sink("out", out)
    with flow.start(state=tmp_path if state else None):
        while len(out) < 2:
            threading.Event().wait(0.01)
    free.set()
    # With a state directory both are ended at once, after the last commit.
    late = [record.getMessage() for record in caplog.records if "has not finished" in record.getMessage()]
    first, second = (f"stubborn has not finished within {s} s of the end of the flow" for s in (0.3, 0.1))
    assert late == ([first, first] if state else [first, second])


def test_a_source_that_forgets_says_so(caplog: pytest.LogCaptureFixture, tmp_path: Path, port: int) -> None:
    with caplog.at_level(logging.WARNING):
        run(lines(port), state=tmp_path / "state")
    assert 'source "in": it neither resumes nor is durable' in caplog.text


def run_with_state(source: Any, folder: Path) -> None:
    flow = ms.Flow("adapter")
    flow.source("in", source).sink("out", ms.testing.discard())
    ms.run(flow, state=folder)


def test_positions_are_values_of_any_kind(tmp_path: Path) -> None:
    given: list[Any] = []
    moment = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)

    @ms.source(resume=True)
    async def one(resume: Any = None) -> AsyncIterator[ms.At[int]]:
        given.append(resume)
        yield ms.At({"shard": ("a", moment)}, 1)

    for _ in range(2):
        run_with_state(one, tmp_path)
    assert given == [None, {"shard": ("a", moment)}]


def test_the_position_of_another_kind_of_source_is_an_error(tmp_path: Path) -> None:
    run_with_state(ms.generate(lambda: range(3)), tmp_path)

    @ms.source(resume=True)
    async def one(resume: Any = None) -> AsyncIterator[ms.At[int]]:
        yield ms.At(1, 1)

    with pytest.raises(ms.FlowError, match=r"in.*the saved position 3 is that of another kind"):
        run_with_state(one, tmp_path)


def test_an_ack_that_hangs_is_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millstream._connectors.adapter.declare.CLOSE_SECONDS", 0.1)
    cancelled: list[bool] = []

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    @ms.source(ack=True)
    async def one() -> AsyncIterator[ms.At[int]]:
        yield ms.At(None, 1, ack=hangs)

    assert run(one) == [1]
    assert "acknowledgements of one have not finished within 0.1 s" in caplog.text
    while not cancelled:
        threading.Event().wait(0.01)


class Group(Exception):
    """A group of exceptions in Python 3.10, which has none."""


def test_a_group_of_exceptions_ends_the_flow() -> None:
    group = getattr(builtins, "ExceptionGroup", Group)("both", [OSError("one"), OSError("two")])

    @ms.source
    async def fails() -> AsyncIterator[int]:
        yield 1
        raise group

    with pytest.raises(ms.FlowError) as caught:
        run(fails)
    assert caught.value.__cause__ is group


def test_generators_run_in_the_context_of_the_caller() -> None:
    variable = contextvars.ContextVar("variable", default="none")

    @ms.source
    async def reads() -> AsyncIterator[str]:
        yield variable.get()

    variable.set("ours")
    assert run(reads) == ["ours"]


@pytest.mark.parametrize(
    ("options", "item", "message"),
    [
        ({"resume": True}, 1, "resume=True"),
        ({"resume": True}, ms.At(None, 1), "is not None"),
        ({"ack": True}, 1, "ack=True"),
        ({"batches": True}, 1, "yields lists"),
        ({}, ms.At(1, 1), "does not have resume=True"),
        ({}, ms.At(None, 1, ack=print), "does not have ack=True"),
    ],
)
def test_wrong_items_end_the_flow_in_spite_of_retries(
    options: dict[str, Any], item: Any, message: str
) -> None:
    @ms.source(retry=ms.Backoff(), **options)
    async def wrong(resume: Any = None) -> AsyncIterator[Any]:
        yield item

    with pytest.raises(ms.FlowError, match=message):
        run(wrong)


def test_wrong_functions_and_options() -> None:
    with pytest.raises(TypeError, match="generator function"):
        ms.source(lambda: [1])  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="missing a required argument: 'port'"):
        ms.Flow("f").source("in", lines)
    with pytest.raises(ms.FlowUsageError, match="1 or more"):
        ms.source(buffer=0)
    with pytest.raises(ms.FlowUsageError, match="different names"):
        ms.source(partitions=["a", "a"])
    with pytest.raises(ms.FlowUsageError, match="durable=True"):
        ms.source(keep="7d")
    with pytest.raises(ms.FlowUsageError, match=r"retry is a ms\.Backoff"):
        ms.source(retry=3)  # type: ignore[call-overload]
    with pytest.raises(ms.FlowUsageError, match="keep is a time"):
        ms.source(durable=True, keep="soon")
