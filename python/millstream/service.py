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

import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar, Union

from . import _millstream
from ._errors import ServiceError
from ._millstream import Clock
from ._run import hook_signals
from ._service_components import (
    InterfaceOf,
    T,
    bound,
    check_component,
    interfaces_of,
    keeping,
    made,
    proxy,
    rebuilding,
    timers,
    wanted,
)
from ._service_diff import Effect
from ._service_inputs import await_inputs, paths_of, print_missing
from ._service_interfaces import aliases, described
from ._service_options import (
    Hooks,
    Retention,
    Sync,
    checked_followers,
    checked_timeout,
    sync_seconds,
)
from ._service_trial import Trial

__all__ = [
    "Checked",
    "Clock",
    "Recorder",
    "Report",
    "ServiceError",
    "Trial",
    "aliases",
    "char",
    "check",
    "every",
    "f32",
    "i8",
    "i16",
    "i32",
    "publisher",
    "replay",
    "serve",
    "timestamp",
    "u8",
    "u16",
    "u32",
    "u64",
]

Method = TypeVar("Method", bound=Callable[..., None])
Path = Union[str, "os.PathLike[str]"]

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
    """What a service has done, the rebuilding of its state included."""

    calls: int
    ticks: int
    skipped: int
    dead_letters: int


class Checked(NamedTuple):
    """What came of the test in a folder: runs that passed, differences by file, files that were rewritten.

    ``left_out`` is how many variants were not run because there are too many.
    """

    passed: int
    failed: list[tuple[os.PathLike[str], str]]
    updated: list[os.PathLike[str]]
    left_out: int = 0


# Publishers.


def publisher(
    interface: InterfaceOf[T],
    journal: Path,
    *,
    sync: Sync = "never",
    wait_follower: int = 0,
    timeout: float = 30.0,
) -> T:
    """An object whose methods append their calls to a journal, which is made if there is none.

    A method returns when its call is recorded and as safe as asked.

    :param interface: the class of the interface, a Protocol or an abstract class.
    :param journal: the directory of the journal.
    :param sync: when a call survives a loss of power. ``"never"``: when the system likes to; ``"always"``:
        before the method returns; a time (``"10ms"``, seconds or a timedelta): in the background.
    :param wait_follower: how many followers on other machines must have the call before the method returns.
    :param timeout: seconds that a method waits for them.
    :raises RecordNotFollowedError: (a ``TimeoutError``) by a method when they do not have the call in time.
        It is recorded all the same: one who makes it again has it recorded twice.
    :raises ServiceError: for an option that makes no sense; by a method when the call cannot be recorded.

    >>> from tempfile import TemporaryDirectory
    >>> from typing import Protocol
    >>> class Prices(Protocol):
    ...     def price(self, symbol: str, value: float) -> None: ...
    >>> folder = TemporaryDirectory()
    >>> publisher(Prices, folder.name, sync="always").price("VOD.L", 72.5)
    """
    sync_s, followers = sync_seconds(sync), checked_followers(wait_follower)
    path, timeout_s = os.fspath(journal), checked_timeout(timeout)
    return proxy(interface, _millstream.Outlet(described(interface), path, sync_s, followers, timeout_s))


class Recorder:
    """Keeps the calls of its publishers: a component's unit test needs no journal."""

    def __init__(self) -> None:
        self._native = _millstream.Recorder()

    def publisher(self, interface: InterfaceOf[T]) -> T:
        """A publisher whose calls are kept here."""
        return proxy(interface, self._native.outlet(described(interface)))

    def take(self) -> list[str]:
        """The calls since the last look, each as YAML."""
        return self._native.take()


# Components.


