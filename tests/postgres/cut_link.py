"""A TCP proxy on a port of its own, whose connections may be cut, stalled or refused."""

from __future__ import annotations

import socket
import threading


class Link:
    """Forwards connections to a port of 127.0.0.1.

    Args:
        target: the port.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])
        self.flows = threading.Event()
        self.flows.set()
        self.refuses = False
        self.passed = 0
        self.cut_after: int | None = None
        self.sockets: set[socket.socket] = set()
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.listener.close()
        self.flows.set()
        self.cut()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.sockets |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=(source, sink), daemon=True).start()

    def forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(4096):
                self.flows.wait()
                self.passed += len(data)
                if self.cut_after is not None and self.passed > self.cut_after:
                    self.cut_after = None
                    self.cut()
                    return
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            close(end)

    def cut(self) -> None:
        """Closes all connections; new ones work."""
        with self.lock:
            ends, self.sockets = self.sockets, set()
        for end in ends:
            close(end)

    def stall(self) -> None:
        """Nothing passes any more, and the connections stay open."""
        self.flows.clear()

    def resume(self) -> None:
        self.flows.set()


def close(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
