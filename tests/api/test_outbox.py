"""Sinks to external systems: ``ms.sink`` on functions and classes."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import millstream as ms
import pytest
from millstream._run.trial import run_crashing

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
    rows, left = Rows(), [error] * 3

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
    rows, attempts = Rows(), [0]

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
    rows, errors = Rows(), [ConnectionResetError("the answer is lost")] * 2

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
    trace, names = cause.__traceback__, []
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
    raw, read = Rows(), Rows()
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
    inside, go_on = threading.Event(), threading.Event()

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
    away, rows = threading.Event(), Rows()

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


def refusing(taken: list[Any], bad: set[Any], **options: Any) -> Any:
    """A sink that refuses each batch with a bad item."""

    @ms.sink(retry=SOON, **options)
    def picky(batch: list[Any], first: int, last: int) -> None:
        if bad & set(batch):
            raise ms.Refused(f"no {bad & set(batch)}")
        taken.extend(zip(range(first, last + 1), batch, strict=True))

    return picky


def run_into(sink: Any, items: list[Any], state: Path | None, on_error: Any = "fail") -> ms.Report:
    flow = ms.Flow("refusals")
    flow.source("in", ms.testing.items(items)).sink("out", sink, on_error=on_error)
    return ms.run(flow, state=state)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("bad", [{0}, {99}, {17, 18, 63}, set(range(10, 20)), set(range(100))])
def test_refused_items_hold_up_only_themselves(tmp_path: Path, durable: bool, bad: set[int]) -> None:
    taken: list[Any] = []
    state = tmp_path if durable else None
    report = run_into(refusing(taken, bad, batch=30), list(range(100)), state, "skip")
    assert taken == [(n, n) for n in range(100) if n not in bad]
    assert report.outboxes[0]["refused_records"] == len(bad)
    assert report.outboxes[0]["waiting_records"] == 0


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("bad", [{0}, {17, 18, 99}, set(range(100))])
def test_a_refused_item_is_a_dead_letter(tmp_path: Path, durable: bool, workers: int, bad: set[int]) -> None:
    taken: list[Any] = []
    letters: list[ms.DeadLetter] = []
    flow = ms.Flow("letters")
    numbers = flow.source("in", ms.testing.items(range(100))).redistribute()
    numbers.sink("out", refusing(taken, bad, batch=30), on_error=ms.dead_letter(letters))
    ms.run(flow, state=tmp_path if durable else None, workers=workers)
    assert sorted(item for _, item in taken) == sorted(set(range(100)) - bad)
    assert sorted(letter.item for letter in letters) == sorted(bad)
    placed = dict(taken) | {
        int(str(letter.position).removeprefix("record ")): letter.item for letter in letters
    }
    assert sorted(placed) == list(range(100)) and sorted(placed.values()) == list(range(100))
    for letter in letters:
        assert (letter.step, letter.key) == ("out", None)
        assert isinstance(letter.error, ms.Refused) and str(letter.error) == f"no {{{letter.item}}}"
    # Nothing is refused again.
    ms.run(flow, state=tmp_path if durable else None, workers=workers)
    assert len(letters) == (len(bad) if durable else 2 * len(bad))


def test_letters_of_one_sink_are_those_of_several_steps(tmp_path: Path) -> None:
    """In a file to which other steps write too, each letter is there once."""
    path, taken = tmp_path / "letters", list[Any]()
    letters = ms.dead_letter(ms.files.write(path, encode=lambda letter: f"{letter.step} {letter.item!r}"))
    for count in (10, 20):
        (tmp_path / "in").write_text("".join(f"{number}\n" for number in [*range(count), "x"]))
        flow = ms.Flow("shared")
        numbers = flow.source("in", ms.files.lines(tmp_path / "in")).map(int, name="int", on_error=letters)
        numbers.sink("out", refusing(taken, {3, 13}), on_error=letters)
        ms.run(flow, state=tmp_path / "state", drop_state=["in"] if count == 20 else [])
    found = sorted(path.read_text().splitlines())
    assert found == ["int 'x'", "int 'x'", "out 13", "out 3", "out 3"]


def test_the_error_of_a_refused_item_names_it_and_the_next_start_may_skip_it(tmp_path: Path) -> None:
    taken: list[Any] = []
    with pytest.raises(ms.FlowError, match=r"record 41: .*no \{41\}|no \{41\}"):
        run_into(refusing(taken, {41}), list(range(100)), tmp_path)
    run_into(refusing(taken, {41}), list(range(100)), tmp_path, "skip")
    assert taken == [(n, n) for n in range(100) if n != 41]


def test_a_sink_with_a_position_stores_what_it_skips(tmp_path: Path) -> None:
    stored: dict[str, Any] = {"last": None, "items": []}

    @ms.sink(retry=SOON)
    class Table:
        def write(self, batch: list[int], first: int, last: int) -> None:
            assert first == 0 or stored["last"] == first - 1
            if 7 in batch:
                raise ms.Refused("no 7")
            stored["items"] += batch
            stored["last"] = last

        def position(self) -> Any:
            return stored["last"]

        def skip(self, number: int) -> None:
            stored["last"] = number

    for _ in range(2):
        run_into(Table(), list(range(20)), tmp_path, "skip")
    assert stored == {"last": 19, "items": [n for n in range(20) if n != 7]}


def test_a_sink_with_a_position_and_no_skip_fails_with_what_it_lacks(tmp_path: Path) -> None:
    @ms.sink(retry=SOON)
    class Table:
        def write(self, batch: list[int], first: int, last: int) -> None:
            raise ms.Refused("no")

        def position(self) -> None:
            return None

    with pytest.raises(ms.FlowError, match="no method skip"):
        run_into(Table(), [1], tmp_path, "skip")


@pytest.mark.parametrize("durable", [True, False])
def test_items_that_encode_or_decode_fails_on_go_to_the_policy(tmp_path: Path, durable: bool) -> None:
    taken: list[Any] = []
    letters = ms.testing.collect()

    @ms.sink(retry=SOON, encode=lambda item: f"{1 // item}", decode=lambda text: 1 // (int(text) - 1))
    def numbers(batch: list[int], first: int, last: int) -> None:
        taken.extend(batch)

    # 0 cannot be encoded, and 1 not decoded.
    state = tmp_path if durable else None
    run_into(numbers, [5, 0, 1, 6], state, ms.dead_letter(letters))
    assert taken == [-1, -1]
    assert [letter.item for letter in letters] == [0, b"1"]


class Answer(Exception):
    def __init__(self, status: int) -> None:
        self.response = type("Response", (), {"status_code": status})()


def test_errors_of_the_usual_clients_are_distinguished(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    from urllib.error import HTTPError, URLError

    from millstream._errors.delivery import verdict

    def of_httpx(status: int) -> Exception:
        request = httpx.Request("POST", "http://a")
        return httpx.HTTPStatusError("", request=request, response=httpx.Response(status, request=request))

    def of_urllib(status: int) -> Exception:
        return HTTPError("http://a", status, "", None, None)  # type: ignore[arg-type]

    for made in (Answer, of_httpx, of_urllib):
        found = {
            status: verdict(made(status)) for status in (302, 400, 401, 403, 404, 408, 422, 429, 500, 503)
        }
        assert [status for status, each in found.items() if each == "retry"] == [408, 429, 500, 503]
        assert [status for status, each in found.items() if each == "refused"] == [400, 422]
    assert verdict(httpx.ConnectError("")) == verdict(httpx.ReadTimeout("")) == "retry"
    assert verdict(URLError("no route")) == verdict(TimeoutError()) == "retry"
    assert verdict(ValueError()) == verdict(httpx.InvalidURL("")) == "failed"


def test_a_client_error_is_not_an_outage(tmp_path: Path) -> None:
    calls: list[int] = []

    @ms.sink(retry=SOON)
    def post(batch: list[int], first: int, last: int) -> None:
        calls.append(len(batch))
        if 3 in batch:
            raise Answer(422)
        if len(calls) == 1:
            raise Answer(503)

    run_into(post, [1, 2, 3, 4], tmp_path, "skip")
    assert calls[-1] == 1 and sum(calls) < 20


PROGRAM = """
import millstream as ms

