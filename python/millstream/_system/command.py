"""``millstream service up | down | status SYSTEM.toml``."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from .. import _millstream
from .._errors.command import UsageError, report_error
from .._errors.flow import FlowUsageError, ServiceError
from .._errors.journal import JournalError
from .._run.logs import configure
from .._run.page_options import add_http, add_log, check_http
from .._stores.journal import Journal
from .file import Service, System, read
from .gateway import NAME
from .system import SystemSupervisor, acquire_lock, next_of, send_request, service_status

#: How long a new supervisor waits for the processes of one that was killed, in seconds, beyond their limit.
LEFT_S = 5.0

Verb = Callable[[str, Callable[[Any], int], str, str], argparse.ArgumentParser]


def add_verbs(verb: Verb) -> None:
    """The verbs of systems, and their options."""
    up = verb(
        "up",
        up_verb,
        "Run a system of services until Ctrl-C, or apply a change to one that runs.",
        "desk.toml",
    )
    down = verb("down", down_verb, "Stop a system of services.", "desk.toml")
    status = verb(
        "status", status_verb, "Show state, lag and rates of the services of a system.", "desk.toml"
    )
    for to in (up, down, status):
        to.add_argument("system", metavar="SYSTEM.toml", help="the file that describes the system")
    add_http(up, "the services of the system")
    add_log(up)
    status.add_argument("--json", action="store_true", help="for programs")


def up_verb(options: Any) -> int:
    check_http(options)
    configure(options.log_level, options.log_format)
    system = read(options.system)
    deadline = time.monotonic() + system.stop_s + LEFT_S
    # While it waits for an earlier run to end, SIGTERM ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    while True:
        if options.http is not None:
            refuse_second_page(system.state)
        answer = send_request(system.state, "apply")
        if answer is not None:
            return applied(answer)
        lock = acquire_lock(system.state)
        if lock is not None:
            return run_shown(system, lock, options)
        # The processes of a supervisor that was killed end by themselves; or another `up` has just begun.
        if time.monotonic() > deadline:
            raise ServiceError(f"{system.state}: processes of an earlier run do not end")
        time.sleep(0.05)


def refuse_second_page(state: str) -> None:
    """The page of a system is that of the supervisor which runs it."""
    answer = send_request(state, "page")
    if answer is not None:
        page = answer.get("page")
        where = "without a page" if page is None else f"with the page {page}"
        raise UsageError(f"--http: the system runs already, {where}; stop it first: service down")


def bound(options: Any) -> _millstream.Observer | None:
    """Binds the address of the page, if there is one."""
    if options.http is None:
        return None
    try:
        return _millstream.Observer(options.http, options.http_token, options.http_open)
    except FlowUsageError as error:
        raise UsageError(str(error)) from None


def run_shown(system: System, lock: int, options: Any) -> int:
    """Runs the system, and shows it on the page if there is one."""
    observer = bound(options)
    supervisor = SystemSupervisor(system, lock, options.log_level["millstream"], options.log_format)
    if observer is None:
        return supervisor.run()
    try:
        observer.show_system(system.state)
        supervisor.page = observer.address
        return supervisor.run()
    finally:
        observer.stop()


def applied(answer: dict[str, Any]) -> int:
    if "error" in answer:
        raise ServiceError(answer["error"])
    for what in ("stopped", "restarted", "started", "unchanged"):
        for name in answer.get(what, ()):
            print(f"{name}: {what}")
    return 0


def down_verb(options: Any) -> int:
    system = read(options.system)
    if send_request(system.state, "down") is None and not is_held(system.state):
        print("nothing is running")
        return 0
    while is_held(system.state):
        time.sleep(0.02)
    processes = service_status(system, "status").get("processes", {}).items()
    broken = [f"{name}: {known['broken_off']}" for name, known in processes if known.get("broken_off")]
    return report_error("; ".join(broken), 1, "service down") if broken else 0


def is_held(state: str) -> bool:
    """Whether a supervisor or a process of one lives. Creates nothing."""
    try:
        lock = os.open(os.path.join(state, "lock"), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


# Status.


def status_verb(options: Any) -> int:
    system = read(options.system)
    found = status(system)
    if options.json:
        print(json.dumps(found))
        return 0
    rows = [("service", "state", "pid", "restarts", "busy", "calls/s", "behind", "last error")]
    gateway = found["gateway"]
    parts = found["services"] + ([] if gateway is None else [{"name": NAME, **gateway}])
    for part in parts:
        behind = ", ".join(map(shown_lag, part["inputs"])) if "inputs" in part else "-"
        rate = f"{part['calls_per_s']:g}" if "calls_per_s" in part else "-"
        busy = part.get("busy")
        share = "-" if busy is None else f"{busy:.0%}"
        pid, restarts = str(part["pid"] or "-"), str(part["restarts"])
        rows.append((part["name"], part["state"], pid, restarts, share, rate, behind, part["error"] or "-"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[-1]]).rstrip())
    return 0


def shown_lag(lag: dict[str, Any]) -> str:
    if lag["records"] is None:
        return f"{lag['journal']} ?"
    seconds = f" ({lag['seconds']:.1f} s)" if lag["records"] else ""
    return f"{lag['journal']} {lag['records']}{seconds}"


def status(system: System) -> dict[str, Any]:
    """State, lag and rates of each service, whether they run or not."""
    known = service_status(system, "status")
    lives = is_held(system.state) and is_alive(known.get("pid"))
    gateway = system.gateway and {"listen": system.gateway.listen, **process_row(NAME, known, lives)}
    return {
        "system": system.path,
        "running": lives,
        "pid": known.get("pid") if lives else None,
        "services": [service_row(system, service, known, lives) for service in system.services],
        "gateway": gateway,
    }


def is_alive(pid: object) -> bool:
    if not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_row(name: str, known: dict[str, Any], lives: bool) -> dict[str, Any]:
    process = known.get("processes", {}).get(name, {})
    state = process.get("state", "stopped")
    if not lives:
        state = "failed" if state == "failed" else "stopped"
    return {
        "state": state,
        "pid": process.get("pid") if lives else None,
        "restarts": process.get("restarts", 0),
        "error": process.get("error"),
    }


def service_row(system: System, service: Service, known: dict[str, Any], lives: bool) -> dict[str, Any]:
    own = service_status(system, service.name)
    process = process_row(service.process, known, lives)
    pid = process["pid"]
    here = pid is not None and own.get("pid") == pid
    if process["state"] == "running":
        process["state"] = own["state"] if here else "starting"
    positions = own.get("positions", {})
    return {
        "name": service.name,
        "process": service.process,
        **process,
        "calls": own.get("calls", 0),
        "ticks": own.get("ticks", 0),
        "skipped": own.get("skipped", 0),
        "dead_letters": own.get("dead_letters", 0),
        "calls_per_s": own.get("calls_per_s", 0.0) if here else 0.0,
        "busy": own.get("busy") if here else None,
        "inputs": [lag(system, path, positions.get(path)) for path in service.inputs],
    }


def lag(system: System, path: str, position: int | None) -> dict[str, Any]:
    """How many records of an input are unprocessed, and the age of the first of them."""
    place = os.path.join(system.folder, path)
    end = next_of(place)
    records = None if end is None or position is None else max(end - position, 0)
    seconds = 0.0 if records == 0 else None
    if records and position is not None:
        try:
            with Journal(place, "r") as journal:
                first = journal[max(position, journal.first)]
                seconds = max(time.time_ns() - first.time_ns, 0) / 1e9
        except JournalError as error:
            print(f"{path}: {error}", file=sys.stderr)
    return {"journal": path, "position": position, "next": end, "records": records, "seconds": seconds}
