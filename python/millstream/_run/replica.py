"""The state of a running flow for followers on other machines, as ``ms.run`` takes it."""

from __future__ import annotations

import os
import re

from .._errors.flow import FlowUsageError
from .._values.checked import checked


@checked
class Replica:
    """Where a flow serves its state directory while it runs, for ``millstream state follow`` elsewhere.

    The follower keeps a copy from which the flow is started when this machine is lost. An address that other
    machines reach needs a secret, or certificates of both sides.

    Args:
        address: ``HOST:PORT``. Each process of a cluster has an address of its own.
        secret_file: a file with the secret that followers prove, at least 16 bytes; it encrypts connections.
        tls_cert: the certificate of this process, a PEM file, for followers that verify it.
        tls_key: its private key, a PEM file.
        tls_ca: the authorities that sign for followers, a PEM file: others are refused.

    Raises:
        FlowUsageError: an argument is not an address, or TLS options are incomplete.

    Example:
        >>> import millstream as ms
        >>> ms.Replica("0.0.0.0:7750", secret_file="secret")
        Replica('0.0.0.0:7750')
    """

    def __init__(
        self,
        address: str,
        secret_file: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
    ) -> None:
        found = re.fullmatch(r"(.+):(\d{1,5})", address)
        if found is None or int(found[2]) > 65535:
            raise FlowUsageError(f"the address of a replica is HOST:PORT, not {address!r}")
        if (tls_cert is None) != (tls_key is None):
            raise FlowUsageError("tls_cert and tls_key come together")
        if tls_ca is not None and tls_cert is None:
            raise FlowUsageError("tls_ca needs tls_cert and tls_key")
        self.address = address
        self.secret_file = None if secret_file is None else os.fspath(secret_file)
        self.tls = None
        if tls_cert is not None and tls_key is not None:
            authorities = None if tls_ca is None else os.fspath(tls_ca)
            self.tls = (os.fspath(tls_cert), os.fspath(tls_key), authorities)

    def __repr__(self) -> str:
        return f"Replica({self.address!r})"