def every(seconds: float, *, renamed_from: str | Sequence[str] = ()) -> Callable[[Method], Method]:
    """Marks a method that is called again and again, with the recorded time in ns since 1970.

    Its calls are recorded under its name: timers may be added and taken away. Recorded calls of one that was
    taken away are not repeated.

    :param seconds: the period, more than 0.
    :param renamed_from: earlier names of the method; what was recorded under them is repeated by it.
    :raises ServiceError: the period is not more than 0.

    >>> class Beat:
    ...     @every(0.5, renamed_from="tick")
    ...     def beat(self, now_ns: int) -> None: ...
    """
    if not seconds > 0:
        raise ServiceError(f"every({seconds}): the period is more than 0 seconds")
    names = (renamed_from,) if isinstance(renamed_from, str) else tuple(renamed_from)

    def mark(method: Method) -> Method:
        method.__millstream_every__ = seconds, names  # type: ignore[attr-defined]
        return method

    return mark


def serve(
    component: type,
    inputs: Path | Sequence[Path],
    *,
    out: Path | None = None,
    wait: str = "block",
    on_error: str = "fail",
    dead_letters: Path | None = None,
    rebuild: str = "inputs",
    snapshot_every: int = 100_000,
    drain: bool = False,
    until: int | None = None,
    skip_pruned: bool = False,
    old_timers: Sequence[str] | None = None,
    sync: Sync = "never",
    wait_follower: int = 0,
    hooks: Hooks | None = None,
    wait_for_inputs: bool = False,
) -> Report:
    """Runs a component: calls it with what the inputs hold, records what it calls in ``out``.

    SIGINT (Ctrl-C) and SIGTERM end it behind the call that it is in; a second one raises KeyboardInterrupt
    there. In other threads than the main one Python sees no signals.

    :param component: a class that derives from interfaces; publishers and a :class:`Clock` are given to it.
    :param inputs: a journal or several, which are merged by time.
    :param out: the output journal; only one service may write to it. Without one, calls go nowhere.
    :param wait: ``block``, ``back-off``, or ``spin`` for a core of its own.
    :param on_error: ``fail`` or ``skip``, for records that do not fit and calls that raise.
    :param dead_letters: a journal for those records instead.
    :param rebuild: where the component's state comes from at the start. ``inputs``: it is called with all of
        them again. ``snapshot``: its ``restore(state)`` takes what its ``snapshot()`` gave, and only inputs
        behind that are repeated. ``outputs``: its ``rebuild_NAME`` is called with each recorded output
        ``NAME``. ``nothing``: it has no state.
    :param snapshot_every: with ``snapshot``, keep the state each time that the component was called so often,
        and at the end.
    :param drain: end when all inputs are taken.
    :param until: end behind so many calls.
    :param skip_pruned: do without input records that were pruned and are needed. The service starts with the
        oldest records that are left, and its state is what these make of it.
    :param old_timers: the timers that an earlier version has recorded by number, in alphabetical order; only
        for the first start of this version, if the timers have changed.
    :param sync: when outputs survive a loss of power, as for :func:`publisher`. With ``"always"`` the
        component is called only when its input, and the entry of the schedule, survive one too: no output
        outlives what it is an effect of.
    :param wait_follower: how many followers on other machines must have the outputs. The service is never
        more than 256 inputs ahead of them; it waits for them without a limit.
    :param hooks: with what a system of services stops and watches this one.
    :param wait_for_inputs: wait for inputs that are not there yet, instead of refusing to start.
    :raises ServiceError: from the exception of the component, where there is one; names journal and record.
    """
    check_choice("wait", wait, ("block", "back-off", "spin"))
    check_choice("on_error", on_error, ("fail", "skip"))
    check_choice("rebuild", rebuild, ("inputs", "outputs", "snapshot", "nothing"))
    if snapshot_every < 1:
        raise ServiceError(f"snapshot_every={snapshot_every}: it is 1 or more calls")
    sync_s, followers = sync_seconds(sync), checked_followers(wait_follower)
    if out is None and (sync_s is not None or followers):
        raise ServiceError("sync and wait_follower are about the output: they need out")
    paths = paths_of(inputs)
    check_component(component)
    retain = hooks.retention if hooks else Retention()
    stopper = hooks.stopper if hooks else _millstream.Stopper()
    restore_signals = hook_signals(stopper)
    try:
        tell = hooks.note_missing if hooks else print_missing
        if not await_inputs(paths, wait_for_inputs, lambda: stopper.stopped, tell):
            return Report(0, 0, 0, 0)
        native = _millstream.Service(
            None if out is None else os.fspath(out),
            sync_s,
            (retain.bytes, retain.age_s, retain.for_cursors),
        )
        outlet = native.outlet if out is not None else _millstream.Recorder().outlet
        instance = made(component, outlet, native.clock)
        snapshots = (snapshot_every, *keeping(instance)) if rebuild == "snapshot" else None
        own = rebuilding(instance) if rebuild == "outputs" else []
        return run_native(
            native,
            bound(instance),
            paths,
            timers(instance),
            wait=wait,
            on_error=on_error,
            dead_letters=None if dead_letters is None else os.fspath(dead_letters),
            rebuild=rebuild != "nothing",
            snapshots=snapshots,
            own=own,
            drain=drain,
            until=until,
            stopper=stopper,
            skip_pruned=skip_pruned,
            old_timers=old_timers,
            followers=followers,
            hooks=hooks,
        )
    finally:
        restore_signals()


