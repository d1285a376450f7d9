"""Machines of a test: network namespaces that a pair of virtual interfaces connects. Root is needed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"


class Machine:
    """A namespace.

    Args:
        name: its name.
        address: its address in the network of the test.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    def command(self, command: list[str]) -> list[str]:
        """The command, run on this machine."""
        return ["ip", "netns", "exec", self.name, *command]

    def nft(self, *words: str) -> None:
        run(*self.command(["nft", " ".join(words)]))

    def drop_incoming(self) -> None:
        """Silently drops all that arrives."""
        self.filter("drop")

    def reset_incoming(self) -> None:
        """Answers each packet of TCP with a reset."""
        self.filter("meta l4proto tcp reject with tcp reset")

    def lose_incoming(self, percent: int) -> None:
        """Drops so many of each hundred packets that arrive, at random."""
        self.filter(f"numgen random mod 100 < {percent} counter drop")

    def lost(self) -> int:
        """How many packets were dropped by :meth:`lose_incoming`."""
        listing = subprocess.run(
            self.command(["nft", "list table inet cut"]), capture_output=True, text=True, timeout=60
        )
        found = re.search(r"counter packets (\d+)", listing.stdout)
        assert found is not None, listing.stdout + listing.stderr
        return int(found[1])

    def filter(self, rule: str) -> None:
        self.nft("add table inet cut")
        self.nft("add chain inet cut in { type filter hook input priority 0 ; }")
        self.nft(f'add rule inet cut in iifname "wire" {rule}')

    def heal(self) -> None:
        """Removes the rules."""
        self.nft("delete table inet cut")


@contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Two machines that reach each other."""
    numbers = (os.getpid() % 64, os.getpid() // 64 % 256)
    machines = [
        Machine(f"ms{os.getpid()}-{n}", f"10.{64 + numbers[0]}.{numbers[1]}.{n + 1}") for n in range(2)
    ]
    try:
        for machine in machines:
            run("ip", "netns", "add", machine.name)
            run("ip", "-n", machine.name, "link", "set", "lo", "up")
        first, second = machines
        pair = ["type", "veth", "peer", "name", "wire", "netns", second.name]
        run("ip", "link", "add", "wire", "netns", first.name, *pair)
        for machine in machines:
            run("ip", "-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", "wire")
            run("ip", "-n", machine.name, "link", "set", "wire", "up")
        yield first, second
    finally:
        for machine in machines:
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True, timeout=60)
