"""TLS with an authority of one's own, and the name in the certificate checked: ``sslmode=verify-full``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import millstream as ms
import pytest
from broker import Authority
from clients import until
from postgres_server import Server


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Authority]]:
    """A server that takes connections with TLS only, and the authority of its certificate."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    server = Server(ssl="on", ssl_cert_file="server.crt", ssl_key_file="server.key")
    for name, file in (("broker.crt", "server.crt"), ("broker.key", "server.key")):
        target = server.data / file
        shutil.copyfile(authority.folder / name, target)
        target.chmod(0o600)
        if server.rights:
            os.chown(target, server.rights["user"], server.rights["group"])
    rules = server.data / "pg_hba.conf"
    rules.write_text("hostssl all,replication all 127.0.0.1/32 scram-sha-256\n")
    try:
        server.start()
        yield server, authority
    finally:
        server.remove()


def copying(reading: str, writing: str, slot: str) -> ms.Flow:
    """A flow that copies rows from table to table."""
    flow = ms.Flow("copy")
    # An error that is repeated fails the flow with the number of attempts.
    retry = ms.Backoff(first=0.05, tries=5)
    changes = flow.source("changes", ms.postgres.changes(reading, slot, tables="items", retry=retry))
    # A snapshot begins with `truncate`, which has no row.
    rows = changes.flat_map(lambda change: [change.new] if change.new is not None else [])
    rows.sink("copies", ms.postgres.write(writing, "copies", retry=retry))
    return flow


def test_verify_full(tmp_path: Path, tls_server: tuple[Server, Authority]) -> None:
    server, authority = tls_server
    database = server.create_database()
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    database.execute("CREATE TABLE copies (id int)")
    database.execute("INSERT INTO items SELECT generate_series(1, 100)")
    verified = f"{database.dsn} sslmode=verify-full sslrootcert={authority.certificate}"
    with copying(verified, verified, database.name).start(state=tmp_path / "state", epoch=0.05):
        until(lambda: database.rows("SELECT count(*) FROM copies") == [(100,)])
        encrypted = database.rows(
            "SELECT bool_and(ssl), count(*) > 2 FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) "
            "WHERE application_name LIKE 'millstream %'"
        )
    assert encrypted == [(True, True)]


@pytest.mark.parametrize("side", ["source", "sink"])
@pytest.mark.parametrize("how", ["another authority", "another name", "no TLS"])
def test_a_server_that_is_not_the_expected_one(
    tmp_path: Path, tls_server: tuple[Server, Authority], side: str, how: str
) -> None:
    """It is an error, and is not repeated: another attempt would find the same."""
    server, authority = tls_server
    database = server.create_database()
    database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    database.execute("CREATE TABLE copies (id int)")
    verified = f"{database.dsn} sslmode=verify-full sslrootcert={authority.certificate}"
    wrong = {
        "another authority": verified.replace(
            str(authority.certificate), str(Authority(tmp_path / "other").certificate)
        ),
        "another name": verified.replace("host=127.0.0.1", "host=ip6-localhost hostaddr=127.0.0.1"),
        "no TLS": f"{database.dsn} sslmode=disable",
    }[how]
    words = {"another authority": "certificate verify failed", "another name": "does not match host name"}
    reading, writing = (wrong, verified) if side == "source" else (verified, wrong)
    with pytest.raises(ms.FlowError) as failure:
        ms.run(copying(reading, writing, database.name), state=tmp_path / "state", epoch=0.05)
    text = str(failure.value)
    assert words.get(how, "no pg_hba.conf entry") in text and "attempts" not in text, text