def replay(
    component: type,
    inputs: Path | Sequence[Path],
    *,
    out: Path | None = None,
    until: int | None = None,
    on_error: str = "fail",
) -> list[str]:
    """Calls a new component as a service called it and gives what it calls, each as YAML. Nothing is written.

    :param inputs: the journals that the service has read.
    :param out: the output journal of the service. The schedule beside it says in which order inputs were
        taken and when timers fired. Without one, inputs are merged by the times of their records, and timers
        fire by these times.
    :param until: end after so many calls.
    :param on_error: as in :func:`serve`.
    :raises ServiceError: a journal is not there or cannot be read; the component raised.
    """
    return recorded(component, inputs, out=out, until=until, on_error=on_error).take()


def effects(
    component: type, inputs: Path | Sequence[Path], *, out: Path | None = None, on_error: str = "fail"
) -> list[Effect]:
    """What a new component calls at each recorded call of it, in their order; as :func:`replay`."""
    found: list[Effect] = []

    def behind(clock: Clock, recorder: _millstream.Recorder, method: str) -> None:
        origin = clock.record() or (f"timer {method}", clock.now_ns())
        found.append(Effect(origin, method, clock.now_ns(), recorder.take()))

    recorded(component, inputs, out=out, on_error=on_error, behind=behind)
    return found


class Enough(BaseException):
    """Ends a replay: it has made all the calls that were asked for."""


def recorded(
    component: type,
    inputs: Path | Sequence[Path],
    *,
    out: Path | None,
    until: int | None = None,
    on_error: str,
    behind: Callable[[Clock, _millstream.Recorder, str], None] | None = None,
) -> _millstream.Recorder:
    """Has what a component calls recorded, when it is called as before; ``behind`` is told of each call."""
    check_choice("on_error", on_error, ("fail", "skip"))
    paths = paths_of(inputs)
    await_inputs(paths, False, lambda: True, print_missing)
    native, recorder = _millstream.Service.replaying(output_of(out)), _millstream.Recorder()
    instance = made(component, recorder.outlet, native.clock)
    clock, left = native.clock(), until

    def call(method: Callable[..., object], *arguments: object) -> None:
        nonlocal left
        if left is not None and clock.record() is not None:
            if left <= 0:
                raise Enough
            left -= 1
        try:
            method(*arguments)
        finally:
            if behind is not None:
                behind(clock, recorder, getattr(method, "__name__", "timer"))

    calls: list[tuple[_millstream.Interface, list[Callable[..., object]]]] = [
        (interface, [partial(call, method) for method in methods]) for interface, methods in bound(instance)
    ]
    ticking = [(name, period, partial(call, method), old) for name, period, method, old in timers(instance)]
    try:
        run_native(native, calls, paths, ticking, on_error=on_error, drain=True, until=None)
    except Enough:
        pass
    return recorder


