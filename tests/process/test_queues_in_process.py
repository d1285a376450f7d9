"""Queues in process beside other processes: a folder belongs to one of them, and kills cost nothing.

A process whose threads put and take is killed with SIGKILL at random moments; then the books are compared as
for the server, see `test_queue_kills.py`.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import millstream as ms
import pytest
from queue_server import Serve
from queue_traffic import check
from test_queue_kills import KILLS, SEED, Books

WORKER = Path(__file__).with_name("queues_worker.py")
QUEUES = ("work", "work+audit", "alone")


def test_a_folder_belongs_to_a_server_or_to_a_process(
    serve: Serve, millstream_bin: Path, tmp_path: Path
) -> None:
    server = serve(name="shared")
    folder = tmp_path / "shared"
    with pytest.raises(ms.QueuesBusyError, match="another process has these queues open") as busy:
        ms.Queues(folder)
    assert isinstance(busy.value, BlockingIOError)
    with server.connect() as line:
        assert line.set("jobs", b"from the server") == b"STORED"
    assert server.stop() == 0
    with ms.Queues(folder) as queues:
        assert queues["jobs"].get() == b"from the server"
        queues["jobs"].put("from the process")
        command = [str(millstream_bin), "queue", "serve", "--dir", str(folder), "--listen", "127.0.0.1:0"]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1
        assert "another process serves these queues" in refused.stderr
    server.start()
    with server.connect() as line:
        assert line.get("jobs") == b"from the process"


@pytest.mark.parametrize("sync", ["always", "never", "0.01"])
def test_no_kill_loses_or_reorders_an_item(sync: str, tmp_path: Path) -> None:
    rng = random.Random(f"{SEED} {sync} in process")
    print(f"MILLSTREAM_SEED={SEED} MILLSTREAM_KILLS={KILLS}")
    folder = tmp_path / "queues"
    logs = tmp_path / "logs"
    logs.mkdir()
    with ms.Queues(folder) as queues:
        assert queues["work+audit"].get() is None  # the fan-out queue exists from here on
    for life in range(KILLS):
        command = [sys.executable, WORKER, folder, sync, logs, life]
        worker = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert worker.stdout is not None and worker.stdout.readline() == b"running\n"
        time.sleep(rng.uniform(0.02, 0.2))
        died = worker.poll()
        worker.kill()
        _, said = worker.communicate()
        assert died is None, said.decode()
    books = {}
    with ms.Queues(folder) as queues:
        for queue in QUEUES:
            put = (logs / f"produce-{queue.split('+')[0]}").read_text().splitlines()
            taken = logs / f"consume-{queue}"
            book = Books(put, taken.read_text().splitlines() if taken.exists() else [])
            book.delivered += [check(item) for item in queues[queue]]
            book.judge()
            books[queue] = book
    figures = {
        "promise": 8,
        "in": "process",
        "runs": KILLS,
        "sync": sync,
        "first_seed": SEED,
        "acknowledged": sum(len(book.acknowledged) for book in books.values()),
        "lost": sum(len(book.lost) for book in books.values()),
        "reordered": sum(len(book.reordered) for book in books.values()),
        "repeats": sum(book.repeats for book in books.values()),
    }
    print(json.dumps(figures))
    for queue, book in books.items():
        assert book.acknowledged, queue
        assert not book.lost and not book.reordered, (queue, book.lost[:9], book.reordered[:9])