@ms.sink
class Table:
    def write(self, batch, first, last):
        if {fails}:
            raise ValueError("no")

    def close(self):
        print("closed")

# It lives until the interpreter ends.
flow = ms.Flow("names")
flow.source("in", ms.testing.items([1])).sink("out", Table())
try:
    ms.run(flow)
except ms.StepError:
    print("failed")
print("ended")
"""


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_is_closed_at_the_end_of_its_run_and_holds_up_no_end_of_a_program(fails: bool) -> None:
    program = PROGRAM.replace("{fails}", str(fails))
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == ["closed", *(["failed"] if fails else []), "ended"], ran.stderr
    assert ran.returncode == 0


class Leaving:
    """Has a position, and leaves out what ``left`` returns."""

    rows: ClassVar[dict[int, int]] = {}

    def __init__(self, left: Callable[[int, int], list[tuple[int, str]]]) -> None:
        self.left = left

    def connect(self, outbox: ms.OutboxIdentity) -> None:
        self.outbox = outbox

    def write(self, batch: list[int], first: int, last: int) -> None:
        for number, reason in self.left(first, last):
            self.outbox.leave_out(number, reason)
        Leaving.rows |= {number: item for number, item in enumerate(batch, first) if number % 2 == 0}
        Leaving.rows[last] = batch[-1]

    def position(self) -> int | None:
        return max(Leaving.rows, default=None)


@pytest.mark.parametrize("durable", [True, False])
def test_items_that_a_destination_leaves_out_are_counted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, durable: bool
) -> None:
    def odd(first: int, last: int) -> list[tuple[int, str]]:
        return [(number, "odd") for number in range(first, last + 1) if number % 2]

    Leaving.rows = {}
    with caplog.at_level(logging.WARNING, "millstream"):
        report = run_into(ms.sink(Leaving)(odd), list(range(100, 111)), tmp_path if durable else None, "skip")
    assert {number for number in Leaving.rows if number % 2 == 0} == set(range(0, 11, 2))
    assert (report.outboxes[0]["refused_records"], report.outboxes[0]["delivered_records"]) == (5, 6)
    logged = [number for number in range(11) if f"record {number} is refused and skipped: odd" in caplog.text]
    assert logged == [1, 3, 5, 7, 9]


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_destination_leaves_out_only_what_it_may(tmp_path: Path, on_error: str) -> None:
    Leaving.rows = {}
    number, says = (0, "is refused: why") if on_error == "fail" else (77, "is none of the write, which has 2")
    with pytest.raises(ms.FlowError, match=f"record {number} {says}"):
        run_into(ms.sink(Leaving)(lambda first, last: [(number, "why")]), [1, 2], tmp_path, on_error)


@pytest.mark.parametrize("durable", [True, False])
def test_what_a_destination_with_a_position_leaves_out_is_a_dead_letter(
    tmp_path: Path, durable: bool
) -> None:
    def odd(first: int, last: int) -> list[tuple[int, str]]:
        return [(number, "odd") for number in range(first, last + 1) if number % 2]

    Leaving.rows = {}
    letters: list[ms.DeadLetter] = []
    items, state = list(range(100, 111)), tmp_path if durable else None
    run_into(ms.sink(Leaving)(odd), items, state, ms.dead_letter(letters))
    assert {number for number in Leaving.rows if number % 2 == 0} == set(range(0, 11, 2))
    found = [(letter.item, letter.position, str(letter.error)) for letter in letters]
    assert found == [(100 + number, f"record {number}", "odd") for number in (1, 3, 5, 7, 9)]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("method", ["connect", "position", "skip"])
def test_a_refusal_of_no_item_fails_the_flow(tmp_path: Path, durable: bool, method: str) -> None:
    class Table:
        def write(self, batch: list[int], first: int, last: int) -> None:
            raise ms.Refused("no")

        def position(self) -> None:
            return None

        def skip(self, number: int) -> None:
            pass

    def refuse(self: Table, *_: object) -> None:
        raise ms.Refused(f"no {method}")

    setattr(Table, method, refuse)
    state = tmp_path if durable else None
    with pytest.raises(ms.FlowError, match=f"no {method}"):
        run_into(ms.sink(retry=SOON)(Table)(), [1, 2], state, ms.dead_letter([]))


@pytest.mark.parametrize("durable", [True, False])
def test_an_item_is_left_out_once_whatever_the_reason_is(tmp_path: Path, durable: bool) -> None:
    reasons: list[Any] = ["\ud800", ValueError("no number"), "again"]

    def left(first: int, last: int) -> list[Any]:
        return [(number, reason) for number in range(first, last + 1) for reason in reasons]

    Leaving.rows = {}
    letters: list[ms.DeadLetter] = []
    state = tmp_path if durable else None
    report = run_into(ms.sink(Leaving)(left), [1, 2], state, ms.dead_letter(letters))
    assert [letter.item for letter in letters] == [1, 2]
    assert report.outboxes[0]["refused_records"] == 2


def test_two_steps_do_not_share_a_sink_with_dead_letters(tmp_path: Path) -> None:
    flow, sink = ms.Flow("shared"), refusing([], {1})
    numbers = flow.source("in", ms.testing.items([1]))
    numbers.sink("one", sink, on_error=ms.dead_letter([]))
    numbers.sink("two", sink)
    with pytest.raises(ms.FlowUsageError, match='"one" and "two" write to one sink'):
        ms.run(flow)


def test_a_sink_of_dead_letters_has_none_of_its_own(tmp_path: Path) -> None:
    flow, refused = ms.Flow("circle"), refusing([], {1})
    numbers = flow.source("in", ms.testing.items([1]))
    numbers.sink("one", refusing([], {1}), on_error=ms.dead_letter(refused))
    numbers.sink("two", refused, on_error=ms.dead_letter([]))
    with pytest.raises(ms.FlowUsageError, match='"two" has dead letters of its own and gets those of "one"'):
        ms.run(flow)