def output_of(out: Path | None) -> str | None:
    """The output journal, which may be given by its schedule; something of it must be there."""
    if out is None:
        return None
    path = os.fspath(out).rstrip("/").removesuffix(".schedule")
    if not any(_millstream.service_has_input(path + suffix) for suffix in ("", ".schedule")):
        raise ServiceError(f"{path}: there is no journal here")
    return path


def has_order(component: type, inputs: Sequence[Path], out: Path | None) -> bool:
    """Whether a replay goes by a recorded order, or needs none: that of an only input without timers."""
    timed = inspect.getmembers(component, lambda member: hasattr(member, "__millstream_every__"))
    if len(inputs) < 2 and not timed:
        return True
    return _millstream.Service.replaying(output_of(out)).is_recorded


def run_native(
    native: _millstream.Service,
    calls: list[tuple[_millstream.Interface, list[Callable[..., object]]]],
    paths: Sequence[Path],
    timers: list[tuple[str, int, Any, tuple[str, ...]]],
    *,
    wait: str = "block",
    on_error: str = "fail",
    dead_letters: str | None = None,
    rebuild: bool = True,
    snapshots: tuple[int, Callable[[], bytes], Callable[[bytes], object]] | None = None,
    own: Sequence[tuple[_millstream.Interface, Sequence[Callable[..., object]]]] = (),
    drain: bool,
    until: int | None,
    stopper: _millstream.Stopper | None = None,
    skip_pruned: bool = False,
    old_timers: Sequence[str] | None = None,
    followers: int = 0,
    hooks: Hooks | None = None,
) -> Report:
    inputs = [(os.fspath(path), interface, methods) for path in paths for interface, methods in calls]
    counts = native.run(
        inputs=inputs,
        timers=timers,
        wait=wait,
        on_error=on_error,
        dead_letters=dead_letters,
        rebuild=rebuild,
        snapshots=snapshots,
        own=own,
        drain=drain,
        until=until,
        stopper=stopper or _millstream.Stopper(),
        skip_pruned=skip_pruned,
        old_timers=None if old_timers is None else list(old_timers),
        followers=followers,
        meter=hooks.meter if hooks else None,
        cores=hooks.cores if hooks else (),
    )
    return Report(*counts)


def check_choice(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ServiceError(f"{name}={given!r}: it is one of {', '.join(known)}")


def check(
    component: type,
    folder: Path,
    *,
    update: bool = False,
    agitate: bool = False,
    variant: str | None = None,
) -> Checked:
    """Runs the test in a folder (``setup.yaml``, ``in.yaml``, ``out.yaml``) on a new component.

    :param update: rewrite what is expected instead of comparing; comments are kept.
    :param agitate: run the variants too, whose calls are missing, doubled, swapped, or have odd values; what
        is expected of them is in the folder ``agitated``.
    :param variant: run only the variant of this name, see :func:`variants`.
    """
    outputs = [described(kind) for kind in wanted(component).values() if kind is not Clock]

    def make(recorder: _millstream.Recorder, clock: Clock) -> Any:
        instance = made(component, recorder.outlet, lambda: clock)
        return bound(instance), [timer[1:3] for timer in timers(instance)]

    inputs = [described(interface) for interface in interfaces_of(component)]
    counts = _millstream.service_test(os.fspath(folder), inputs, outputs, update, agitate, variant, make)
    return Checked(*counts)


def variants(component: type, folder: Path) -> list[str]:
    """The names of the variants that :func:`check` runs of the test in a folder when it is to agitate."""
    inputs = [described(interface) for interface in interfaces_of(component)]
    return _millstream.service_variants(os.fspath(folder), inputs)
