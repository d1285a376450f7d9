"""Clients that post over HTTP while the server is killed."""

from __future__ import annotations

import http.client
import threading
import time
from abc import ABC, abstractmethod

from flow_traffic import PATIENCE


class Poster(threading.Thread, ABC):
    """Posts numbers, each once, on connections that it opens again when they are lost."""

    def __init__(self, port: int, name: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.prefix = name
        self.posted = 0
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.start()

    @abstractmethod
    def post(self, connection: http.client.HTTPConnection, number: int) -> None:
        """Posts one number, and notes the answer."""

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.connect()
        except BaseException as failure:
            self.failure = failure

    def connect(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            while not self.stopping.is_set():
                number = self.posted
                self.posted += 1
                self.post(connection, number)
        except (OSError, http.client.HTTPException):
            time.sleep(0.01)
        finally:
            connection.close()

    def stop(self) -> None:
        """Ends it. What has failed on its thread is raised here."""
        self.stopping.set()
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure
