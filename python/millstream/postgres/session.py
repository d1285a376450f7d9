"""One attempt to read a slot: from the connections to the error that ends them.

Invariant: the position that goes with a chunk is after the last change in it, so that the next attempt
continues there.
"""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import replace

from .._connectors.adapter.undecoded import Undecoded
from .connection import connect
from .decode import Decoder
from .errors import PostgresError, unreachable
from .pgoutput import Begin, Commit, Keepalive, Relation, format_lsn, parse_lsn, parse_message
from .position import Known, Snapshot, Streaming, TablesAdded
from .publication import Selection
from .replication import Replication, with_settings
from .slot import Slot, Watch, check_slot, find_slot
from .snapshot import begin_snapshot, snapshot_changes
from .types import Encoding, Types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .change import Change
    from .pgoutput import Message
    from .publication import Published
    from .receiver import Receiver


log = logging.getLogger("millstream.flow.source")
CHUNK = 1000
"""How many changes the flow receives at once, at most."""
CHUNK_BYTES = 1 << 20
"""How large these are together, unless one is larger."""
POLL_SECONDS = 0.25
CONFIRM_SECONDS = 1.0
WATCH_SECONDS = 10.0
REPORT_SECONDS = 0.5


class Session:
    """The connections of an attempt: one for commands and the stream, one for queries."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.options = receiver.options
        name = f"millstream slot {self.options.slot}"
        self.sql = connect(with_settings(self.options.dsn), name, self.options.timeout)
        encoding = Encoding.of(self.sql.info.parameter_status("server_encoding") or "UTF8")
        try:
            self.replication = Replication(self.options.dsn, name, self.options.timeout, encoding.name)
        except BaseException:
            self.sql.close()
            raise
        self.server = self.replication.server
        self.selection = Selection(self.server, self.options.publication, self.options.tables)
        self.watch = Watch(self.options.slot, self.server, self.options.warn_bytes)
        self.types = Types(self.server, encoding, self.base_of)
        self.streams = False
        self.stream: Stream | None = None
        self.end = 0
        self.sent = 0
        self.confirmed_at = self.watched_at = self.put_at = self.reported_at = time.monotonic()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.replication.close()
        self.sql.close()

    def run(self) -> None:
        """Reads until the flow ends.

        Raises:
            ConnectionError: a connection is lost; another attempt may succeed.
            PostgresError: the server refuses something, or changes are lost.
        """
        import psycopg

        try:
            self.selection.ensure(self.sql)
            position = self.receiver.position
            if not isinstance(position, Streaming):
                system = str(self.replication.execute("IDENTIFY_SYSTEM")[0]["systemid"])
                position = self.begin(system, position)
            self.check(position)
            Stream(self, self.add_tables(position)).run()
        except psycopg.Error as error:
            raise unreachable(self.server, error) from None

    def begin(self, system: str, position: Snapshot | None) -> Streaming:
        """Creates the slot, and reads the snapshot; returns the position of the stream."""
        slot = find_slot(self.sql, self.options.slot)
        if position is None and not self.options.snapshot:
            name = self.options.slot
            lsn = slot.confirmed if slot is not None else self.create_slot(name, "NOEXPORT_SNAPSHOT")[0]
            known = tuple(Known.of(table, lsn) for table in self.selection.published(self.sql))
            streaming = Streaming(system, lsn, known)
            self.put(streaming, [])
            return streaming
        if position is None:
            if slot is not None:
                raise PostgresError(
                    f'{self.server}: the replication slot "{self.options.slot}" exists, and the flow has no '
                    "position in it. If another flow or program uses it, choose another name. To continue "
                    "with it without a snapshot: snapshot=False. To begin anew: SELECT "
                    f"pg_drop_replication_slot('{self.options.slot}')"
                )
            # From this commit on the slot is known to be this source's, which may drop it.
            position = Snapshot()
            self.put(position, [])
        self.receiver.wait_for_intent()
        if find_slot(self.sql, self.options.slot) is not None:
            self.replication.execute(f'DROP_REPLICATION_SLOT "{self.options.slot}"')
        lsn, snapshot = self.create_slot(self.options.slot, "EXPORT_SNAPSHOT")
        return self.read_snapshot(snapshot, position, Streaming(system, lsn))

    def add_tables(self, position: Streaming) -> Streaming:
        """Reads the rows of tables that were published after the position's; returns the position with them.

        Their changes count from the snapshot of a slot that is made for it. Before that they are in the rows.
        """
        published = self.selection.published(self.sql)
        added = position.unknown(published)
        if not added:
            return position
        if not self.options.snapshot:
            return replace(position, tables=position.with_tables(added, position.lsn))
        name = f"{self.options.slot[:46]}_{os.urandom(8).hex()}"
        lsn, snapshot = self.create_slot(name, "EXPORT_SNAPSHOT", "TEMPORARY ")
        after = position
        if len(added) == len(published):
            # Nothing before it counts. The log may be that of another publication, which did not exist then.
            after = Streaming(position.system, lsn)
        after = self.read_snapshot(snapshot, position, after, lsn)
        self.replication.execute(f'DROP_REPLICATION_SLOT "{name}"')
        return after

    def read_snapshot(
        self, snapshot: str, before: Snapshot | Streaming, after: Streaming, lsn: int | None = None
    ) -> Streaming:
        """Passes on the rows of the tables that the position ``after`` does not know.

        Args:
            snapshot: the name of the snapshot.
            before: the position until all are passed on.
            after: the position afterwards, without these tables.
            lsn: that of the snapshot, if it is not that of ``after``.

        Returns:
            The position afterwards.
        """
        lsn = after.lsn if lsn is None else lsn
        name = f"millstream snapshot {self.options.slot}"
        timeout = self.options.timeout
        with connect(with_settings(self.options.dsn), name, timeout) as connection:
            begin_snapshot(connection, snapshot)
            self.receiver.works()
            tables = after.unknown(self.selection.published(connection))
            after = replace(after, tables=after.with_tables(tables, lsn))
            chunk: list[Change | Undecoded] = []
            size = 0
            for change, bytes_of_row in snapshot_changes(connection, tables, self.types, lsn):
                chunk.append(change)
                size += bytes_of_row
                if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
                    self.put(before, chunk)
                    chunk = []
                    size = 0
        self.put(after, chunk)
        return after

    def create_slot(self, slot: str, snapshot: str, kind: str = "") -> tuple[int, str]:
        """Creates a slot; returns its first position and the name of the exported snapshot."""
        told = False

        def waiting(seconds: float) -> None:
            nonlocal told
            self.receiver.check_stop()
            if seconds > WATCH_SECONDS and not told:
                told = True
                log.warning(
                    '%s: the slot "%s" is created when all open transactions have ended',
                    self.server,
                    slot,
                )

        made = self.replication.execute(
            f'CREATE_REPLICATION_SLOT "{slot}" {kind}LOGICAL pgoutput {snapshot}', waiting
        )[0]
        return parse_lsn(str(made["consistent_point"])), str(made["snapshot_name"])

    def check(self, position: Streaming) -> Slot:
        """Checks that the server has all changes from a position on."""
        system = self.replication.execute("IDENTIFY_SYSTEM")[0]
        if position.system != system["systemid"]:
            raise PostgresError(
                f"{self.server} is another cluster (system identifier {system['systemid']}) than that "
                f"which the flow has read ({position.system}). Run it once with --drop-state SOURCE "
                "(drop_state=), where SOURCE is the name of the source in the flow, to begin with a snapshot"
            )
        slot = check_slot(
            find_slot(self.sql, self.options.slot), self.options.slot, self.server, position.lsn
        )
        end = parse_lsn(str(system["xlogpos"]))
        if end < position.lsn:
            raise PostgresError(
                f"{self.server}: its log ends at {format_lsn(end)}, and the flow has read up to "
                f"{format_lsn(position.lsn)}. Was the server restored from a backup? Run the flow once with "
                "--drop-state SOURCE (drop_state=), where SOURCE is the name of the source in the flow, to "
                "begin with a snapshot"
            )
        self.end = max(self.end, end)
        self.receiver.confirmed = max(self.receiver.confirmed, slot.confirmed)
        return slot

    def put(self, position: Snapshot | Streaming, changes: list[Change | Undecoded]) -> None:
        self.receiver.put(position, changes, self.tend)
        self.put_at = self.replication.heard = time.monotonic()

    def tend(self) -> None:
        """Confirms what is committed, and reports the state of the slot, from time to time."""
        now = time.monotonic()
        if self.streams:
            confirmed = self.receiver.confirmed
            is_due = now - self.confirmed_at >= self.options.heartbeat
            if is_due or (confirmed > self.sent and now - self.confirmed_at >= CONFIRM_SECONDS):
                self.confirm(is_due)
        if now - self.watched_at >= WATCH_SECONDS:
            self.watched_at = now
            slot = find_slot(self.sql, self.options.slot)
            self.watch.report(slot)
            if slot is not None:
                self.end = max(self.end, slot.confirmed + slot.lag)
            if self.stream is not None and self.options.snapshot:
                self.stream.check_tables(self.selection.published(self.sql))
        if self.stream is not None and now - self.reported_at >= REPORT_SECONDS:
            self.reported_at = now
            self.receiver.report(self.end, self.stream.read_to())

    def confirm(self, reply: bool) -> None:
        self.sent = self.receiver.confirmed
        self.confirmed_at = time.monotonic()
        self.replication.confirm(self.sent, reply)

    def base_of(self, type_: int) -> int:
        """The number of the type under a domain, or the number itself."""
        while True:
            query = "SELECT typbasetype::int8 FROM pg_type WHERE oid = %s AND typtype = 'd'"
            found = self.sql.execute(query, (type_,)).fetchone()
            if found is None:
                return type_
            type_ = found[0]


class Stream:
    """The stream of a slot from a position on.

    Args:
        session: the connections.
        position: the position.
    """

    def __init__(self, session: Session, position: Streaming) -> None:
        self.session = session
        self.lsn = self.passed = position.lsn
        self.resumed = position
        self.since: dict[str, float] = {table.name: table.since for table in position.tables}
        self.since_of = {table.number: table.since for table in position.tables}
        self.decoder = Decoder(session.types)
        self.chunk: list[Change | Undecoded] = []
        self.size = 0
        self.count = 0
        self.skipped: float = 0
        session.stream = self

    def run(self) -> None:
        """Reads until the flow ends, and confirms the last position then."""
        session = self.session
        replication = session.replication
        receiver = session.receiver
        replication.start(session.options.slot, session.options.publication, self.lsn)
        session.streams = True
        receiver.works()
        while not receiver.stopping.is_set():
            frame = replication.receive(0)
            if frame is None:
                if self.decoder.transaction is None:
                    self.pass_on()
                frame = replication.receive(POLL_SECONDS)
            if isinstance(frame, Keepalive):
                session.end = max(session.end, frame.end)
            session.tend()
            if isinstance(frame, Keepalive):
                self.keepalive(frame)
            elif frame is not None:
                message = parse_message(frame.body, session.types.encoding.codec)
                if message is not None:
                    self.size += len(frame.body)
                    self.read(message)
        session.confirm(False)

    def keepalive(self, frame: Keepalive) -> None:
        """Between transactions, everything before the end of the log was sent."""
        if self.decoder.transaction is None:
            self.lsn = max(self.lsn, frame.end)
            is_idle = time.monotonic() - self.session.put_at >= self.session.options.heartbeat
            if is_idle and not self.chunk and self.lsn > self.passed:
                self.session.put(self.position(), [])
                self.passed = self.lsn
        if frame.reply:
            self.session.confirm(False)

    def read(self, message: Message) -> None:
        changes = self.decoder.changes(message)
        if isinstance(message, Begin):
            self.count = 0
            # Of the transaction in which an earlier run has ended, what it has passed on comes again.
            self.skipped = self.resumed.count if message.lsn == self.resumed.next else 0
            if message.lsn < self.resumed.lsn:
                self.skipped = math.inf
        elif isinstance(message, Commit):
            self.lsn = max(self.lsn, message.end)
        elif isinstance(message, Relation):
            self.since[f"{message.schema}.{message.name}"] = self.begin_of(message)
        for change in changes:
            self.count += 1
            raw = change.item if isinstance(change, Undecoded) else change
            if self.count > self.skipped and raw.lsn >= self.since[raw.table]:
                self.chunk.append(change)
                if len(self.chunk) >= CHUNK or self.size >= CHUNK_BYTES:
                    self.pass_on()

    def begin_of(self, relation: Relation) -> float:
        """The position from which changes of a table count.

        Raises:
            TablesAdded: its rows are not known.
        """
        known = self.since_of.get(relation.number)
        if known is not None:
            return known
        session = self.session
        published = {table.relation.number: table for table in session.selection.all_published(session.sql)}
        table = published.get(relation.number)
        if table is None:
            # It is in the publication no more.
            return self.since.get(f"{relation.schema}.{relation.name}", 0)
        selected = session.selection.published(session.sql)
        if table not in selected:
            return math.inf
        if session.options.snapshot:
            self.check_tables(selected)
        return 0

    def check_tables(self, published: list[Published]) -> None:
        """Raises ``TablesAdded`` if there are others than those whose rows are known."""
        added = self.resumed.unknown(published)
        if added:
            raise TablesAdded(", ".join(table.name for table in added))

    def read_to(self) -> int | None:
        """Up to where everything in the log was passed on; None inside of a transaction."""
        return None if self.chunk or self.decoder.transaction is not None else self.lsn

    def position(self) -> Streaming:
        transaction = self.decoder.transaction
        if transaction is None:
            return replace(self.resumed, lsn=self.lsn, next=0, count=0)
        return replace(self.resumed, lsn=self.lsn, next=transaction.lsn, count=self.count)

    def pass_on(self) -> None:
        self.size = 0
        if self.chunk:
            chunk = self.chunk
            self.chunk = []
            self.session.put(self.position(), chunk)
            self.passed = self.lsn
