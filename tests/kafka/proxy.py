"""The link to the listener `proxied` of a broker: connections through it can be cut and stalled."""

import fcntl

from broker import Broker
from tcp_link import Link


class BrokerLink(Link):
    """Passes bytes both ways. A broker has one such listener: another test waits until it is closed."""

    def __init__(self, broker: Broker) -> None:
        self.turn = open(broker.folder / "proxy", "w")
        fcntl.flock(self.turn, fcntl.LOCK_EX)
        outer, inner = broker.ports_of_proxy
        super().__init__(inner, outer)

    def close(self) -> None:
        super().close()
        self.turn.close()


class Proxy(BrokerLink):
    """As long as it is cut, it refuses connections."""

    def cut(self) -> None:
        """Breaks all connections; new ones are refused until :meth:`heal`."""
        self.refuses = True
        super().cut()

    def heal(self) -> None:
        self.refuses = False
        self.resume()
