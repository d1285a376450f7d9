"""The commands of the guide to two machines, run verbatim."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import GUIDE, blocks

BLOCKS = blocks(GUIDE / "two-machines.md", "sh")


def shell(block: str, millstream: Path, port: int, folder: Path) -> str:
    path = f"{millstream.parent}{os.pathsep}{os.environ['PATH']}"
    script = "set -e; trap 'kill $(jobs -p) 2> /dev/null || :' EXIT\n" + block.replace("7600", str(port))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("block", BLOCKS)
def test_the_commands_of_the_guide_run(
    block: str, millstream_bin: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    shell(block, millstream_bin, free_port(), tmp_path)
    records = [
        subprocess.check_output([millstream_bin, "journal", "cat", tmp_path / name])
        for name in ("orders", "orders-copy")
    ]
    assert records[0] == records[1]
    assert len(records[0].splitlines()) == block.count("buy") + block.count("sell")


def test_a_certificate_of_an_authority_is_refused_in_words(
    millstream_bin: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    plain = """
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=leader \\
            -addext "subjectAltName = IP:127.0.0.1" -keyout key.pem -out cert.pem
        echo 'buy 100' | millstream journal append orders
        tls="--tls-cert cert.pem --tls-key key.pem"
        millstream journal serve --listen 127.0.0.1:7600 $tls orders 2> served &
        until grep -q listening served; do sleep 0.1; done
        ! millstream journal follow 127.0.0.1:7600 orders-copy --tls-ca cert.pem 2> refused
        cat refused
    """
    told = shell(plain, millstream_bin, free_port(), tmp_path)
    assert "it is the certificate of an authority (CA:TRUE), as plain `openssl req -x509` makes it" in told
    assert "CaUsedAsEndEntity" in told
    assert not (tmp_path / "orders-copy").exists()


def test_a_number_is_printed_when_the_copy_has_it(
    millstream_bin: Path, free_port: Callable[[], int], tmp_path: Path
) -> None:
    printed = shell(BLOCKS[0], millstream_bin, free_port(), tmp_path).splitlines()
    assert printed[:3] == ["0", "1", "2"]
    assert [line.split(" ", 1)[1] for line in printed[3:6]] == ["0 buy 100", "1 sell 3", "2 buy 7"]
