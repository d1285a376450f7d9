"""The link to the listener `proxied` of a broker: connections through it can be cut and stalled."""

from broker import Broker
from tcp_link import Link


class Proxy(Link):
    """Passes bytes both ways."""

    def __init__(self, broker: Broker) -> None:
        outer, inner = broker.ports_of_proxy
        super().__init__(inner, outer)

    def cut(self) -> None:
        """Breaks all connections; new ones are refused until :meth:`heal`."""
        self.refuses = True
        super().cut()

    def heal(self) -> None:
        self.refuses = False
        self.resume()
