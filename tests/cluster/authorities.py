"""An authority for tests, and the certificates of the processes of a flow."""

from __future__ import annotations

import subprocess
from pathlib import Path

from shapes import TIMEOUT

AUTHORITY = """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -subj "/CN=our authority" -keyout ca.key -out ca.pem
for n in 0 1; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
        -subj "/CN=process $n" -keyout key$n.pem -out request.pem
    printf 'basicConstraints = critical, CA:FALSE\nsubjectAltName = IP:127.0.0.1\n' > names
    openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 825 \
        -extfile names -out cert$n.pem
done
chmod 600 *.key key*.pem
"""


def certificates(folder: Path) -> None:
    folder.mkdir()
    done = subprocess.run(
        ["bash", "-ec", AUTHORITY], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr


def of_process(folder: Path, process: int) -> list[object]:
    """The options with the certificate of a process."""
    return [
        *("--tls-cert", folder / f"cert{process}.pem"),
        *("--tls-key", folder / f"key{process}.pem"),
        *("--tls-ca", folder / "ca.pem"),
    ]
