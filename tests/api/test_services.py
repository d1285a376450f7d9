"""Services from Python: what is recorded, restarts, bad input, tests as data."""

from __future__ import annotations

import enum
import subprocess
import sys
import threading
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Protocol

import millstream as ms
import msgspec
import pytest
from millstream import _millstream
from millstream.service import Clock, Recorder, aliases, char, check, every, f32, timestamp, u32


class Side(enum.Enum):
    BUY = 1
    SELL = 2


@dataclass
class Leg:
    symbol: str
    quantity: u32 = 7


@dataclass
class Order:
    id: str
    price: float
    side: Side
    kind: char
    sent: timestamp
    limit: Decimal
    live: bool
    raw: bytes
    note: str | None = None
    legs: list[Leg] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    count: Annotated[int, aliases("quantity")] = 1


class Orders(Protocol):
    def place(self, order: Order) -> None: ...

    def cancel(self, id: str, reason: str = "none") -> None: ...


class Replies(Protocol):
    def accepted(self, id: str, total: int) -> None: ...

    def rejected(self, id: str, why: str, at: timestamp) -> None: ...


class Desk(Orders):
    """Accepts orders up to ten in all."""

    def __init__(self, replies: Replies, clock: Clock) -> None:
        self.replies = replies
        self.clock = clock
        self.total = 0

    def place(self, order: Order) -> None:
        if not order.id:
            raise ValueError("an order without an id")
        if self.total + order.count > 10:
            self.replies.rejected(order.id, "limit", self.clock.now_ns())
        else:
            self.total += order.count
            self.replies.accepted(order.id, self.total)

    def cancel(self, id: str, reason: str = "none") -> None:
        self.total = 0
        self.replies.rejected(id, reason, self.clock.now_ns())


def order(id: str = "A-1", count: int = 1) -> Order:
    return Order(
        id,
        72.5,
        Side.SELL,
        "X",
        1_795_253_400_000_000_000,
        Decimal("12.50"),
        True,
        b"\x00\xff",
        None,
        [Leg("VOD.L"), Leg("BP.L", 3)],
        {"a": -1},
        count,
    )


PLACE = """\
place:
  id: A-1
  price: 72.5
  side: SELL
  kind: X
  sent: 2026-11-21T09:30:00Z
  limit: 12.50
  live: true
  raw: AP8=
  legs:
    - symbol: VOD.L
      quantity: 7
    - symbol: BP.L
      quantity: 3
  tags:
    a: -1
  count: 1
"""


def test_a_publisher_writes_what_the_schema_says() -> None:
    recorder = Recorder()
    orders = recorder.publisher(Orders)
    orders.place(order())
    orders.cancel(reason="why", id="A-1")
    orders.cancel("A-2")
    calls = recorder.take()
    assert calls[0] == PLACE
    assert calls[1:] == ["cancel:\n  id: A-1\n  reason: why\n", "cancel:\n  id: A-2\n  reason: none\n"]


