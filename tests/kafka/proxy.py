"""A TCP proxy for the listener `proxied` of a broker: connections through it can be cut and stalled."""

import socket
import threading
from typing import Any

from broker import Broker


class Proxy:
    """Passes bytes both ways."""

    def __init__(self, broker: Broker) -> None:
        outer, self.inner = broker.ports_of_proxy
        self.flowing = threading.Event()
        self.flowing.set()
        self.accepts = True
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", outer))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            if not self.accepts:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.inner), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self.lock:
                self.pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                self.flowing.wait()
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def cut(self) -> None:
        """Breaks all connections; new ones are refused until :meth:`heal`."""
        self.accepts = False
        with self.lock:
            for pair in self.pairs:
                for each in pair:
                    try:
                        each.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
            self.pairs.clear()

    def stall(self) -> None:
        """Holds back all bytes; connections stay open."""
        self.flowing.clear()

    def heal(self) -> None:
        self.accepts = True
        self.flowing.set()

    def close(self) -> None:
        # A thread waits in it: closing alone would keep the port.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.heal()
        self.cut()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
