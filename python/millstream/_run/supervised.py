"""A process of a flow on the side of the process: its connection to the supervisor.

The connection is a socket that the supervisor passes at the start. Its messages are lines of JSON: ``loaded``
when the file was loaded, ``running`` when the flow runs, then ``reports``, or ``error``. When it closes, the
process ends at once: the supervisor was killed, and another one may start the flow again.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading

from .._errors.command import LOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Link:
    """The connection to the supervisor.

    Args:
        descriptor: of the socket.
        folder: the directory of the supervisor's sockets, which nobody else removes after it was killed.
    """

    def __init__(self, descriptor: int, folder: str) -> None:
        self.folder = folder
        self.socket = socket.socket(fileno=descriptor)
        # Processes that the user's code starts do not hold it open.
        self.socket.set_inheritable(False)
        threading.Thread(target=self.watch, name="supervisor", daemon=True).start()

    def watch(self) -> None:
        """Ends the process when the supervisor has ended."""
        try:
            while self.socket.recv(64):
                pass
        except OSError:
            pass
        shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(LOST)

    def send(self, **message: Any) -> None:
        """Sends a message."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # the supervisor has ended, and `watch` ends this process