def test_a_component_is_called_with_what_was_published(tmp_path: Path) -> None:
    taken: list[object] = []

    class Notes(Orders):
        def place(self, order: Order) -> None:
            taken.append(order)

        def cancel(self, id: str, reason: str = "none") -> None:
            taken.append((id, reason))

    orders = ms.publisher(Orders, tmp_path / "orders")
    orders.place(order())
    orders.cancel("A-1")
    report = ms.serve(Notes, tmp_path / "orders", drain=True)
    assert taken == [order(), ("A-1", "none")]
    assert report == (2, 0, 0, 0)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda orders: orders.place("x"), TypeError, "place.order: expected Order, found str"),
        (lambda orders: orders.cancel(7), TypeError, "cancel.id: expected str, found int"),
        (
            lambda orders: orders.place(Order("A", "dear", Side.BUY, "X", 0, Decimal(1), True, b"")),
            TypeError,
            "place.order.price: expected f64, found str",
        ),
        (
            lambda orders: orders.place(Order("A", 1.0, Side.BUY, "XY", 0, Decimal(1), True, b"")),
            ValueError,
            'place.order.kind: expected one character, found "XY"',
        ),
        (
            lambda orders: orders.place(order(count=1 << 63)),
            ValueError,
            "place.order.count: 9223372036854775808 is out of range for i64",
        ),
        (
            lambda orders: orders.place(replace(order(), price=True)),
            TypeError,
            "place.order.price: expected f64, found bool",
        ),
        (lambda orders: orders.cancel(), TypeError, "missing a required argument: 'id'"),
    ],
)
def test_a_wrong_argument_is_named(call: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        call(Recorder().publisher(Orders))  # type: ignore[operator]
    assert str(raised.value) == text


class Readings(Protocol):
    def read(self, value: f32) -> None: ...


def test_a_number_that_four_bytes_cannot_hold_is_refused() -> None:
    readings = Recorder().publisher(Readings)
    readings.read(3.4e38)
    readings.read(float("inf"))
    for value in (3.5e38, -1e300, 10**39):
        with pytest.raises(ValueError, match=r"^read\.value: .* is out of range for f32$"):
            readings.read(value)


def replies(folder: Path) -> list[str]:
    """The calls of the journal ``replies`` without their times."""
    text = _millstream.service_export(str(folder / "replies"), 0, None)
    calls = text.split("---\n") if text else []
    return [
        "".join(line for line in call.splitlines(True) if "at:" not in line and line[0] != "#")
        for call in calls
    ]


def test_a_restart_rebuilds_the_state_and_repeats_no_output(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    for number in range(8):
        orders.place(order(f"A-{number}", 2))
    ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", drain=True, until=3)
    assert len(replies(tmp_path)) == 3
    ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", drain=True)
    found = replies(tmp_path)
    assert [call.split(":")[0] for call in found] == ["accepted"] * 5 + ["rejected"] * 3
    assert found[4] == "accepted:\n  id: A-4\n  total: 10\n"
    hops = _millstream.service_history(str(tmp_path / "replies"), 5 + 2)
    assert [hop[0] for hop in hops] == [str(tmp_path / "replies"), str(tmp_path / "orders")]


def test_a_component_that_raises(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    orders.place(order("A-1"))
    orders.place(order(""))
    orders.place(order("A-2"))
    with pytest.raises(
        ms.ServiceError, match="orders, record 2: place: ValueError: an order without an id"
    ) as raised:
        ms.serve(Desk, tmp_path / "orders", drain=True)
    assert isinstance(raised.value.__cause__, ValueError)
    report = ms.serve(Desk, tmp_path / "orders", drain=True, on_error="skip")
    assert (report.skipped, report.dead_letters) == (1, 0)
    report = ms.serve(Desk, tmp_path / "orders", drain=True, dead_letters=tmp_path / "dead")
    assert (report.skipped, report.dead_letters) == (0, 1)


def test_what_is_no_exception_is_not_held_back(tmp_path: Path) -> None:
    class Impatient(Orders):
        def place(self, order: Order) -> None:
            raise KeyboardInterrupt

        def cancel(self, id: str, reason: str = "none") -> None: ...

    ms.publisher(Orders, tmp_path / "orders").place(order())
    with pytest.raises(KeyboardInterrupt):
        ms.serve(Impatient, tmp_path / "orders", drain=True)


def test_timers_see_the_recorded_time(tmp_path: Path) -> None:
    ticks: list[int] = []

    class Ticking(Desk):
        @every(0.001)
        def tick(self, now_ns: int) -> None:
            assert now_ns == self.clock.now_ns()
            ticks.append(now_ns)
            self.replies.accepted("tick", len(ticks))
            if len(ticks) >= 3:
                raise KeyboardInterrupt

    ms.publisher(Orders, tmp_path / "orders").place(order())
    with pytest.raises(KeyboardInterrupt):
        ms.serve(Ticking, tmp_path / "orders", out=tmp_path / "replies")
    assert len(ticks) == 3
    assert ticks == sorted(ticks)


def test_two_services_on_one_output_are_refused(tmp_path: Path) -> None:
    ms.publisher(Orders, tmp_path / "orders")
    first = _millstream.Service(str(tmp_path / "replies"))
    with pytest.raises(ms.ServiceError, match="another service is running on this output journal"):
        ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", drain=True)
    del first


class Old(Protocol):
    """``Orders`` as another version of the program has it."""

    def cancel(self, id: str) -> None: ...


def test_an_earlier_version_is_read_and_another_is_refused(tmp_path: Path) -> None:
    Old.__name__ = "Orders"
    ms.publisher(Old, tmp_path / "orders").cancel("A-1")
    ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", drain=True)
    assert replies(tmp_path) == ["rejected:\n  id: A-1\n  why: none\n"]

    class Wrong(Protocol):
        def cancel(self, id: int) -> None: ...

    Wrong.__name__ = "Orders"
    ms.publisher(Wrong, tmp_path / "wrong").cancel(1)
    with pytest.raises(ms.ServiceError, match=r"Orders, cancel\.id: i64 in version 1 cannot be read as str"):
        ms.serve(Desk, tmp_path / "wrong", drain=True)


def test_interfaces_that_cannot_be() -> None:
    class Odd(Protocol):
        def odd(self, what: set[int]) -> None: ...

    with pytest.raises(
        ms.ServiceError, match=r"interface Odd, odd\.what: .*set.* cannot be part of a record"
    ):
        Recorder().publisher(Odd)

    class Bare(Protocol):
        def bare(self, what) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(ms.ServiceError, match=r"interface Bare, bare\.what: has no annotation"):
        Recorder().publisher(Bare)
    with pytest.raises(ms.ServiceError, match="int derives from no interface"):
        ms.serve(int, "nowhere")


def test_a_folder_is_compared_and_rewritten(tmp_path: Path) -> None:
    (tmp_path / "setup.yaml").write_text("cancel: {id: A-0}\n")
    (tmp_path / "in.yaml").write_text("at: 2026-11-21T09:30:00Z\n" + PLACE)
    (tmp_path / "out.yaml").write_text("# accepted, what else\naccepted:\n  id: A-1\n  total: 2  # in all\n")
    report = check(Desk, tmp_path)
    assert (report.passed, report.updated) == (0, [])
    assert "-  total: 2\n+  total: 1\n" in report.failed[0][1]
    assert check(Desk, tmp_path, update=True).updated == [tmp_path / "out.yaml"]
    text = (tmp_path / "out.yaml").read_text()
    assert text == "# accepted, what else\naccepted:\n  id: A-1\n  total: 1  # in all\n"
    assert check(Desk, tmp_path).passed == 1
    report = check(Desk, tmp_path, agitate=True, update=True)
    # An order without an id is one that the desk does not survive.
    assert [Path(path).name for path, _ in report.failed] == [
        "empty-place-order-id.yaml",
        "empty-place.yaml",
    ]
    assert (tmp_path / "agitated" / "missing-1.yaml").read_text() == ""


def test_msgspec_structs_are_arguments(tmp_path: Path) -> None:
    fill = msgspec.defstruct(
        "Fill", [("id", str), ("price", float, 1.5)], kw_only=True, namespace={"__module__": __name__}
    )

    class Fills(Protocol):
        def filled(self, fill: object) -> None: ...

    Fills.filled.__annotations__["fill"] = fill
    taken: list[object] = []

    class Notes(Fills):
        def filled(self, fill: object) -> None:
            taken.append(fill)

    ms.publisher(Fills, tmp_path / "fills").filled(fill(id="A"))
    ms.serve(Notes, tmp_path / "fills", drain=True)
    assert taken == [fill(id="A", price=1.5)]


class Keeping(Desk):
    """A desk whose state can be saved, and rebuilt from its replies."""

    def snapshot(self) -> object:
        return {"total": self.total}

    def restore(self, state: dict[str, int]) -> None:
        self.total = state["total"]

    def rebuild_accepted(self, id: str, total: int) -> None:
        self.total = total

    def rebuild_rejected(self, id: str, why: str, at: timestamp) -> None: ...


@pytest.mark.parametrize(("rebuild", "repeated"), [("inputs", 5), ("snapshot", 0), ("outputs", 4 + 1)])
def test_a_state_comes_back_from_where_one_says(tmp_path: Path, rebuild: str, repeated: int) -> None:
    """What is repeated counts as calls; with outputs, the repeated outputs and the last input."""
    orders = ms.publisher(Orders, tmp_path / "orders")
    for number in range(9):
        orders.place(order(f"A-{number}", 2))
    paths = {"inputs": tmp_path / "orders", "out": tmp_path / "replies"}
    ms.serve(Keeping, **paths, rebuild=rebuild, snapshot_every=2, until=5)
    report = ms.serve(Keeping, **paths, rebuild=rebuild, snapshot_every=2, drain=True)
    assert report.calls == repeated + 4
    found = replies(tmp_path)
    assert [call.split(":")[0] for call in found] == ["accepted"] * 5 + ["rejected"] * 4
    assert found[4] == "accepted:\n  id: A-4\n  total: 10\n"


def test_a_component_that_cannot_be_rebuilt_names_the_cause(tmp_path: Path) -> None:
    ms.publisher(Orders, tmp_path / "orders").place(order())
    paths = {"inputs": tmp_path / "orders", "out": tmp_path / "replies"}
    with pytest.raises(ms.ServiceError, match=r"Desk has no snapshot\(\), which rebuild='snapshot' needs"):
        ms.serve(Desk, **paths, rebuild="snapshot")
    with pytest.raises(ms.ServiceError, match=r"Desk has no rebuild_accepted\(\).* each method of Replies"):
        ms.serve(Desk, **paths, rebuild="outputs")
    with pytest.raises(
        ms.ServiceError, match="rebuild='memory': it is one of inputs, outputs, snapshot, nothing"
    ):
        ms.serve(Desk, **paths, rebuild="memory")
    with pytest.raises(ms.ServiceError, match="snapshot_every=0: it is 1 or more calls"):
        ms.serve(Keeping, **paths, rebuild="snapshot", snapshot_every=0)
    with pytest.raises(ms.ServiceError, match="need an output journal, and this service has none"):
        ms.serve(Keeping, tmp_path / "orders", rebuild="snapshot", drain=True)


def test_a_state_that_cannot_be_saved_or_restored_raises_its_own_exception(tmp_path: Path) -> None:
    class Unkept(Keeping):
        def snapshot(self) -> object:
            return lambda: None

    class Stranger(Keeping):
        def restore(self, state: dict[str, int]) -> None:
            raise LookupError("not mine")

    ms.publisher(Orders, tmp_path / "orders").place(order())
    paths = {"inputs": tmp_path / "orders", "out": tmp_path / "replies"}
    with pytest.raises(ms.ServiceError, match="replies: no snapshot could be made: ") as raised:
        ms.serve(Unkept, **paths, rebuild="snapshot", snapshot_every=1, drain=True)
    assert raised.value.__cause__ is not None
    ms.serve(Keeping, **paths, rebuild="snapshot", drain=True)
    with pytest.raises(
        ms.ServiceError, match=r"replies.snapshots, record 1: .*: LookupError: not mine"
    ) as raised:
        ms.serve(Stranger, **paths, rebuild="snapshot", drain=True)
    assert isinstance(raised.value.__cause__, LookupError)


class Audit(Replies):
    """Follows a desk: counts its answers."""

    def __init__(self, replies: Replies) -> None:
        self.replies = replies
        self.count = 0

    def accepted(self, id: str, total: int) -> None:
        self.count += 1
        self.replies.accepted(id, self.count)

    def rejected(self, id: str, why: str, at: timestamp) -> None:
        self.count += 1
        self.replies.rejected(id, f"{self.count}: {why}", at)


def test_services_follow_each_other_in_one_process(tmp_path: Path) -> None:
    def desk() -> None:
        ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", until=8, wait_for_inputs=True)

    def audit() -> None:
        ms.serve(Audit, tmp_path / "replies", out=tmp_path / "audit", until=8, wait_for_inputs=True)

    threads = [threading.Thread(target=run, daemon=True) for run in (audit, desk)]
    for thread in threads:
        thread.start()
    orders = ms.publisher(Orders, tmp_path / "orders")
    for number in range(8):
        orders.place(order(f"A-{number}", 2))
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    exported = _millstream.service_export(str(tmp_path / "audit"), 0, None)
    assert exported.count("accepted:") == 5 and "why: '8: limit'" in exported.replace('"', "'")
    last = len(ms.Journal(tmp_path / "audit", "r")) - 1
    hops = _millstream.service_history(str(tmp_path / "audit"), last)
    assert [Path(hop[0]).name for hop in hops] == ["audit", "replies", "orders"]


def test_a_replay_skips_what_the_service_has_skipped(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    orders.place(order("A-1"))
    orders.place(order(""))
    ms.Journal(tmp_path / "orders").append(b"no call")
    orders.place(order("A-2"))
    report = ms.serve(Desk, tmp_path / "orders", out=tmp_path / "replies", on_error="skip", drain=True)
    assert (report.calls, report.skipped) == (4, 2)
    with pytest.raises(ms.ServiceError, match="record 2"):
        ms.service.replay(Desk, tmp_path / "orders")
    calls = ms.service.replay(Desk, tmp_path / "orders", on_error="skip")
    assert [call.splitlines()[1] for call in calls] == ["  id: A-1", "  id: A-2"]


@dataclass
class Branch:
    size: int
    child: Branch | None = None
    more: list[Branch] = field(default_factory=list)
    named: dict[str, Branch] = field(default_factory=dict)


class Trees(Protocol):
    def tree(self, root: Branch) -> None: ...


def branch(depth: int, kind: str) -> Branch:
    """So many values within one another; a branch without others is two: itself, and its empty list."""
    made = Branch(0)
    for _ in range(depth - 2 if kind == "child" else (depth - 2) // 2):
        if kind == "child":
            made = Branch(1, child=made)
        elif kind == "more":
            made = Branch(1, more=[made])
        else:
            made = Branch(1, named={"it": made})
    return made


@pytest.mark.parametrize("kind", ["child", "more", "named"])
def test_what_a_publisher_accepts_is_read_by_all(tmp_path: Path, kind: str) -> None:
    found: list[Branch] = []

    class Keeper(Trees):
        def tree(self, root: Branch) -> None:
            found.append(root)

    out = ms.publisher(Trees, tmp_path / "trees")
    accepted = [branch(depth, kind) for depth in (2, 10, 62, 64)]
    for tree in accepted:
        out.tree(tree)
    for depth in (66, 100, 10_000):
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            out.tree(branch(depth, kind))
    ms.serve(Keeper, tmp_path / "trees", drain=True)
    assert found == accepted
    command = [sys.executable, "-m", "millstream"]
    for verb in (["service", "export"], ["journal", "cat"]):
        done = subprocess.run([*command, *verb, str(tmp_path / "trees")], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.count("tree") >= 4, done.stderr
        assert "nested" not in done.stdout + done.stderr


def test_a_dead_letter_of_an_earlier_start_is_not_counted_again(tmp_path: Path) -> None:
    orders = ms.publisher(Orders, tmp_path / "orders")
    outputs: list[dict[str, Path]] = [{}, {"out": tmp_path / "replies"}]
    for number, out in enumerate(outputs):
        letters = tmp_path / f"dead{number}"
        orders.place(order(""))
        first = ms.serve(Desk, tmp_path / "orders", drain=True, dead_letters=letters, **out)
        assert first.dead_letters == 1 + 2 * number
        assert ms.serve(Desk, tmp_path / "orders", drain=True, dead_letters=letters, **out).dead_letters == 0
        orders.place(order(""))
        assert ms.serve(Desk, tmp_path / "orders", drain=True, dead_letters=letters, **out).dead_letters == 1
