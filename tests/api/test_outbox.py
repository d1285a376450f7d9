"""Sinks to external systems: ``ms.sink`` on functions and classes."""

import asyncio
import inspect
import logging
import threading
from pathlib import Path
from types import FunctionType
from typing import Any

import millstream as ms
import pytest
from millstream._run.trial import run_crashing
from test_docstrings import PUBLIC

SOON = ms.Backoff(first=0.001, most=0.01)


class Rows:
    """A table: rows with their numbers, and a journal of what happened to it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Any]] = []
        self.events: list[str] = []
        self.threads: set[int] = set()

    def write(self, batch: list[Any], first: int, last: int) -> None:
        self.threads.add(threading.get_ident())
        assert len(batch) == last - first + 1
        self.rows.extend(zip(range(first, last + 1), batch, strict=True))

    def position(self) -> int | None:
        return self.rows[-1][0] if self.rows else None

    def items(self) -> list[Any]:
        assert [number for number, _ in self.rows] == list(range(len(self.rows)))
        return [item for _, item in self.rows]


def table_of(rows: Rows, **options: Any) -> Any:
    """A sink that remembers its position, over a table that outlives the connections."""

    @ms.sink(retry=SOON, **options)
    class Table:
        def __init__(self) -> None:
            rows.events.append("open")

        def connect(self, outbox: ms.OutboxIdentity) -> None:
            assert len(outbox.id) == 32
            rows.events.append(f"{outbox.flow} {outbox.sink}")

        def write(self, batch: list[Any], first: int, last: int) -> None:
            if first > 0:
                # As a transaction checks it.
                assert rows.position() == first - 1
            rows.write(batch, first, last)

        def position(self) -> int | None:
            return rows.position()

        def close(self) -> None:
            rows.events.append("close")

    return Table()


def async_table_of(rows: Rows, **options: Any) -> Any:
    @ms.sink(retry=SOON, **options)
    class Table:
        async def connect(self, outbox: ms.OutboxIdentity) -> None:
            self.loop = asyncio.get_running_loop()

        async def write(self, batch: list[Any], first: int, last: int) -> None:
            assert asyncio.get_running_loop() is self.loop
            await asyncio.sleep(0.0001)
            rows.write(batch, first, last)

        async def position(self) -> int | None:
            return rows.position()

    return Table()


def numbers(sink: Any, count: int = 100, name: str = "numbers") -> ms.Flow:
    flow = ms.Flow(name)
    flow.source("in", ms.testing.items(range(count), batch_size=7)).sink("out", sink)
    return flow


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("make", [table_of, async_table_of])
def test_a_destination_with_a_position_has_each_item_once(tmp_path: Path, make: Any, workers: int) -> None:
    rows = Rows()
    flow = numbers(make(rows, batch=3))
    crashes = 0
    while True:
        try:
            run_crashing(flow, workers, tmp_path, 2)
        except ms.SimulatedCrash:
            crashes += 1
            continue
        break
    assert crashes > 3
    assert sorted(rows.items()) == list(range(100))


@pytest.mark.parametrize("workers", [1, 3])
def test_a_function_has_each_item_at_least_once_with_one_number(tmp_path: Path, workers: int) -> None:
    known: dict[int, Any] = {}

    @ms.sink(batch=3, retry=SOON)
    def write(batch: list[Any], first: int, last: int) -> None:
        for number, item in zip(range(first, last + 1), batch, strict=True):
            assert known.setdefault(number, item) == item

    flow = numbers(write)
    while True:
        try:
            run_crashing(flow, workers, tmp_path, 2)
            break
        except ms.SimulatedCrash:
            pass
    assert sorted(known.values()) == list(range(100)) and sorted(known) == list(range(100))


def test_without_a_state_directory_each_item_is_delivered_while_the_run_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rows = Rows()
    with caplog.at_level(logging.INFO, "millstream"):
        report = ms.run(numbers(table_of(rows)), workers=2)
    assert sorted(rows.items()) == list(range(100))
    assert "at least once while this run lasts, as the flow has no state directory" in caplog.text
    assert report.outboxes[0]["delivered_records"] == 100


def test_all_calls_are_made_on_one_thread_that_ends_with_the_run(tmp_path: Path) -> None:
    for make in (table_of, async_table_of):
        for state in (tmp_path / make.__name__, None):
            rows = Rows()
            ms.run(numbers(make(rows, batch=2), 9), state=state, workers=2)
            assert len(rows.threads) == 1
    names = [thread.name for thread in threading.enumerate() if thread.name == "millstream sink out"]
    for thread in [thread for thread in threading.enumerate() if thread.name in names]:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "error", [OSError(5, "no"), ConnectionError(), TimeoutError(), asyncio.TimeoutError(), ms.RetryLater()]
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_may_succeed_later_is_tried_again(tmp_path: Path, error: Exception, asynchronous: bool) -> None:
    rows = Rows()
    left = [error] * 3

    def write(batch: list[Any], first: int, last: int) -> None:
        if left:
            raise left.pop()
        rows.write(batch, first, last)

    async def write_later(batch: list[Any], first: int, last: int) -> None:
        write(batch, first, last)

    sink = ms.sink(write_later if asynchronous else write, retry=SOON)
    report = ms.run(numbers(sink), state=tmp_path)
    assert rows.items() == list(range(100))
    assert report.outboxes[0]["retries"] == 3
    assert report.outboxes[0]["failures_in_a_row"] == 0


def test_an_error_makes_a_new_connection(tmp_path: Path) -> None:
    rows = Rows()
    failing = [True]

    @ms.sink(retry=SOON)
    class Table:
        def __init__(self, name: str) -> None:
            rows.events.append(name)

        def write(self, batch: list[Any], first: int, last: int) -> None:
            if failing.pop() if failing else False:
                raise BrokenPipeError
            rows.write(batch, first, last)

        def close(self) -> None:
            rows.events.append("close")
            raise ValueError("it is lost anyway")

    ms.run(numbers(Table("table"), 3), state=tmp_path)
    assert rows.events == ["table", "close", "table", "close"]
    assert rows.items() == [0, 1, 2]


def test_a_destination_that_cannot_be_reached_is_tried_again(tmp_path: Path) -> None:
    rows = Rows()
    attempts = [0]

    @ms.sink(retry=SOON)
    class Table:
        def __init__(self) -> None:
            attempts[0] += 1
            if attempts[0] < 4:
                raise ConnectionRefusedError("nobody listens")

        def write(self, batch: list[Any], first: int, last: int) -> None:
            rows.write(batch, first, last)

    ms.run(numbers(Table()), state=tmp_path)
    assert attempts == [4] and rows.items() == list(range(100))


def test_an_item_that_was_written_before_an_error_is_not_written_again(tmp_path: Path) -> None:
    rows = Rows()
    errors = [ConnectionResetError("the answer is lost")] * 2

    @ms.sink(batch=5, retry=SOON)
    class Table:
        def write(self, batch: list[Any], first: int, last: int) -> None:
            rows.write(batch, first, last)
            if errors:
                raise errors.pop()

        def position(self) -> int | None:
            return rows.position()

    ms.run(numbers(Table()), state=tmp_path)
    assert rows.items() == list(range(100)) and not errors


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_any_other_exception_fails_the_flow(tmp_path: Path, state: bool, asynchronous: bool) -> None:
    def refuse(batch: list[Any], first: int, last: int) -> None:
        raise ValueError("no such column")

    async def refuse_later(batch: list[Any], first: int, last: int) -> None:
        refuse(batch, first, last)

    flow = numbers(ms.sink(refuse_later if asynchronous else refuse), 1)
    with pytest.raises(ms.StepError, match=r'"out".*record 0.*refuse.*no such column') as raised:
        ms.run(flow, state=tmp_path if state else None)
    assert (raised.value.step, raised.value.item) == ("out", "record 0")
    cause = raised.value.__cause__
    assert isinstance(cause, ValueError) and cause.__traceback__ is not None
    trace = cause.__traceback__
    names = []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next  # type: ignore[assignment]
    assert names[-1] == "refuse"


def test_the_items_of_a_flow_that_failed_are_delivered_by_the_next(tmp_path: Path) -> None:
    def refuse(batch: list[Any], first: int, last: int) -> None:
        raise ValueError("no")

    with pytest.raises(ms.StepError):
        ms.run(numbers(ms.sink(refuse)), state=tmp_path)
    rows = Rows()
    ms.run(numbers(table_of(rows)), state=tmp_path)
    assert rows.items() == list(range(100))


def test_attempts_may_be_limited(tmp_path: Path) -> None:
    attempts = [0]

    @ms.sink(retry=ms.Backoff(first=0.001, tries=3))
    def write(batch: list[Any], first: int, last: int) -> None:
        attempts[0] += 1
        raise ConnectionError("away")

    with pytest.raises(ms.StepError, match="away") as raised:
        ms.run(numbers(write), state=tmp_path)
    assert attempts == [3] and isinstance(raised.value.__cause__, ConnectionError)


def test_at_the_end_a_destination_that_is_away_fails_the_run(tmp_path: Path) -> None:
    @ms.sink(retry=SOON, wait_at_end=0.2)
    def away(batch: list[Any], first: int, last: int) -> None:
        raise ConnectionError("away")

    with pytest.raises(ms.StepError, match="100 records wait in .*outputs.*away"):
        ms.run(numbers(away), state=tmp_path)
    rows = Rows()
    ms.run(numbers(table_of(rows)), state=tmp_path)
    assert rows.items() == list(range(100))
    # Nothing is new, and nothing is delivered again.
    ms.run(numbers(table_of(rows)), state=tmp_path)
    assert rows.items() == list(range(100))


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_within_a_delivery_ends_the_run_as_it_is(tmp_path: Path, raised: BaseException) -> None:
    def leave(batch: list[Any], first: int, last: int) -> None:
        raise raised

    async def leave_later(batch: list[Any], first: int, last: int) -> None:
        raise raised

    for number, write in enumerate((leave, leave_later)):
        with pytest.raises(type(raised)):
            ms.run(numbers(ms.sink(write)), state=tmp_path / str(number))


@pytest.mark.parametrize("position", [-1, "7", 1.5, 1 << 64])
def test_a_position_is_a_number_of_a_record(tmp_path: Path, position: Any) -> None:
    @ms.sink
    class Table:
        def write(self, batch: list[Any], first: int, last: int) -> None: ...

        def position(self) -> Any:
            return position

    with pytest.raises(ms.StepError, match="position returns the number of a record"):
        ms.run(numbers(Table()), state=tmp_path)


def test_a_position_beyond_the_outbox_is_an_error_with_the_ways_out(tmp_path: Path) -> None:
    @ms.sink
    class Table:
        def write(self, batch: list[Any], first: int, last: int) -> None: ...

        def position(self) -> int:
            return 1000

    with pytest.raises(ms.StepError, match=r'has record 1000 .*drop_state=\["out"\]'):
        ms.run(numbers(Table()), state=tmp_path)


def test_items_are_saved_as_states_are(tmp_path: Path) -> None:
    values: list[Any] = [None, True, 1, 1.5, "text", b"bytes", (1, "a"), {"k": [1]}, ValueError("v")]
    rows = Rows()
    flow = ms.Flow("values")
    flow.source("in", ms.testing.items(values)).sink("out", table_of(rows))
    ms.run(flow, state=tmp_path)
    assert list(map(repr, rows.items())) == list(map(repr, values))


def test_an_item_that_cannot_be_saved_fails_the_flow(tmp_path: Path) -> None:
    flow = ms.Flow("locks")
    flow.source("in", ms.testing.items([1])).map(lambda _: threading.Lock()).sink("out", table_of(Rows()))
    with pytest.raises(ms.StepError, match="cannot pickle") as raised:
        ms.run(flow, state=tmp_path)
    assert raised.value.step == "out"


def test_records_may_have_a_format_of_their_own(tmp_path: Path) -> None:
    raw = Rows()
    read = Rows()
    ms.run(numbers(table_of(raw, encode=lambda n: f"{n:04}"), 3), state=tmp_path / "raw")
    ms.run(numbers(table_of(read, encode=str, decode=int), 3), state=tmp_path / "read")
    assert (raw.items(), read.items()) == ([b"0000", b"0001", b"0002"], [0, 1, 2])
    with ms.Journal(tmp_path / "raw" / "outputs" / "out", "r") as journal:
        assert [record.body for record in journal] == [b"0000", b"0001", b"0002"]


def test_a_record_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    def decode(body: bytes) -> int:
        if body == b"2":
            raise LookupError("two")
        return int(body)

    with pytest.raises(ms.StepError, match="record 2 cannot be read.*two") as raised:
        ms.run(numbers(table_of(Rows(), encode=str, decode=decode), 4), state=tmp_path)
    assert isinstance(raised.value.__cause__, LookupError)


def test_dead_letters_go_to_external_systems(tmp_path: Path) -> None:
    rows = Rows()
    flow = ms.Flow("ages")
    texts = flow.source("in", ms.testing.items(["1", "x", "2", "y"]))
    texts.map(int, on_error=ms.dead_letter(table_of(rows))).sink("out", ms.testing.collect())
    ms.run(flow, state=tmp_path)
    assert [letter.item for letter in rows.items()] == ["x", "y"]


def test_two_steps_that_write_to_one_sink_have_one_outbox(tmp_path: Path) -> None:
    rows = Rows()
    sink = table_of(rows)
    flow = ms.Flow("two")
    stream = flow.source("in", ms.testing.items(range(50)))
    stream.map(lambda n: ("a", n)).sink("a", sink)
    stream.map(lambda n: ("b", n)).sink("b", sink)
    report = ms.run(flow, state=tmp_path)
    assert sorted(rows.items()) == [(name, n) for name in "ab" for n in range(50)]
    assert len(report.outboxes) == 1


def test_a_sink_serves_one_run_at_a_time(tmp_path: Path) -> None:
    inside = threading.Event()
    go_on = threading.Event()

    @ms.sink
    def slow(batch: list[Any], first: int, last: int) -> None:
        inside.set()
        go_on.wait(60)

    flow = ms.Flow("one")
    source = ms.generate(lambda: iter(int, 1), rate=1000)
    flow.source("in", source).sink("out", slow)
    running = flow.start(state=tmp_path / "one", epoch=0.01)
    assert inside.wait(60)
    with pytest.raises(OSError, match='sink "out" .*in use by another run'):
        ms.run(numbers(slow, name="two"), state=tmp_path / "two")
    go_on.set()
    running.stop()
    running.wait(timeout=60)


def test_sources_pause_while_too_much_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    away = threading.Event()
    rows = Rows()

    @ms.sink(retry=SOON, max_bytes=1000, batch=50)
    def write(batch: list[Any], first: int, last: int) -> None:
        if not away.is_set():
            raise ConnectionError("away")
        rows.write(batch, first, last)

    flow = ms.Flow("full")
    flow.source("in", ms.testing.items(range(3000), batch_size=10)).sink("out", write)
    with caplog.at_level(logging.INFO, "millstream"):
        running = flow.start(state=tmp_path, epoch=0)
        while "the sources of the flow pause" not in caplog.text:
            assert running.report is not None
        away.set()
        running.wait(timeout=120)
    assert rows.items() == list(range(3000))
    # One line for all pauses of a minute.
    assert caplog.text.count("the sources of the flow pause") == 1


def test_a_trial_replaces_the_sink() -> None:
    @ms.sink
    def never(batch: list[Any], first: int, last: int) -> None:
        raise AssertionError("it is not called")

    flow = ms.Flow("trial")
    flow.source("in", ms.testing.items([1, 2])).map(lambda n: n + 1).sink("out", never)
    assert ms.testing.crash_everywhere(flow, {"in": [1, 2]}) > 0


def test_mistakes_are_found_where_they_are_made() -> None:
    def fine(batch: list[Any], first: int, last: int) -> None: ...

    wrong: list[tuple[dict[str, Any], str]] = [
        ({"decode": int}, "decode needs encode"),
        ({"max_bytes": "7d"}, "max_bytes is a number of bytes"),
        ({"max_bytes": "all"}, "max_bytes is a number of bytes"),
        ({"max_age": "1GiB"}, "max_age is a number of seconds"),
        ({"max_age": -1}, "max_age is a number of seconds"),
        ({"batch": 0}, "batch is a number of items"),
        ({"wait_at_end": "1"}, "wait_at_end is a number of seconds"),
    ]
    for options, message in wrong:
        with pytest.raises(ms.FlowUsageError, match=message):
            ms.sink(fine, **options)
    with pytest.raises(ms.FlowUsageError, match=r"takes other arguments than \(batch, first, last\)"):
        ms.sink(lambda batch: None)  # type: ignore[call-overload]
    with pytest.raises(ms.FlowUsageError, match="no method write"):
        ms.sink(dict)
    with pytest.raises(ms.FlowUsageError, match="takes a function"):
        ms.sink(7)  # type: ignore[call-overload]
    with pytest.raises(ms.FlowUsageError, match=r"is no sink: decorate its class with ms\.sink"):
        numbers(Rows())
    with pytest.raises(TypeError, match="name"):

        @ms.sink
        class Table:
            def __init__(self, name: str) -> None: ...

            def write(self, batch: list[Any], first: int, last: int) -> None: ...

        Table(nme="x")  # type: ignore[call-arg]


def test_a_sink_is_called_in_tests_of_its_own() -> None:
    rows = Rows()
    write = ms.sink(rows.write)
    write.write([1], 0, 0)
    assert rows.items() == [1] and repr(write) == "<sink write>"
    sink = table_of(rows)
    with pytest.raises(ms.FlowUsageError, match=r"Table is a class: create an object of Table\.__wrapped__"):
        sink.write([1], 0, 0)


SINKS = {
    "clickhouse.write": {"batch": 10_000, "batch_bytes": "16MiB"},
    "mqtt.write": {},
    "nats.write": {},
    "objects.iceberg": {"batch": 100_000, "batch_bytes": "64MiB", "batch_age": 60.0},
    "objects.write": {"batch": 100_000, "batch_bytes": "16MiB", "batch_age": 10.0},
    "postgres.write": {"batch": 5000},
    "rabbitmq.write": {},
    "redis.write": {},
    "sqlite.write": {"batch": 5000},
}
"""The sinks with an outbox, and where their defaults differ."""


@pytest.mark.parametrize("name", SINKS)
def test_a_sink_shows_the_options_of_its_outbox(name: str) -> None:
    module, _, function = name.partition(".")
    write = getattr(getattr(ms, module), function)
    shown = inspect.signature(write).parameters
    for option, each in inspect.signature(ms.sink).parameters.items():
        if option not in ("write", "encode", "decode"):
            default = SINKS[name].get(option, each.default)
            assert (shown[option].default, shown[option].annotation) == (default, each.annotation)
            assert f"    {option}: " in (inspect.getdoc(write) or "")


def test_no_other_sink_hides_its_options() -> None:
    for name, it in PUBLIC.items():
        if isinstance(it, FunctionType):
            assert not {"outbox", "options"} & inspect.signature(it).parameters.keys(), name


@pytest.mark.parametrize(
    ("name", "make"),
    [
        (r"ms.postgres.write\(\)", lambda **options: ms.postgres.write("dbname=x", "t", **options)),
        (r"ms.sqlite.write\(\)", lambda **options: ms.sqlite.write("x.db", "t", **options)),
        (r"ms.redis.write\(\)", lambda **options: ms.redis.write("redis://localhost", "s", **options)),
    ],
)
def test_an_option_that_does_not_exist_is_named_with_its_function(name: str, make: Any) -> None:
    with pytest.raises(TypeError, match=f"^{name} got an unexpected keyword argument 'bach'$"):
        make(bach=1)
