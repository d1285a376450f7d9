"""The processes that run one flow together, as ``ms.run`` takes them."""

from __future__ import annotations

import os

from .._errors.flow import FlowUsageError
from .._values.checked import checked
from .._values.durations import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._values.durations import Seconds


@checked
class Cluster:
    """The place of this process among those that run one flow: each calls :func:`millstream.run` with one.

    All processes have the same list of addresses and run the same flow with the same number of workers, and
    the same version of the program: the sources of the module that describes the flow and of the other
    modules that are loaded, without installed packages, or the ``version`` of the :class:`Flow`. One with
    another version waits until all have the same.

    A run begins when all have met, and ends everywhere when one of them dies: ``run`` then raises
    :class:`MemberLostError`, and a program that is started again with a state directory resumes from the last
    commit. Between machines the connections need a secret or certificates, because batches of Python objects
    are pickles: a peer that could send one could run any code.

    Args:
        process: the number of this process, from 0: its position in ``hosts``.
        hosts: the addresses of all processes, each ``HOST:PORT`` or the path of a Unix socket.
        secret_file: a file with the secret that all processes share, at least 16 bytes. Connections are
            encrypted, and both sides prove that they know it.
        tls_cert: the certificate of this process, a PEM file, for connections that certificates authenticate.
        tls_key: its private key, a PEM file.
        tls_ca: the certificates of the authorities that sign for the processes, a PEM file.
        tls_name: the name in the certificates of the others; the host of each address by default.
        listen: the address at which this process listens, ``HOST:PORT``. By default it listens at all
            addresses of the machine, with its port in ``hosts``; without a secret and certificates, and at a
            loopback address or a Unix socket, at that one only.
        dead_after: after what time without a sign of life another process is taken for dead, from one second.
        meet_within: for how long this process waits at its start until all have met, above 0. Then
            ``run`` raises :class:`MemberLostError`, or returns if the flow had ended with nothing left to do.

    Raises:
        FlowUsageError: an argument is out of range, or TLS options are incomplete.

    Example:
        >>> import millstream as ms
        >>> ms.Cluster(process=0, hosts=["a.example:7700", "b.example:7700"], secret_file="secret")
        Cluster(process=0, hosts=['a.example:7700', 'b.example:7700'])
    """

    def __init__(
        self,
        process: int,
        hosts: Sequence[str],
        secret_file: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_name: str | None = None,
        listen: str | None = None,
        dead_after: Seconds = 10.0,
        meet_within: Seconds = 300.0,
    ) -> None:
        if not 0 <= process < len(hosts):
            numbers = f"a number from 0 to {len(hosts) - 1}"
            raise FlowUsageError(f"process is {numbers} for {len(hosts)} hosts, not {process!r}")
        given = [name is not None for name in (tls_cert, tls_key, tls_ca)]
        if any(given) and not all(given):
            raise FlowUsageError("tls_cert, tls_key and tls_ca come together")
        if secret_file is not None and any(given):
            raise FlowUsageError(
                "the processes recognise each other by a secret or by certificates, not by both"
            )
        if tls_name is not None and not any(given):
            raise FlowUsageError("tls_name needs tls_cert, tls_key and tls_ca")
        self.process = process
        self.hosts = list(hosts)
        self.secret_file = None if secret_file is None else os.fspath(secret_file)
        self.tls = None
        if tls_cert is not None and tls_key is not None and tls_ca is not None:
            self.tls = (os.fspath(tls_cert), os.fspath(tls_key), os.fspath(tls_ca), tls_name)
        self.listen = listen
        self.dead_after = seconds("dead_after", dead_after, 1_000_000_000)
        self.meet_within = seconds("meet_within", meet_within)

    def __repr__(self) -> str:
        return f"Cluster(process={self.process}, hosts={self.hosts})"
