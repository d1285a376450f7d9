"""``Flow``: what streams begin with."""

from __future__ import annotations

from .. import _millstream
from .._errors import FlowUsageError
from .misplaced import Verbs, verbs_are_found
from .streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from os import PathLike
    from typing import Literal

    from .._running import Running
    from .._types import AnySource, OnError, U

__all__ = ["Flow"]


@verbs_are_found
class Flow(Verbs):
    """Sources, steps and sinks under a name.

    >>> import millstream as ms
    >>> flow, out = ms.Flow("squares"), ms.testing.collect()
    >>> flow.source("numbers", ms.testing.items([1, 2, 3])).map(lambda n: n * n).sink("out", out)
    >>> report = ms.run(flow)
    >>> out
    [1, 4, 9]
    """

    def __init__(self, name: str) -> None:
        self._flow = _millstream.Flow(name)

    @property
    def name(self) -> str:
        """The flow's name."""
        return self._flow.name

    def source(
        self, name: str, source: AnySource[U], on_error: OnError = "fail", batch_size: int | None = None
    ) -> Stream[U]:
        """Adds a source; ``on_error`` says what becomes of input that cannot be decoded.

        Sources are made by ``ms.tcp``, ``ms.files``, ``ms.generate`` and ``ms.testing``; own ones are
        subclasses of :class:`millstream.Source`. Steps see at most ``batch_size`` items at once, a number
        from 1; where it is None, as many as the source has at a time. Another value is a FlowUsageError.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("pairs"), ms.testing.collect()
        >>> numbers = flow.source("numbers", ms.generate(lambda: range(9)), batch_size=2)
        >>> numbers.map_batch(lambda batch: [len(batch)]).sink("out", out)
        >>> _ = ms.run(flow)
        >>> max(out), sum(out)
        (2, 9)
        """
        if not name:
            raise FlowUsageError(f'flow "{self.name}": a source needs a name')
        return Stream(self._flow.source(name, source, on_error, batch_size))

    def start(
        self,
        workers: int = 1,
        spin: bool = False,
        clock: _millstream.VirtualClock | None = None,
        state: str | PathLike[str] | None = None,
        epoch: float = 1.0,
        sync: bool = True,
        drop_state: Iterable[str] = (),
        fresh: bool = False,
    ) -> Running:
        """Starts the flow on threads of its own, and gives what stops it and waits for it.

        The arguments are those of :func:`millstream.run`, and so are the errors.

        >>> import millstream as ms
        >>> flow, out = ms.Flow("ticks"), ms.testing.collect()
        >>> flow.source("ticks", ms.generate(lambda: iter(int, 1), rate=1000)).sink("out", out)
        >>> with flow.start() as running:
        ...     try:
        ...         report = running.wait(timeout=0.1)
        ...     except TimeoutError:
        ...         pass  # it has no end: the block stops it
        """
        from .._run_options import checked
        from .._running import Running

        saving = checked(workers, state, epoch, sync, drop_state, fresh)
        return Running(_millstream.start(self._flow, workers, spin, clock, saving))

    def describe(self, format: Literal["text", "json", "mermaid"] = "text") -> str:
        """The graph of the flow.

        >>> import millstream as ms
        >>> flow = ms.Flow("f")
        >>> numbers = flow.source("in", ms.testing.items([]))
        >>> numbers.filter(bool, name="true").sink("out", ms.testing.collect())
        >>> print(flow.describe())
        flow f
          source    in (test script)
          filter    true from in
          sink      out (collected in a list) from true
        <BLANKLINE>
        """
        return self._flow.describe(format)

    def __repr__(self) -> str:
        return f"<flow {self.name}>"
