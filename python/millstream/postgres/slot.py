"""The replication slot of a source: its state on the server, and what a position needs of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from .errors import PostgresError
from .pgoutput import format_lsn, parse_lsn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import psycopg


log = logging.getLogger("millstream.flow.source")


@dataclass(frozen=True)
class Slot:
    """A slot: up to where it is confirmed, and its state in the words of the server.

    ``retained`` is the size in bytes of the log that the server keeps for it, ``lag`` that of what is not
    confirmed, and ``room`` what may be written before the slot is lost (None: without limit).
    """

    plugin: str
    database: str | None
    confirmed: int
    status: str | None
    retained: int
    lag: int
    room: int | None


FIND = """
SELECT plugin, database, confirmed_flush_lsn::text, wal_status, pg_wal_lsn_diff(now.lsn, restart_lsn)::int8,
    pg_wal_lsn_diff(now.lsn, confirmed_flush_lsn)::int8, safe_wal_size
FROM pg_replication_slots, (SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
    ELSE pg_current_wal_lsn() END AS lsn) now
WHERE slot_name = %s
"""


def find_slot(connection: psycopg.Connection[Any], name: str) -> Slot | None:
    """Looks a slot up."""
    found = connection.execute(FIND, (name,)).fetchone()
    if found is None:
        return None
    plugin, database, confirmed, status, retained, lag, room = found
    lsn = parse_lsn(confirmed) if confirmed else 0
    return Slot(plugin, database, lsn, status, retained or 0, lag or 0, room)


def way_out(name: str, drop: bool) -> str:
    dropped = f"SELECT pg_drop_replication_slot('{name}') on the server, and " if drop else ""
    return (
        f"To begin again with a snapshot: {dropped}run the flow once with --drop-state SOURCE "
        "(drop_state=), where SOURCE is the name of the source in the flow"
    )


def check_slot(slot: Slot | None, name: str, server: str, lsn: int) -> Slot:
    """Checks that a slot still has all changes from a position on.

    Raises:
        PostgresError: it does not.
    """
    if slot is None:
        raise PostgresError(
            f'{server}: the replication slot "{name}" does not exist any more, so that changes after '
            f"{format_lsn(lsn)} are lost. {way_out(name, False)}"
        )
    if slot.status == "lost":
        raise PostgresError(
            f'{server}: the replication slot "{name}" is lost: the server has removed log that it needs '
            f"(max_slot_wal_keep_size), so that changes after {format_lsn(lsn)} are lost. "
            f"{way_out(name, True)}"
        )
    if slot.plugin != "pgoutput":
        raise PostgresError(f'{server}: the replication slot "{name}" is of the plugin {slot.plugin}')
    if slot.confirmed > lsn:
        raise PostgresError(
            f'{server}: the replication slot "{name}" is confirmed up to {format_lsn(slot.confirmed)}, and '
            f"the flow has read up to {format_lsn(lsn)}: changes in between are lost to it. Another flow, "
            f"another copy of the state directory or another program has used the slot. {way_out(name, True)}"
        )
    return slot


class Watch:
    """Reports how much log the server keeps for a slot: a warning while it is too much."""

    def __init__(self, name: str, server: str, warn_bytes: int) -> None:
        self.name = name
        self.server = server
        self.warn_bytes = warn_bytes
        self.warned = False

    def report(self, slot: Slot | None) -> None:
        if slot is None:
            return
        log.info(
            '%s: slot "%s" is %d bytes late, the server keeps %d bytes of log for it',
            self.server,
            self.name,
            slot.lag,
            slot.retained,
        )
        is_near_limit = slot.status == "unreserved" or (slot.room is not None and slot.room < slot.retained)
        is_much = slot.retained > self.warn_bytes or is_near_limit
        if is_much and not self.warned:
            room = "" if slot.room is None else f"; the slot is lost after {max(slot.room, 0)} bytes more"
            log.warning(
                '%s: the server keeps %d bytes of log for slot "%s", since the flow is %d bytes late%s',
                self.server,
                slot.retained,
                self.name,
                slot.lag,
                room,
            )
        elif self.warned and not is_much:
            log.warning(
                '%s: slot "%s" has caught up, the server keeps %d bytes of log for it',
                self.server,
                self.name,
                slot.retained,
            )
        self.warned = is_much
