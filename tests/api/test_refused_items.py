"""What a sink to an external system refuses or leaves out: which items it holds up, and where they go."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import millstream as ms
import pytest

SOON = ms.Backoff(first=0.001, most=0.01)


def numbers(sink: Any, count: int = 100, name: str = "numbers") -> ms.Flow:
    flow = ms.Flow(name)
    flow.source("in", ms.testing.items(range(count), batch_size=7)).sink("out", sink)
    return flow


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
    path = tmp_path / "letters"
    taken = list[Any]()
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
    items = list(range(100, 111))
    state = tmp_path if durable else None
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
    flow = ms.Flow("shared")
    sink = refusing([], {1})
    numbers = flow.source("in", ms.testing.items([1]))
    numbers.sink("one", sink, on_error=ms.dead_letter([]))
    numbers.sink("two", sink)
    with pytest.raises(ms.FlowUsageError, match='"one" and "two" write to one sink'):
        ms.run(flow)


def test_a_sink_of_dead_letters_has_none_of_its_own(tmp_path: Path) -> None:
    flow = ms.Flow("circle")
    refused = refusing([], {1})
    numbers = flow.source("in", ms.testing.items([1]))
    numbers.sink("one", refusing([], {1}), on_error=ms.dead_letter(refused))
    numbers.sink("two", refused, on_error=ms.dead_letter([]))
    with pytest.raises(ms.FlowUsageError, match='"two" has dead letters of its own and gets those of "one"'):
        ms.run(flow)
