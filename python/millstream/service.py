"""Services: components whose inputs and outputs are method calls, every one recorded and replayable.

An *interface* is a class with annotated methods, best a :class:`typing.Protocol`. A component implements
some, and is given publishers of others by the annotations of its ``__init__``::

    class Orders(Protocol):
        def place(self, order: Order) -> None: ...

    class Replies(Protocol):
        def accepted(self, order_id: str) -> None: ...

    class Desk(Orders):
        def __init__(self, replies: Replies) -> None:
            self.replies = replies

        def place(self, order: Order) -> None:
            self.replies.accepted(order.id)

    ms.publisher(Orders, "orders").place(Order("A-1", ...))     # from anywhere
    ms.serve(Desk, "orders", out="replies")                     # until Ctrl-C

Arguments may be ``bool``, ``int`` (64 bits), ``float``, ``str``, ``bytes``, ``decimal.Decimal``, dataclasses,
``msgspec.Struct``, enums, unions of dataclasses or structs (``Placed | Cancelled``: an enum with fields), and
``list``, ``dict`` and ``Optional`` of these. :data:`char`, :data:`i32`,
:data:`timestamp` and the like are ``str`` and ``int`` of a narrower type, as a publisher or a consumer in
Rust may have it.

>>> from typing import Protocol
>>> class Prices(Protocol):
...     def price(self, symbol: str, value: float) -> None: ...
>>> recorder = Recorder()
>>> recorder.publisher(Prices).price("VOD.L", 72.5)
>>> recorder.take()
['price:\\n  symbol: VOD.L\\n  value: 72.5\\n']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any, NamedTuple

from . import _millstream
from ._connectors.file_options import Path
from ._errors.flow import NoAnswerError, ServiceError
from ._millstream import Clock
from ._run import stacks
from ._run.run import hook_signals
from ._service.calls import Answer, call
from ._service.components import (
    InterfaceOf,
    T,
    bound,
    check_component,
    interfaces_of,
    keeping,
    made,
    outputs_of,
    proxy,
    rebuilding,
)
from ._service.diff import Effect
from ._service.inputs import await_inputs, paths_of, print_missing
from ._service.interfaces import aliases, described
from ._service.options import (
    Hooks,
    Retention,
    checked_followers,
    checked_sync,
    checked_timeout,
)
from ._service.page import shown
from ._service.queries import ask, queries, query
from ._service.timers import RecordedTimer, Timers, every, is_timed, one_off, timers
from ._service.trial import Trial
from ._values.checked import checked_as
from ._values.durations import Sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._values.durations import Seconds

__all__ = [
    "Answer",
    "Checked",
    "Clock",
    "NoAnswerError",
    "Recorder",
    "Report",
    "ServiceError",
    "Timers",
    "Trial",
    "aliases",
    "ask",
    "call",
    "char",
    "check",
    "every",
    "f32",
    "i8",
    "i16",
    "i32",
    "one_off",
    "publisher",
    "query",
    "replay",
    "serve",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]

#: A string of one character.
char = Annotated[str, "char"]
#: Nanoseconds since 1970; RFC 3339 in YAML.
timestamp = Annotated[int, "timestamp"]
i8 = Annotated[int, "i8"]
i16 = Annotated[int, "i16"]
i32 = Annotated[int, "i32"]
u8 = Annotated[int, "u8"]
u16 = Annotated[int, "u16"]
u32 = Annotated[int, "u32"]
u64 = Annotated[int, "u64"]
f32 = Annotated[float, "f32"]


class Report(NamedTuple):
    """The numbers of a run of a service, the rebuilding of its state included.

    Args:
        calls: calls of the component.
        ticks: calls of its timers.
        skipped: records that were skipped.
        dead_letters: records that went to the dead letters.

    Example:
        >>> from millstream.service import Report
        >>> Report(calls=2, ticks=0, skipped=0, dead_letters=0).calls
        2
    """

    calls: int
    ticks: int
    skipped: int
    dead_letters: int


class Checked(NamedTuple):
    """The result of :func:`check`.

    Args:
        passed: how many runs passed.
        failed: the files that differ, each with the difference.
        updated: the files that were rewritten.
        left_out: how many variants were not run because there are too many.

    Example:
        >>> from millstream.service import Checked
        >>> Checked(1, [], []).left_out
        0
    """

    passed: int
    failed: list[tuple[os.PathLike[str], str]]
    updated: list[os.PathLike[str]]
    left_out: int = 0


# Publishers.


@checked_as(ServiceError)
def publisher(
    interface: InterfaceOf[T],
    journal: Path,
    *,
    sync: Sync = "never",
    wait_follower: int = 0,
    timeout: Seconds = 30.0,
) -> T:
    """Makes an object whose methods append their calls to a journal, which is created if it does not exist.

    A method returns when its call is recorded, and as durable as ``sync`` and ``wait_follower`` say.

    Args:
        interface: the class of the interface: a Protocol or an abstract class.
        journal: the directory of the journal.
        sync: when a call survives a loss of power: ``"never"`` (when the system writes it), ``"always"``
            (before the method returns), or an interval such as ``"10ms"``.
        wait_follower: how many followers on other machines must have the call before the method returns.
        timeout: for how long a method waits for them.

    Returns:
        The publisher.

    Raises:
        ServiceError: an option is out of range. A method raises it when the call cannot be recorded.
        RecordNotFollowedError: (a ``TimeoutError``, raised by a method) the followers do not have the call
            in time. The call is recorded; repeating it records it twice.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from typing import Protocol
        >>> class Prices(Protocol):
        ...     def price(self, symbol: str, value: float) -> None: ...
        >>> folder = TemporaryDirectory()
        >>> publisher(Prices, folder.name, sync="always").price("VOD.L", 72.5)
    """
    sync_s = checked_sync(sync)
    followers = checked_followers(wait_follower)
    path = os.fspath(journal)
    timeout_s = checked_timeout(timeout)
    return proxy(interface, _millstream.Outlet(described(interface), path, sync_s, followers, timeout_s))


class Recorder:
    """Keeps the calls of its publishers, so that a test of a component needs no journal.

    Example:
        >>> from typing import Protocol
        >>> import millstream as ms
        >>> class Orders(Protocol):
        ...     def place(self, price: float) -> None: ...
        >>> class Totals(Protocol):
        ...     def total(self, value: float) -> None: ...
        >>> class Desk(Orders):
        ...     def __init__(self, totals: Totals) -> None:
        ...         self.totals, self.value = totals, 0.0
        ...     def place(self, price: float) -> None:
        ...         self.value += price
        ...         self.totals.total(self.value)
        >>> recorder = ms.service.Recorder()
        >>> Desk(recorder.publisher(Totals)).place(3.0)
        >>> recorder.take()
        ['total: 3.0\\n']
    """

    def __init__(self) -> None:
        self._native = _millstream.Recorder()

    def publisher(self, interface: InterfaceOf[T]) -> T:
        """Makes a publisher whose calls are kept by this recorder.

        Args:
            interface: the class of the interface: a Protocol or an abstract class.

        Returns:
            The publisher.

        Raises:
            ServiceError: the class is no interface.

        Example:
            >>> from typing import Protocol
            >>> import millstream as ms
            >>> class Orders(Protocol):
            ...     def place(self, price: float) -> None: ...
            >>> class Totals(Protocol):
            ...     def total(self, value: float) -> None: ...
            >>> class Desk(Orders):
            ...     def __init__(self, totals: Totals) -> None:
            ...         self.totals, self.value = totals, 0.0
            ...     def place(self, price: float) -> None:
            ...         self.value += price
            ...         self.totals.total(self.value)
            >>> recorder = ms.service.Recorder()
            >>> recorder.publisher(Orders).place(3.0)
            >>> recorder.take()
            ['place: 3.0\\n']
        """
        return proxy(interface, self._native.outlet(described(interface)))

    def take(self) -> list[str]:
        """Returns the calls since the last ``take``.

        Returns:
            The calls, each as YAML.

        Example:
            >>> from millstream.service import Recorder
            >>> Recorder().take()
            []
        """
        return self._native.take()


# Components.


@checked_as(ServiceError)
def serve(
    component: type,
    inputs: Path | Sequence[Path],
    *,
    out: Path | None = None,
    wait: str = "block",
    on_error: str = "fail",
    dead_letters: Path | None = None,
    on_difference: str = "fail",
    accept_differences: int = 0,
    rebuild: str = "inputs",
    snapshot_every: int = 100_000,
    drain: bool = False,
    until: int | None = None,
    skip_pruned: bool = False,
    sync: Sync = "never",
    wait_follower: int = 0,
    hooks: Hooks | None = None,
    wait_for_inputs: bool = False,
    http: str | None = None,
    http_token: str | None = None,
    http_open: bool = False,
) -> Report:
    """Runs a component: calls it with the records of its inputs, and records its own calls in ``out``.

    SIGINT (Ctrl-C) and SIGTERM end the service after the current call; a second signal raises
    KeyboardInterrupt. In threads other than the main one Python receives no signals.

    Args:
        component: a class that derives from interfaces. It receives publishers, a :class:`Clock` and
            :class:`Timers` by the annotations of its ``__init__``.
        inputs: one journal, or several, which are merged by time.
        out: the output journal; only one service may write to it. None: calls of the component are dropped.
        wait: ``"block"``, ``"back-off"`` or ``"spin"``, which uses a core.
        on_error: ``"fail"`` or ``"skip"``, for records that do not fit and calls that raise.
        dead_letters: a journal for those records.
        on_difference: what a start does that finds, while it rebuilds the state, that the component makes
            other calls than are recorded. ``"fail"``: it raises with the first one. ``"warn"``: it writes the
            first one and their number to standard error. ``"recorded"``: calls are not compared. What is
            recorded stays in any case.
        accept_differences: for how many inputs ``"fail"`` accepts other calls than are recorded. At the last
            input, whose calls may not all be recorded, the calls from the first one on that differs are
            recorded after those that are there.
        rebuild: where the state of the component comes from at the start. ``"inputs"``: it is called with
            all inputs again. ``"snapshot"``: its ``restore(state)`` receives the last result of its
            ``snapshot()``, and only later inputs are repeated; a state of another ``snapshot_version`` goes
            through its ``migrate(state, version)`` first. ``"outputs"``: its ``rebuild_NAME`` is
            called with each recorded output ``NAME``. ``"nothing"``: it has no state.
        snapshot_every: with ``rebuild="snapshot"``: after how many calls the state is saved, and at the
            end.
        drain: whether the service ends when all inputs are processed.
        until: the number of calls after which the service ends.
        skip_pruned: whether the service starts without input records that it needs and that were pruned.
            Its state is then that of the remaining records.
        sync: when outputs survive a loss of power, as for :func:`publisher`. With ``"always"`` the
            component is called only when its input and the entry of the schedule survive one too: no output
            outlives its cause.
        wait_follower: how many followers on other machines must have the outputs. The service is at most
            256 inputs ahead of them, and waits for them without a limit.
        hooks: how a system of services stops and observes this one.
        wait_for_inputs: whether the service waits for inputs that do not exist yet, instead of raising.
        http: the address of a page that shows the service, like ``"127.0.0.1:8080"``; its ``/metrics`` is for
            Prometheus.
        http_token: the token of the readers of the page; required where other machines can read.
        http_open: whether other machines can read the page without a token.

    Returns:
        The numbers of the run.

    Raises:
        ServiceError: an option is out of range, an input cannot be read, or the component raised; the text
            names journal and record.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from typing import Protocol
        >>> import millstream as ms
        >>> class Orders(Protocol):
        ...     def place(self, price: float) -> None: ...
        >>> class Totals(Protocol):
        ...     def total(self, value: float) -> None: ...
        >>> class Desk(Orders):
        ...     def __init__(self, totals: Totals) -> None:
        ...         self.totals, self.value = totals, 0.0
        ...     def place(self, price: float) -> None:
        ...         self.value += price
        ...         self.totals.total(self.value)
        >>> with TemporaryDirectory() as folder:
        ...     orders, totals = f"{folder}/orders", f"{folder}/totals"
        ...     ms.publisher(Orders, orders).place(3.0)
        ...     ms.serve(Desk, orders, out=totals, drain=True)
        Report(calls=1, ticks=0, skipped=0, dead_letters=0)
    """
    check_choice("wait", wait, ("block", "back-off", "spin"))
    check_choice("on_error", on_error, ("fail", "skip"))
    check_past(rebuild, snapshot_every, on_difference, accept_differences)
    sync_s = checked_sync(sync)
    followers = checked_followers(wait_follower)
    if out is None and (sync_s is not None or followers):
        raise ServiceError("sync and wait_follower are about the output: they need out")
    paths = paths_of(inputs)
    check_component(component)
    with ExitStack() as ending:
        stacks.begin()
        ending.callback(stacks.end)
        page = shown(http, http_token, http_open, component.__name__, paths, out, dead_letters)
        hooks = ending.enter_context(page) or hooks
        retain = hooks.retention if hooks else Retention()
        stopper = hooks.stopper if hooks else _millstream.Stopper()
        ending.callback(hook_signals(stopper))
        tell = hooks.note_missing if hooks else print_missing
        if not await_inputs(paths, wait_for_inputs, lambda: stopper.stopped, tell):
            return Report(0, 0, 0, 0)
        native = _millstream.Service(
            None if out is None else os.fspath(out),
            sync_s,
            (retain.bytes, retain.age_s, retain.for_cursors),
        )
        outputs = native if out is not None else _millstream.Recorder.closed()
        instance = made(component, outputs, native.clock)
        snapshots = (snapshot_every, *keeping(instance)) if rebuild == "snapshot" else None
        counts = native.run(
            inputs_of(paths, bound(instance)),
            timers(instance),
            stopper,
            wait=wait,
            on_error=on_error,
            dead_letters=None if dead_letters is None else os.fspath(dead_letters),
            on_difference=on_difference,
            accept_differences=accept_differences,
            rebuild=rebuild != "nothing",
            snapshots=snapshots,
            own=rebuilding(instance) if rebuild == "outputs" else [],
            queries=queries(instance),
            drain=drain,
            until=until,
            skip_pruned=skip_pruned,
            followers=followers,
            meter=hooks.meter if hooks else None,
            cores=hooks.cores if hooks else (),
        )
    return Report(*counts)


@checked_as(ServiceError)
def replay(
    component: type,
    inputs: Path | Sequence[Path],
    *,
    out: Path | None = None,
    until: int | None = None,
    on_error: str = "fail",
) -> list[str]:
    """Calls a new component as a service called it. Nothing is written.

    Args:
        component: a class that derives from interfaces. It receives publishers, a :class:`Clock` and
            :class:`Timers` by the annotations of its ``__init__``.
        inputs: the journals that the service has read.
        out: the output journal of the service. Its schedule has the order of the inputs and the times of
            the timers. None: inputs are merged by the times of their records, and timers fire by these
            times.
        until: the number of calls after which the replay ends.
        on_error: ``"fail"`` or ``"skip"``, as for :func:`serve`.

    Returns:
        The calls of the component, each as YAML.

    Raises:
        ServiceError: a journal does not exist or cannot be read, or the component raised.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from typing import Protocol
        >>> import millstream as ms
        >>> class Orders(Protocol):
        ...     def place(self, price: float) -> None: ...
        >>> class Totals(Protocol):
        ...     def total(self, value: float) -> None: ...
        >>> class Desk(Orders):
        ...     def __init__(self, totals: Totals) -> None:
        ...         self.totals, self.value = totals, 0.0
        ...     def place(self, price: float) -> None:
        ...         self.value += price
        ...         self.totals.total(self.value)
        >>> with TemporaryDirectory() as folder:
        ...     ms.publisher(Orders, f"{folder}/orders").place(3.0)
        ...     ms.service.replay(Desk, f"{folder}/orders")
        ['total: 3.0\\n']
    """
    return recorded(component, inputs, out=out, until=until, on_error=on_error).take()


def effects(
    component: type, inputs: Path | Sequence[Path], *, out: Path | None = None, on_error: str = "fail"
) -> list[Effect]:
    """The calls that a new component makes at each recorded call, in order; as :func:`replay`."""
    found: list[Effect] = []

    def after_call(clock: Clock, recorder: _millstream.Recorder, method: str) -> None:
        origin = clock.record() or (f"timer {method}", clock.now_ns())
        found.append(Effect(origin, method, clock.now_ns(), recorder.take()))

    recorded(component, inputs, out=out, on_error=on_error, after_call=after_call)
    return found


class Enough(BaseException):
    """Ends a replay after the requested number of calls."""


def recorded(
    component: type,
    inputs: Path | Sequence[Path],
    *,
    out: Path | None,
    until: int | None = None,
    on_error: str,
    after_call: Callable[[Clock, _millstream.Recorder, str], None] | None = None,
) -> _millstream.Recorder:
    """Records the calls of a component that is called as before; ``after_call`` is called after each."""
    check_choice("on_error", on_error, ("fail", "skip"))
    paths = paths_of(inputs)
    await_inputs(paths, False, lambda: True, print_missing)
    native = _millstream.Service.replaying(output_of(out))
    recorder = _millstream.Recorder.closed()
    instance = made(component, recorder, native.clock)
    clock = native.clock()
    left = until

    def call(method: Callable[..., object], *arguments: object) -> None:
        nonlocal left
        if left is not None and clock.record() is not None:
            if left <= 0:
                raise Enough
            left -= 1
        try:
            method(*arguments)
        finally:
            if after_call is not None:
                after_call(clock, recorder, getattr(method, "__name__", "timer"))

    calls: list[tuple[_millstream.Interface, list[Callable[..., object]]]] = [
        (interface, [partial(call, method) for method in methods]) for interface, methods in bound(instance)
    ]
    ticking: list[RecordedTimer] = [
        (name, when, partial(call, method), old) for name, when, method, old in timers(instance)
    ]
    try:
        stopper = _millstream.Stopper()
        native.run(inputs_of(paths, calls), ticking, stopper, on_error=on_error, drain=True)
    except Enough:
        pass
    return recorder


def output_of(out: Path | None) -> str | None:
    """The output journal, which may be named by its schedule; one of the two must exist."""
    if out is None:
        return None
    path = os.fspath(out).rstrip("/").removesuffix(".schedule")
    if not any(_millstream.service_has_input(path + suffix) for suffix in ("", ".schedule")):
        raise ServiceError(f"{path}: there is no journal here")
    return path


def has_order(component: type, inputs: Sequence[Path], out: Path | None) -> bool:
    """Whether a replay follows a recorded order, or needs none: that of an only input without timers."""
    if len(inputs) < 2 and not is_timed(component):
        return True
    return _millstream.Service.replaying(output_of(out)).is_recorded


def inputs_of(
    paths: Sequence[Path], calls: list[tuple[_millstream.Interface, list[Callable[..., object]]]]
) -> list[tuple[str, _millstream.Interface, list[Callable[..., object]]]]:
    return [(os.fspath(path), interface, methods) for path in paths for interface, methods in calls]


def check_past(rebuild: str, snapshot_every: int, on_difference: str, accepted: int) -> None:
    check_choice("rebuild", rebuild, ("inputs", "outputs", "snapshot", "nothing"))
    if snapshot_every < 1:
        raise ServiceError(f"snapshot_every={snapshot_every}: it is 1 or more calls")

    check_choice("on_difference", on_difference, ("fail", "warn", "recorded"))
    if isinstance(accepted, bool) or not isinstance(accepted, int) or not 0 <= accepted < 1 << 63:
        raise ServiceError(f"accept_differences={accepted!r}: it is a number of inputs, from 0 on")


def check_choice(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ServiceError(f"{name}={given!r}: it is one of {', '.join(known)}")


@checked_as(ServiceError)
def check(
    component: type,
    folder: Path,
    *,
    update: bool = False,
    agitate: bool = False,
    variant: str | None = None,
) -> Checked:
    """Runs the test in a directory (``setup.yaml``, ``in.yaml``, ``out.yaml``) on a new component.

    Args:
        component: a class that derives from interfaces. It receives publishers, a :class:`Clock` and
            :class:`Timers` by the annotations of its ``__init__``.
        folder: the directory of the test.
        update: whether expected outputs are rewritten instead of compared. Comments are kept.
        agitate: whether variants of the test run too, whose calls are missing, doubled, swapped, or have
            odd values. The outputs expected of them are in the directory ``agitated``.
        variant: the name of the only variant to run; see :func:`variants`.

    Returns:
        The runs that passed, the differences, and the files that were rewritten.

    Raises:
        ServiceError: a file cannot be read.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> from typing import Protocol
        >>> import millstream as ms
        >>> class Orders(Protocol):
        ...     def place(self, price: float) -> None: ...
        >>> class Totals(Protocol):
        ...     def total(self, value: float) -> None: ...
        >>> class Desk(Orders):
        ...     def __init__(self, totals: Totals) -> None:
        ...         self.totals, self.value = totals, 0.0
        ...     def place(self, price: float) -> None:
        ...         self.value += price
        ...         self.totals.total(self.value)
        >>> with TemporaryDirectory() as folder:
        ...     _ = Path(folder, "in.yaml").write_text("place: 3.0\\n")
        ...     _ = Path(folder, "out.yaml").write_text("total: 3.0\\n")
        ...     ms.service.check(Desk, folder).passed
        1
    """
    outputs = [described(kind) for kind in outputs_of(component)]

    def make(recorder: _millstream.Recorder, clock: Clock) -> Any:
        instance = made(component, recorder, lambda: clock)
        return bound(instance), [timer[:3] for timer in timers(instance)]

    inputs = [described(interface) for interface in interfaces_of(component)]
    counts = _millstream.service_test(os.fspath(folder), inputs, outputs, update, agitate, variant, make)
    return Checked(*counts)


def variants(component: type, folder: Path) -> list[str]:
    """Returns the names of the variants of a test that :func:`check` runs with ``agitate=True``.

    Args:
        component: a class that derives from interfaces. It receives publishers, a :class:`Clock` and
            :class:`Timers` by the annotations of its ``__init__``.
        folder: the directory of the test.

    Returns:
        The names.

    Raises:
        ServiceError: a file cannot be read.
    """
    inputs = [described(interface) for interface in interfaces_of(component)]
    return _millstream.service_variants(os.fspath(folder), inputs)
