"""The thread that reads a slot: it connects, reads the snapshot and then the stream, and confirms positions.

The flow takes chunks of changes from its queue. While the queue is full the thread reads nothing from the
server, and still sends status updates, so that the server does not take it for dead.
"""

from __future__ import annotations

import logging
import threading
from queue import Empty, Full, Queue

from .._connectors.adapter.lag import reporter
from .connection import describe_server
from .errors import PostgresError, unreachable
from .pgoutput import format_lsn
from .position import Snapshot, Streaming, TablesAdded, read_position

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .._connectors.adapter.undecoded import Undecoded
    from .change import Change
    from .changes_options import ChangesOptions
    from .position import Position


log = logging.getLogger("millstream.flow.source")
CHUNKS = 4
"""How many chunks wait for the flow at most."""
CLOSE_SECONDS = 3.0


class Stopped(Exception):
    """The flow has ended."""


class Receiver:
    """Reads changes on a thread of its own.

    Args:
        options: what ``ms.postgres.changes`` was called with.
        saved: the position to resume from, as it was saved.
    """

    def __init__(self, options: ChangesOptions, saved: Any) -> None:
        self.options = options
        self.server = describe_server(options.dsn)
        self.position: Position | None = read_position(saved)
        self.confirmed = self.position.lsn if isinstance(self.position, Streaming) else 0
        self.intended = threading.Event()
        if isinstance(self.position, Snapshot):
            self.intended.set()
        self.queue: Queue[tuple[Position, list[Change | Undecoded]]] = Queue(CHUNKS)
        self.stopping = threading.Event()
        self.error: BaseException | None = None
        self.failed = 0
        self.report_lag = reporter()
        self.taken = self.position
        self.thread = threading.Thread(target=self.run, name=f"millstream slot {options.slot}", daemon=True)
        self.thread.start()

    # The flow's side.

    def take(self, seconds: float) -> tuple[Position, list[Change | Undecoded]] | None:
        """Returns the next chunk and the position after it; None if there is none within ``seconds``.

        Raises:
            PostgresError: the source has failed.
        """
        try:
            taken = self.queue.get(timeout=seconds)
            self.taken = taken[0]
            return taken
        except Empty:
            if self.thread.is_alive() or not self.queue.empty():
                return None
            raise self.error or Stopped() from None

    def confirm(self, position: Position) -> None:
        """The epoch of a position is committed."""
        if isinstance(position, Streaming):
            self.confirmed = max(self.confirmed, position.lsn)
        else:
            self.intended.set()

    def close(self) -> None:
        """Ends the thread, which confirms the last position first."""
        self.stopping.set()
        self.thread.join(CLOSE_SECONDS)

    # The thread's side.

    def run(self) -> None:
        from .session import Session

        try:
            while not self.stopping.is_set():
                try:
                    with Session(self) as session:
                        session.run()
                except TablesAdded as added:
                    log.info('slot "%s": tables were added: %s', self.options.slot, added)
                except OSError as error:
                    self.wait_for_retry(error)
        except Stopped:
            pass
        except BaseException as error:
            self.error = self.named(error)

    def named(self, error: BaseException) -> BaseException:
        """An error of psycopg as one of ours."""
        import psycopg

        return unreachable(self.server, error) if isinstance(error, psycopg.Error) else error

    def wait_for_retry(self, error: OSError) -> None:
        """Waits before the next attempt.

        Raises:
            PostgresError: there were too many.
        """
        self.failed += 1
        retry = self.options.retry
        if retry.gives_up(self.failed):
            raise PostgresError(f"{error}; {self.failed} attempts have failed") from error
        level = logging.WARNING if self.failed == 1 else logging.DEBUG
        delay = retry.delay(self.failed)
        log.log(level, 'slot "%s": %s; the next attempt is in %g s', self.options.slot, error, delay)
        self.stopping.wait(delay)

    def works(self) -> None:
        """There is something from the server again."""
        if self.failed:
            log.warning('slot "%s": connected again after %d attempts', self.options.slot, self.failed)
            self.failed = 0

    def put(self, position: Position, changes: list[Change | Undecoded], tend: Callable[[], object]) -> None:
        """Passes changes to the flow; calls ``tend`` while it waits for room.

        Raises:
            Stopped: the flow has ended.
        """
        while not self.stopping.is_set():
            try:
                self.queue.put((position, changes), timeout=0.25)
            except Full:
                tend()
            else:
                self.position = position
                return
        raise Stopped

    def report(self, end: int, read: int | None) -> None:
        """Reports how many bytes of the server's log the flow has not read.

        Args:
            end: the end of the log.
            read: up to where everything was put into the queue, if that is known.
        """
        if read is None or not self.queue.empty():
            read = self.taken.lsn if isinstance(self.taken, Streaming) else None
        if read is not None:
            self.report_lag(bytes=max(0, end - read))

    def wait_for_intent(self) -> None:
        """Waits until it is committed that the slot belongs to this source.

        Raises:
            Stopped: the flow has ended.
        """
        while not self.intended.wait(0.25):
            self.check_stop()

    def check_stop(self) -> None:
        """Raises ``Stopped`` if the flow has ended."""
        if self.stopping.is_set():
            raise Stopped

    def describe(self) -> str:
        """The position as text."""
        position = self.position
        return format_lsn(position.lsn) if isinstance(position, Streaming) else "the snapshot"
