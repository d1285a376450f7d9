"""Sources from servers that deliver a message until it is acknowledged.

An acknowledgement is sent when the epoch of its message is committed. If the flow is killed before, or the
connection is lost, the server delivers the message again. The ids of messages without a confirmed
acknowledgement are the position of the source, and so part of the same commit as their effect.

Invariant: an id is in the position from the message's delivery until the server has confirmed the
acknowledgement.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from functools import partial
from itertools import islice
from typing import Generic, TypeVar

from ..._errors.delivery import verdict
from ..._errors.flow import FlowError
from ..._values.backoff import Backoff
from .declare import SourceFunction, source
from .item import At

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from typing import Any, Protocol, TypeAlias

    Delivery: TypeAlias = "tuple[Hashable, Any, Any]"

    class Reader(Protocol):
        """A connection from which messages are read."""

        async def open(self, delivered: Delivered[Any], again: bool) -> None:
            """Connects. ``again``: the flow has read from the server before."""

        async def receive(self) -> Sequence[Delivery]:
            """Waits for messages. Returns the id of each (None: it has none), its item, and what
            ``acknowledge`` takes."""

        async def acknowledge(self, messages: list[Any]) -> None:
            """Acknowledges messages; returns when the server has confirmed it."""

        def is_open(self) -> bool:
            """Whether the connection is there. If not, the server delivers its messages again."""

        def waiting(self) -> int:
            """How many messages have arrived and are not read."""

        async def close(self) -> None:
            """Disconnects."""


Id = TypeVar("Id", bound=Hashable)

REMEMBERED = 1000
"""How many ids are kept for a server that confirms acknowledgements: one that is killed, or begins again with
older files, may have lost those that it confirmed last."""


class Delivered(Generic[Id]):
    """The ids of messages that were passed to the flow and whose acknowledgement is not confirmed.

    Args:
        position: what :meth:`position` returned at the last commit, or None.
        remembered: how many ids are kept of messages whose acknowledgement was sent, for servers that do not
            confirm it, or that may lose it.

    >>> delivered = Delivered(None)
    >>> delivered.is_new(1), delivered.is_new(2), delivered.is_new(1)
    (True, True, False)
    >>> delivered.confirm([1], waiting=1)
    >>> delivered.position(), delivered.is_new(1), delivered.is_new(1)
    ((2,), False, True)
    """

    def __init__(self, position: tuple[Id, ...] | None, remembered: int = 0) -> None:
        self.remembered = remembered
        known = dict.fromkeys(position or ())
        self.ids: dict[Id, None] = {} if remembered else known
        self.sent: dict[Id, None] = known if remembered else {}
        self.read = 0
        # Of messages that are confirmed while copies of them may wait in the client: until when they may.
        self.settled: dict[Id, None] = {}
        self.due: deque[tuple[int, list[Id]]] = deque()

    def is_new(self, id: Id) -> bool:
        """Returns whether the flow does not have the message that was read, and adds it."""
        self.read += 1
        while self.due and self.due[0][0] < self.read:
            for settled in self.due.popleft()[1]:
                del self.settled[settled]
        if id in self.ids or id in self.sent or id in self.settled:
            return False
        self.ids[id] = None
        return True

    def confirm(self, ids: Iterable[Id], waiting: int = 0) -> None:
        """Removes messages that the server does not deliver again. Among the ``waiting`` messages that the
        client has received and the source not read, there may be copies of them."""
        gone = [id for id in ids if id in self.ids]
        for id in gone:
            del self.ids[id]
        self.remember(gone)
        if waiting:
            self.settled |= dict.fromkeys(gone)
            self.due.append((self.read + waiting, gone))

    def remember(self, ids: Iterable[Id]) -> None:
        self.sent |= dict.fromkeys(ids)
        for id in list(islice(self.sent, max(0, len(self.sent) - self.remembered))):
            del self.sent[id]

    def keep(self, condition: Callable[[Id], bool]) -> None:
        """Tells which messages have no acknowledgement at the server: those for which the condition holds."""
        known = (*self.sent, *self.ids)
        self.ids = {id: None for id in known if condition(id)}
        self.sent = {}
        self.remember(id for id in known if id not in self.ids)

    def position(self) -> tuple[Id, ...]:
        """Returns the ids, in the order of the deliveries."""
        return (*self.sent, *self.ids)


def delivered_by(
    name: str,
    connect: Callable[[], Reader],
    retry: Backoff | None,
    durable: bool = False,
    remembered: int = 0,
) -> SourceFunction[..., Any]:
    """A source of the messages of a server.

    Args:
        name: what it is called in messages.
        connect: makes the reader for an attempt.
        retry: the delays between attempts. None: ``Backoff()``.
        durable: whether messages are acknowledged when they are recorded, before their epoch is committed.
        remembered: as for :class:`Delivered`.
    """

    async def messages(resume: Any = None) -> AsyncIterator[At[list[Any]]]:
        reader = connect()
        delivered: Delivered[Any] = Delivered(resume, remembered)

        async def acknowledge(found: Sequence[Delivery]) -> None:
            try:
                await reader.acknowledge([message for _, _, message in found])
            except Exception:
                if reader.is_open():
                    raise
            else:
                delivered.confirm([id for id, _, _ in found], reader.waiting())

        try:
            await reader.open(delivered, resume is not None)
            while True:
                found = await reader.receive()
                items = [item for id, item, _ in found if id is None or delivered.is_new(id)]
                yield At(delivered.position(), items, partial(acknowledge, found))
        except Exception as error:
            if isinstance(error, FlowError) or verdict(error) == "retry":
                raise
            # Another attempt would fail in the same way.
            raise FlowError(f"{name}: {type(error).__name__}: {error}") from error
        finally:
            await reader.close()

    messages.__name__ = name
    make = source(batches=True, resume=True, ack=True, retry=retry or Backoff(), durable=durable)
    return make(messages)
