"""A system of services in one file of TOML: its contents, checked before anything runs.

All paths are relative to the file, and each process runs in the file's folder. Every mistake is an error of
one line that names the file, the line, the table and the key.
"""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from .._errors.command import UsageError
from .._run.supervisor import Restart
from .._service.gateway import Gateway
from .gateway import NAME, gateway_table
from .table import Source, Table

__all__ = ["JournalOptions", "Process", "Restart", "Service", "System", "read"]


@dataclass(frozen=True)
class JournalOptions:
    """The table ``[journals.PATH]``."""

    sync: str = "never"
    wait_follower: int = 0
    retain_bytes: int | None = None
    retain_age_s: float | None = None
    retain_for_cursors: bool = False

    @property
    def retains(self) -> bool:
        return self.retain_bytes is not None or self.retain_age_s is not None or self.retain_for_cursors


@dataclass(frozen=True)
class Service:
    """The table ``[services.NAME]``."""

    name: str
    component: str
    inputs: tuple[str, ...]
    out: str | None
    process: str
    wait: str
    cores: tuple[int, ...]
    rebuild: str
    snapshot_every: int
    on_error: str
    on_difference: str
    accept_differences: int
    dead_letters: str | None


@dataclass(frozen=True)
class Process:
    """The table ``[processes.NAME]``, with the services whose ``process`` it is."""

    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    restart: Restart
    services: tuple[Service, ...] = ()

    @property
    def is_gateway(self) -> bool:
        """Whether it is the process of the gateway, which has no services."""
        return not self.services

    def order(self, system: System) -> dict[str, Any]:
        """The order of the process on its standard input. Two equal orders mean the same process."""
        order = {
            "process": self.name,
            "state": system.state,
            "stop_s": system.stop_s,
            "services": [self.part(service, system) for service in self.services],
        }
        if self.is_gateway and system.gateway is not None:
            order["gateway"] = asdict(system.gateway)
        return order

    def part(self, service: Service, system: System) -> dict[str, Any]:
        out = system.journals.get(service.out or "", JournalOptions())
        part = {key: value for key, value in vars(service).items() if key != "process"}
        return part | vars(out)


@dataclass(frozen=True)
class System:
    """The contents of a file. Services, and processes by their first service, are sorted by their inputs."""

    path: str
    folder: str
    state: str
    drain_s: float
    stop_s: float
    services: tuple[Service, ...]
    processes: tuple[Process, ...]
    journals: dict[str, JournalOptions] = field(default_factory=dict)
    gateway: Gateway | None = None

    @property
    def writers(self) -> dict[str, str]:
        """The service that writes each output journal."""
        return {service.out: service.name for service in self.services if service.out is not None}


def read(path: str) -> System:
    """
    :raises UsageError: for a file that is not there or cannot be understood, in one line.
    """
    source = load(path)
    top = Table(source, (), source.values)
    settings = top.table("system", required=False)
    drain_s = settings.time("drain", 3.0)
    stop_s = settings.time("stop", 10.0)
    settings.end()
    folder = os.path.dirname(os.path.abspath(path))
    services = [service_of(table) for table in top.tables("services", required=True)]
    journals = {norm(table.name): journal_of(table) for table in top.tables("journals")}
    named = {table.name: process_of(table) for table in top.tables("processes")}
    table = top.table("gateway", required=False) if "gateway" in top.left else None
    top.known.append("gateway")
    top.end()
    check_writers(source, services)
    check_journals(source, services, journals)
    services = in_order(source, services)
    processes = []
    if table is not None:
        # The first: it is stopped before the services that read its calls.
        processes.append(gateway_process(source, services, named.pop(NAME, None)))
    for name in dict.fromkeys(service.process for service in services):
        process = named.pop(name, None) or Process(name, (), (), Restart())
        own = tuple(service for service in services if service.process == name)
        processes.append(Process(name, process.command, process.environment, process.restart, own))
    for name in named:
        raise source.error(("processes", name), None, f"no service has the process {name}")
    for process in processes:
        check_program(source, process, folder)
    gateway = None if table is None else gateway_table(table, services, processes, folder)
    stem = os.path.splitext(os.path.basename(path))[0]
    state = os.path.join(folder, f"{stem}.state")
    return System(path, folder, state, drain_s, stop_s, tuple(services), tuple(processes), journals, gateway)


def load(path: str) -> Source:
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        return Source(path, text, tomllib.loads(text))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None


def norm(path: str) -> str:
    return os.path.normpath(path)


def service_of(table: Table) -> Service:
    inputs = tuple(norm(path) for path in table.texts("in", one=True))
    if not inputs:
        raise table.error("in", "a service has an input")
    if len(set(inputs)) < len(inputs):
        raise table.error("in", "an input is named twice")
    out = table.text("out", None)
    dead_letters = table.text("dead_letters", None)
    service = Service(
        name=table.name,
        component=table.text("component"),
        inputs=inputs,
        out=None if out is None else norm(out),
        process=table.text("process", table.name),
        wait=table.choice("wait", ("block", "back-off", "spin"), "block"),
        cores=table.cores("cores"),
        rebuild=table.choice("rebuild", ("inputs", "outputs", "snapshot", "nothing"), "inputs"),
        snapshot_every=table.number("snapshot_every", 100_000, least=1),
        on_error=table.choice("on_error", ("fail", "skip"), "fail"),
        on_difference=table.choice("on_difference", ("fail", "warn", "recorded"), "fail"),
        accept_differences=table.number("accept_differences", 0),
        dead_letters=None if dead_letters is None else norm(dead_letters),
    )
    table.end()
    if service.out is None and service.rebuild in ("outputs", "snapshot"):
        raise table.error("rebuild", f'"{service.rebuild}" needs an out')
    if not table.name.replace("-", "").replace("_", "").isalnum():
        raise table.error(None, "a name is made of letters, digits, - and _")
    return service


