"""``Dedupe``: the keys of recent items, by which a source drops items that came before.

The keys are the state of a step after the source, so that a commit has them as of the items in it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from ..._errors.flow import FlowUsageError
from ..._values.checked import checked
from ..._values.durations import nanos, seconds_or_none
from ..._values.fields import field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

    from ..._millstream import KeyContext
    from ..._streams.streams import Stream
    from ..._values.durations import Seconds
    from ..._values.types import U


@checked
@dataclass(frozen=True)
class Dedupe:
    """Drops an item of a source whose key another item had shortly before.

    A key is remembered from its first item until ``count`` other keys have come after it or, with
    ``within``, that time of the clock has passed, also while the flow does not run. A duplicate does not
    prolong that.

    Args:
        key: a function that returns the key of an item, or the name of a field: a hashable value that can
            be pickled, such as the number of a message.
        count: how many keys are remembered at most.
        within: for how long a key is remembered; None: for any time.

    Raises:
        FlowUsageError: ``count`` is below 1, or ``within`` is no time above 0.

    Example:
        >>> import millstream as ms
        >>> @ms.source(dedupe=ms.Dedupe("id", count=1000))
        ... def messages():
        ...     for number in (1, 2, 1, 3):
        ...         yield {"id": number}
        >>> flow, out = ms.Flow("messages"), ms.testing.collect()
        >>> flow.source("messages", messages).map(lambda message: message["id"]).sink("out", out)
        >>> _ = ms.run(flow)
        >>> out
        [1, 2, 3]
    """

    key: Callable[[Any], Hashable] | str
    count: int = 100_000
    within: Seconds | None = None

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FlowUsageError(f"count is 1 or more, not {self.count!r}")
        if self.within is not None:
            nanos("within", self.within)


class Seen:
    """The keys that are remembered, each with the time of its item, in the order of the items."""

    def __init__(self, dedupe: Dedupe) -> None:
        self.key = field(dedupe.key) if isinstance(dedupe.key, str) else dedupe.key
        self.count = dedupe.count
        self.within = seconds_or_none("within", dedupe.within)
        self.times: OrderedDict[Hashable, float] = OrderedDict()

    def on_batch(self, _: int, items: list[Any], ctx: KeyContext) -> list[Any]:
        now = ctx.now
        times = self.times
        key = self.key
        if self.within is not None:
            while times and next(iter(times.values())) <= now - self.within:
                times.popitem(last=False)
        new = []
        for item in items:
            of_item = key(item)
            if of_item not in times:
                times[of_item] = now
                new.append(item)
                if len(times) > self.count:
                    times.popitem(last=False)
        return new

    def snapshot(self) -> list[tuple[Hashable, float]]:
        return list(self.times.items())

    def restore(self, times: list[tuple[Hashable, float]]) -> None:
        self.times = OrderedDict(times[-self.count :])


def deduplicated(stream: Stream[U], source: str, dedupe: Dedupe) -> Stream[U]:
    """The items of a source without those that came before. They pass through one worker, in their order."""
    keyed = stream.key_by(_one_key, name=f"{source}.all")
    return keyed.stateful_batch(f"{source}.dedupe", lambda: Seen(dedupe)).values()


def _one_key(_: object) -> int:
    return 0
