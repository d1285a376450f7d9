"""A real server on a disk whose syncs fail: what such a sync was to cover is never acknowledged.

The calls of the system fail by a library that is loaded before the server's own code, see `failing_sync.c`.
"""

from pathlib import Path

import pytest
from queue_server import Line, QueueServer, Serve


def drain(line: Line, queue: str) -> list[bytes]:
    return list(iter(lambda: line.get(queue), None))


def restart(server: QueueServer, monkeypatch: pytest.MonkeyPatch) -> Line:
    """Kill the server and start it without the library."""
    server.kill()
    monkeypatch.delenv("LD_PRELOAD")
    server.start()
    return server.connect()


def test_no_set_is_acknowledged_after_a_failed_sync(
    failing: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("--sync=always")
    line = server.connect()
    acknowledged = [b"%d" % number for number in range(20)]
    for item in acknowledged:
        assert line.set("jobs", item) == b"STORED"
    failing.touch()
    said = len(server.log())
    # The pending answer is withheld, and the connection ends: nothing was acknowledged to the client.
    assert line.set("jobs", b"lost") == b""
    error = server.wait_for("ERROR.*", said)[0]
    assert 'not acknowledged: queue "jobs": ' in error and "Input/output error" in error
    line = server.connect()
    # The kernel may call the next sync a success, with the same bytes lost: so no later one counts.
    failing.unlink()
    for _ in range(3):
        answer = line.set("jobs", b"later")
        assert answer.startswith(b'SERVER_ERROR queue "jobs": ') and b"a sync has failed" in answer, answer
    with server.connect() as other:
        assert b"a sync has failed" in other.set("jobs", b"of another connection")
        assert other.set("others", b"in a journal of its own") == b"STORED"

    line = restart(server, monkeypatch)
    found = drain(line, "jobs")
    # The item whose sync failed may be there.
    assert found in (acknowledged, [*acknowledged, b"lost"]), found
    assert drain(line, "others") == [b"in a journal of its own"]
    assert line.set("jobs", b"again") == b"STORED"


def test_clients_that_share_a_failed_sync_are_all_refused(
    failing: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve("--sync=always")
    lines = [server.connect() for _ in range(10)]
    for number, line in enumerate(lines):
        assert line.set("jobs", b"%d" % number) == b"STORED"
    failing.touch()
    for number, line in enumerate(lines):
        line.send(b"set jobs 0 0 6\r\nlost-%d\r\n" % number)
    answers = [line.read() for line in lines]
    # Those whose items were appended before the sync failed lose their connection, the others get an error.
    assert answers[0] == b"", answers
    assert all(answer == b"" or b"a sync has failed" in answer for answer in answers), answers
    found = drain(restart(server, monkeypatch), "jobs")
    assert found[:10] == [b"%d" % number for number in range(10)]