def journal_of(table: Table) -> JournalOptions:
    options = JournalOptions(
        sync=table.sync("sync"),
        wait_follower=table.number("wait_follower", 0, most=64),
        retain_bytes=table.bytes("retain_bytes"),
        retain_age_s=table.time("retain_age", None),
        retain_for_cursors=table.flag("retain_for_cursors"),
    )
    table.end()
    return options


def process_of(table: Table) -> Process:
    restart = table.table("restart", required=False)
    policy = Restart(
        first_s=restart.time("first", 0.1),
        longest_s=restart.time("longest", 10.0),
        limit=restart.number("limit", 5),
        within_s=restart.time("within", 60.0),
    )
    restart.end()
    command = tuple(table.texts("command", default=()))
    environment = tuple(sorted(table.environment("environment").items()))
    table.end()
    return Process(table.name, command, environment, policy)


def gateway_process(source: Source, services: list[Service], given: Process | None) -> Process:
    """The process of the gateway, which is no other's."""
    for service in services:
        if service.process == NAME:
            raise source.error(("services", service.name), "process", f"{NAME} is the process of [gateway]")
    if given is not None and given.command:
        raise source.error(("processes", NAME), "command", "the gateway is no program of its own")
    return given or Process(NAME, (), (), Restart())


def check_writers(source: Source, services: list[Service]) -> None:
    writers: dict[str, Service] = {}
    for service in services:
        place = ("services", service.name)
        if service.out is None:
            continue
        if service.out in service.inputs:
            raise source.error(place, "out", f"{service.out} is an input of the service too")
        other = writers.setdefault(service.out, service)
        if other is not service:
            raise source.error(place, "out", f"{service.out} is written by {other.name} too")
    for service in services:
        companion = next((out for out in writers if service.dead_letters in beside(out)), None)
        if companion is not None:
            writer = writers[companion].name
            raise source.error(
                ("services", service.name), "dead_letters", f"{service.dead_letters} is written by {writer}"
            )
        companion = next((out for out in writers if service.out in beside(out)[1:]), None)
        if companion is not None:
            writer = writers[companion].name
            raise source.error(
                ("services", service.name), "out", f"{service.out} belongs to the output of {writer}"
            )


def beside(out: str) -> tuple[str, str, str]:
    """An output, and the files of its service beside it."""
    return out, f"{out}.schedule", f"{out}.snapshots"


def check_journals(source: Source, services: list[Service], journals: dict[str, JournalOptions]) -> None:
    outputs = {service.out for service in services}
    own = {path for out in outputs if out is not None for path in beside(out)[1:]}
    letters = {service.dead_letters for service in services}
    used = outputs.union(letters, own, *(service.inputs for service in services))
    for path, options in journals.items():
        place = ("journals", path)
        if path not in used:
            raise source.error(
                place, None, "no service has this journal as an input, its output or its dead letters"
            )
        if path in outputs:
            continue
        if path in own and options.retains:
            raise source.error(place, None, "its service removes what no start needs")
        for key in ("sync", "wait_follower"):
            if getattr(options, key) != getattr(JournalOptions(), key):
                raise source.error(
                    place, key, "no service of this file writes it; its publishers choose that"
                )


def in_order(source: Source, services: list[Service]) -> list[Service]:
    """Each service after those whose outputs it reads; otherwise as in the file."""
    writer = {service.out: service for service in services if service.out is not None}
    ordered: list[Service] = []
    way: list[Service] = []

    def visit(service: Service) -> None:
        if service in ordered:
            return
        if service in way:
            names = [passed.name for passed in way[way.index(service) :]] + [service.name]
            shown = " -> ".join(reversed(names))
            raise source.error(("services", service.name), "in", f"services feed each other: {shown}")
        way.append(service)
        for path in service.inputs:
            if path in writer:
                visit(writer[path])
        way.pop()
        ordered.append(service)

    for service in services:
        visit(service)
    return ordered


def check_program(source: Source, process: Process, folder: str) -> None:
    """Raises for a program that does not exist."""
    if process.command:
        program = process.command[0]
        found = shutil.which(os.path.join(folder, program) if os.path.dirname(program) else program)
        if found is None:
            raise source.error(("processes", process.name), "command", f"there is no program {program}")
        return
    for service in process.services:
        place = ("services", service.name)
        module, colon, _ = service.component.rpartition(":")
        if not colon:
            raise source.error(
                place, "component", f"{service.component}: expected MODULE:CLASS or FILE.py:CLASS"
            )
        if module.endswith(".py") and not os.path.isfile(os.path.join(folder, module)):
            raise source.error(place, "component", f"there is no file {module}")
