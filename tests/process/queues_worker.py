"""Threads that use queues in process, made to be killed: `queues_worker.py FOLDER SYNC LOGS LIFE`.

They note what they know for certain as `queue_traffic.py` does, whose items they use: a producer each item
that was put, a consumer each item that it was given, before it confirms it.
"""

import os
import sys
import threading
from itertools import count
from pathlib import Path

import millstream as ms
from queue_traffic import check, item


def note(log: Path) -> int:
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def produce(queue: ms.Queue, log: int, name: str) -> None:
    for first in count(1, 4):
        queue.put(item(name, first))
        os.write(log, f"{name}:{first}\n".encode())
        numbers = range(first + 1, first + 4)
        queue.put_many(item(name, number) for number in numbers)
        os.write(log, "".join(f"{name}:{number}\n" for number in numbers).encode())


def consume(queue: ms.Queue, log: int) -> None:
    for opened in queue.each(timeout=None):
        os.write(log, (check(opened.body) + "\n").encode())


def main(folder: str, sync: str, logs: str, life: str) -> None:
    queues = ms.Queues(folder, sync=float(sync) if sync[0].isdigit() else sync)  # type: ignore[arg-type]
    threads = []
    for queue in ("work", "alone"):
        log = note(Path(logs, f"produce-{queue}"))
        name = f"p{queue}.{life}"
        threads.append(threading.Thread(target=produce, args=(queues[queue], log, name), daemon=True))
    for queue in ("work", "work+audit", "alone"):
        log = note(Path(logs, f"consume-{queue}"))
        threads.append(threading.Thread(target=consume, args=(queues[queue], log), daemon=True))
    for thread in threads:
        thread.start()
    print("running", flush=True)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
