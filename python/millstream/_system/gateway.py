"""The table ``[gateway]`` of a system file, and the thread that runs the gateway of a system."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._errors.command import UsageError
from .._errors.flow import ServiceError
from .._service.failures import failed
from .._service.gateway import IDEMPOTENCY_KEEP_S, LOOK_S, MAX_BODY, Calls, Gateway, is_keep

if TYPE_CHECKING:
    from .file import Process, Service
    from .table import Table


#: The name of the process of a gateway.
NAME = "gateway"


def gateway_table(
    table: Table, services: Sequence[Service], processes: Sequence[Process], folder: str
) -> Gateway:
    """Reads the table. Calls default to the inputs that no service writes, feeds and states to the outputs.

    :raises UsageError: for a mistake in it.
    """
    listen = table.text("listen")
    token_file = table.text("token_file", None)
    if token_file is not None and not os.path.isfile(os.path.join(folder, token_file)):
        raise table.error("token_file", f"there is no file {token_file}")
    origins = tuple(table.texts("origins", default=()))
    sync = table.sync("sync", "always")
    max_body = MAX_BODY if (size := table.bytes("max_body")) is None else size
    if not 1 <= max_body <= 16 << 20:
        raise table.error("max_body", "is from 1 byte to 16 MiB")
    idempotency_keep_s = table.time("idempotency_keep", IDEMPOTENCY_KEEP_S)
    if not is_keep(idempotency_keep_s):
        raise table.error("idempotency_keep", "is from 1s to 366d")
    written = [service.out for service in services if service.out is not None]
    feeds = tuple(os.path.normpath(path) for path in table.texts("feeds", default=written))
    known = {*written, *(path for service in services for path in service.inputs)}
    for path in feeds:
        if path not in known:
            raise table.error("feeds", f"no service has {path} as an input or its output")
    states = tuple(os.path.normpath(path) for path in table.texts("states", default=written))
    for path in states:
        if path not in written:
            raise table.error("states", f"no service has {path} as its output")
    given = given_calls(table, known, written)
    table.end()
    calls = derived_calls(table, services, processes) if given is None else given
    answers = answers_of(calls, services)
    return Gateway(
        listen, calls, feeds, answers, states, token_file, origins, sync, max_body, idempotency_keep_s
    )


def answers_of(calls: Sequence[Calls], services: Sequence[Service]) -> tuple[tuple[str, str], ...]:
    """Each journal of calls with the outputs of the services that read it."""
    return tuple(
        (it.journal, service.out)
        for it in calls
        for service in services
        if it.journal in service.inputs and service.out is not None
    )


def given_calls(table: Table, known: set[str], written: Sequence[str]) -> tuple[Calls, ...] | None:
    """The table ``[gateway.calls]``: journals with the classes of their interfaces. None without it."""
    if "calls" not in table.left:
        table.known.append("calls")
        return None
    inner = table.table("calls", required=True)
    found = []
    for name in list(inner.left):
        path = os.path.normpath(name)
        classes = tuple(inner.texts(name, one=True))
        if path in written or path not in known:
            raise inner.error(name, "is not an input that no service of this file writes")
        for place in classes:
            if ":" not in place:
                raise inner.error(name, f"{place}: expected MODULE:CLASS or FILE.py:CLASS")
        found.append(Calls(path, classes))
    return tuple(found)


def derived_calls(
    table: Table, services: Sequence[Service], processes: Sequence[Process]
) -> tuple[Calls, ...]:
    """The journals that no service writes, with the interfaces of the components that read them."""
    writers = {service.out: service for service in services if service.out is not None}
    programs = {process.name for process in processes if process.command}
    classes: dict[str, list[str]] = {}
    without: dict[str, list[str]] = {}
    for service in services:
        outer = [path for path in service.inputs if path not in writers]
        inner = [writers[path] for path in service.inputs if path in writers]
        if not outer:
            continue
        program = next((it for it in (service, *inner) if it.process in programs), None)
        if program is not None:
            what = f"the interfaces of {program.name} are those of a program"
            raise table.error(None, f"{what}; name them in [gateway.calls]")
        if len(outer) > 1:
            what = f"{service.name} has the inputs {' and '.join(outer)}"
            raise table.error(None, f"{what}; name the interfaces of each in [gateway.calls]")
        classes.setdefault(outer[0], []).append(service.component)
        without.setdefault(outer[0], []).extend(writer.component for writer in inner)
    return tuple(Calls(path, tuple(classes[path]), tuple(without[path])) for path in classes)


class GatewayPart(threading.Thread):
    """The gateway of a system, on its thread."""

    def __init__(self, order: dict[str, Any]) -> None:
        super().__init__(name=NAME, daemon=True)
        calls = [Calls(**it) for it in order["calls"]]
        answers = [(it[0], it[1]) for it in order["answers"]]
        try:
            self.gateway = Gateway(**order | {"calls": calls, "answers": answers}).start()
        except UsageError as error:
            raise UsageError(f"[gateway]: {error}") from None
        print(f"listening on {self.gateway.address}", flush=True)
        self.stopped = threading.Event()
        self.code: int | None = None

    def run(self) -> None:
        try:
            while not self.stopped.is_set():
                self.gateway.wait(LOOK_S)
            self.code = 0
        except ServiceError as error:
            self.code = 1
            failed("service gateway", error)
        finally:
            self.gateway.stop()

    def stop(self) -> None:
        self.stopped.set()
