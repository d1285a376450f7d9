"""The addresses of the processes of a flow: read from an option of the command line.

The list is the same in all processes; its order numbers them.
"""

from __future__ import annotations

import os
import re

from .._errors.command import UsageError

PROCESSES_MAX = 512


def own_number(text: str, host: str) -> int:
    """The number of this process: ``--process``.

    Args:
        text: a number, or ``auto`` for the number at the end of the host name.
        host: the name of this host, up to its first dot.

    Raises:
        UsageError: it is no number, or the host name ends with none.

    Example:
        >>> own_number("3", "web"), own_number("auto", "orders-12")
        (3, 12)
    """
    if text == "auto":
        found = re.search(r"-(\d+)$", host)
        if found is None:
            raise UsageError(
                f"--process auto: the host name {host!r} has no number at its end, like orders-0"
            )
        return int(found[1])
    if not text.isdecimal():
        raise UsageError(f"--process is a number from 0, or auto, not {text!r}")
    return int(text)


def read_hosts(text: str, processes: int | None, host: str) -> list[str]:
    """The addresses: ``--hosts``.

    Args:
        text: ``HOST:PORT,HOST:PORT,...``, or paths of Unix sockets; the path of a file with an address a
            line, where ``#`` begins a comment; ``dns:NAME:PORT`` for the pods of a StatefulSet, whose
            governing service is NAME.
        processes: the number of processes, where it was given.
        host: the name of this host, up to its first dot.

    Raises:
        UsageError: the text has none of these forms, or another number of addresses.

    Example:
        >>> read_hosts("a:7700,b:7700", None, "a")
        ['a:7700', 'b:7700']
        >>> read_hosts("dns:orders:7700", 2, "orders-0")
        ['orders-0.orders:7700', 'orders-1.orders:7700']
    """
    if text.startswith("dns:"):
        found = hosts_of_pods(text[len("dns:") :], processes, host)
    elif os.path.isfile(text):
        with open(text, encoding="utf-8") as file:
            lines = [line.partition("#")[0].strip() for line in file]
        found = [line for line in lines if line]
    elif not re.search("[:,/]", text):
        raise UsageError(f"--hosts {text}: no such file, and no list like a:7700,b:7700")
    else:
        found = [part.strip() for part in text.split(",")]
    for address in found:
        check_address(address)
    if not 1 <= len(found) <= PROCESSES_MAX:
        raise UsageError(f"--hosts names from 1 to {PROCESSES_MAX} processes, not {len(found)}")
    if len(set(found)) < len(found):
        twice = next(address for address in found if found.count(address) > 1)
        raise UsageError(f"--hosts names {twice} twice")
    if processes not in (None, len(found)):
        raise UsageError(f"--hosts names {len(found)} processes, --processes {processes}")
    return found


def hosts_of_pods(service: str, processes: int | None, host: str) -> list[str]:
    """The addresses of the pods of a StatefulSet, of which this host is one."""
    name, colon, port = service.rpartition(":")
    if not colon or not name:
        raise UsageError(f"--hosts dns:{service}: it is dns:NAME:PORT")
    if processes is None:
        raise UsageError("--hosts dns:NAME:PORT needs --processes N")
    found = re.fullmatch(r"(.+)-\d+", host)
    if found is None:
        raise UsageError(
            f"--hosts dns:{service}: the host name {host!r} has no number at its end, like orders-0"
        )
    return [f"{found[1]}-{number}.{name}:{port}" for number in range(processes)]


def check_address(address: str) -> None:
    """Checks the form ``HOST:PORT``, or the path of a Unix socket, which contains a slash."""
    if "/" in address:
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise UsageError(f"--hosts: {address!r} is no address like orders-0.example:7700")
