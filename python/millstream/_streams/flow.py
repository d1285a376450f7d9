"""``Flow``: the start of all streams."""

from __future__ import annotations

from weakref import ref

from .. import _millstream
from .._errors.flow import FlowUsageError
from .._run.option import takes
from .._run.options import RunOptions
from .._run.programs import describes, expect_run, was_used
from .._run.version import describing_module
from .misplaced import Verbs, verbs_are_found
from .named import MISSING, check_name
from .streams import Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Literal

    from .._run.running import Running
    from .._values.types import AnySource, OnError, U


@verbs_are_found
class Flow(Verbs):
    """A dataflow under a name: sources, steps and sinks.

    A flow is described once and may run any number of times.

    Args:
        name: the name of the flow, in errors, metrics and saved state.
        version: the version of the program, which all processes of a run have: see
            :class:`millstream.Cluster`. By default it is made of the sources: the file that calls ``Flow``,
            and the modules that are loaded when the run begins, without installed packages.

    Raises:
        FlowUsageError: the name is empty, or the version is.

    Example:
        >>> import millstream as ms
        >>> flow, out = ms.Flow("squares"), ms.testing.collect()
        >>> flow.source("numbers", ms.testing.items([1, 2, 3])).map(lambda n: n * n).sink("out", out)
        >>> report = ms.run(flow)
        >>> out
        [1, 4, 9]
    """

    def __init__(self, name: str, version: str | None = None) -> None:
        if not isinstance(name, str):
            raise FlowUsageError(f"ms.Flow: name is a text, not {name!r}")
        if version is not None and (not isinstance(version, str) or not version):
            raise FlowUsageError(f'flow "{name}": version is a text like "1.4", not {version!r}')
        self._flow = _millstream.Flow(name)
        self._version = version
        self._module = describing_module()
        describes(self._module)
        self._running: ref[Running] | None = None

    @property
    def name(self) -> str:
        """The flow's name."""
        return self._flow.name

    def source(
        self,
        name: str,
        source: AnySource[U] = MISSING,
        on_error: OnError = "fail",
        batch_size: int | None = None,
    ) -> Stream[U]:
        """Adds a source.

        ``ms.tcp``, ``ms.files``, ``ms.journals``, ``ms.queues``, ``ms.generate`` and ``ms.testing`` make
        sources; your own are generator functions (:func:`millstream.source`) or subclasses of
        :class:`millstream.Source`.

        Args:
            name: the name of the source; it must stay the same, because the position of the source is saved
                under it.
            source: the source.
            on_error: what happens to input that cannot be decoded.
            batch_size: how many items steps see at once at most. None: as many as the source has.

        Returns:
            The stream of the items.

        Raises:
            FlowUsageError: the name is empty or used twice, ``source`` is no source, or ``batch_size`` is
                below 1.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("pairs"), ms.testing.collect()
            >>> numbers = flow.source("numbers", ms.generate(lambda: range(9)), batch_size=2)
            >>> numbers.map_batch(lambda batch: [len(batch)]).sink("out", out)
            >>> _ = ms.run(flow)
            >>> max(out), sum(out)
            (2, 9)
        """
        check_name("source", name, source)
        expect_run(self, self._module)

        def add(source: AnySource[U]) -> Stream[U]:
            return Stream(self._flow.source(name, source, on_error, batch_size))

        # A generator's source; its module is not loaded for others.
        add_with_its_steps = getattr(source, "_add_to_flow", None)
        return add(source) if add_with_its_steps is None else add_with_its_steps(name, add)

    @takes(RunOptions)
    def start(self, options: RunOptions) -> Running:
        """Starts the flow on threads of its own and returns at once.

        The arguments and errors are those of :func:`millstream.run`; ``on_metrics`` is called on a thread of
        its own, and at the end by the call that waits for it. The page is shown until then. In a notebook a
        flow of the same name that a cell has started before is stopped first.

        Returns:
            The running flow, which can be stopped and waited for.

        Raises:
            FlowUsageError: an option is out of range, or the flow has a mistake.

        Example:
            >>> import millstream as ms
            >>> flow, out = ms.Flow("ticks"), ms.testing.collect()
            >>> flow.source("ticks", ms.generate(lambda: iter(int, 1), rate=1000)).sink("out", out)
            >>> with flow.start() as running:
            ...     try:
            ...         report = running.wait(timeout=0.1)
            ...     except TimeoutError:
            ...         pass  # it has no end: the block stops it
        """
        from .._run.cells import in_notebook, remember, replace
        from .._run.running import start

        if in_notebook():
            replace(self.name)
        running = start(self, options)
        if in_notebook():
            remember(self.name, running)
        self._running = ref(running)
        return running

    def describe(self, format: Literal["text", "json", "mermaid", "svg"] = "text") -> str:
        """Returns the graph of the flow.

        Args:
            format: ``"text"``, ``"json"``, ``"mermaid"``, or ``"svg"`` for a picture.

        Returns:
            The graph as text.

        Raises:
            FlowUsageError: there is no such format.

        Example:
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
        was_used(self)
        return self._flow.describe(format)

    def __repr__(self) -> str:
        return f"<flow {self.name}>"

    def _repr_html_(self) -> str:
        """The picture of the flow in a notebook; while it runs after ``start``, with its counters."""
        picture = self._flow.describe("svg")
        running = None if self._running is None else self._running()
        if running is None or running.has_ended:
            return picture
        from .._run.plot import table

        return picture + table(running.report())
