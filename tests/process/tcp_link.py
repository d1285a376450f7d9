"""A TCP proxy on a port of its own, which may cut, stall, refuse, or answer with rubbish."""

from __future__ import annotations

import socket
import threading

RUBBISH = b"\xff\x00rubbish\r\n\r\n" * 8
"""Bytes that are no message of any protocol that is tested."""


class Link:
    """Forwards connections to a port of 127.0.0.1.

    Args:
        target: that port.
        port: the port of the proxy; 0 lets the system choose one.
    """

    def __init__(self, target: int, port: int = 0) -> None:
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self.listener.getsockname()[1])
        # To the target, and to the client.
        self.flows = (threading.Event(), threading.Event())
        self.resume()
        self.refuses = False
        self.is_rubbish = False
        self.passed = 0
        self.cut_after: int | None = None
        self.sockets: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.listen()

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        # A thread waits in it: closing alone would keep the port.
        close(self.listener)
        self.resume()
        self.cut()

    def listen(self) -> None:
        threading.Thread(target=self.accept, args=(self.listener,), daemon=True).start()

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
            elif self.is_rubbish:
                threading.Thread(target=answer_with_rubbish, args=(client,), daemon=True).start()
            else:
                self.connect(client)

    def connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self.target), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        with self.lock:
            self.sockets |= {client, server}
        for source, sink, flows in ((client, server, self.flows[0]), (server, client, self.flows[1])):
            threading.Thread(target=self.forward, args=(source, sink, flows), daemon=True).start()

    def forward(self, source: socket.socket, sink: socket.socket, flows: threading.Event) -> None:
        try:
            while data := source.recv(4096):
                flows.wait()
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
            ends = self.sockets
            self.sockets = set()
        for end in ends:
            close(end)

    def go_away(self) -> None:
        """Nothing listens any more, and connections are closed. The port stays taken."""
        close(self.listener)
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", self.port))
        self.cut()

    def come_back(self) -> None:
        self.listener.listen()
        self.listen()

    def send_rubbish(self) -> None:
        """Connections are closed; new ones receive bytes that are not of the protocol, and an end."""
        self.is_rubbish = True
        self.cut()

    def stall(self, to_target: bool = True, to_client: bool = True) -> None:
        """Nothing passes any more, in both directions or in one, and the connections stay open."""
        for flows, is_stalled in zip(self.flows, (to_target, to_client), strict=True):
            if is_stalled:
                flows.clear()

    def resume(self) -> None:
        for flows in self.flows:
            flows.set()


def answer_with_rubbish(client: socket.socket) -> None:
    try:
        client.settimeout(5)
        client.sendall(RUBBISH)
        client.shutdown(socket.SHUT_WR)
        while client.recv(4096):
            pass
    except OSError:
        pass
    client.close()


def close(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
