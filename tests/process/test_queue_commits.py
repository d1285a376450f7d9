"""Sets that wait for their sync, while other clients work on the same queues.

The syncs are then done on a thread of their own: queues are deleted under it and come to be again, and others
read.
"""

import random
from concurrent.futures import ThreadPoolExecutor

from queue_server import Serve

ROUNDS = 60
QUEUES = 3
SEED = random.SystemRandom().randrange(1 << 32)


def test_queues_are_deleted_and_made_again_under_a_sync(serve: Serve) -> None:
    print(f"seed {SEED}")
    server = serve("--sync=always")

    def work(client: int) -> set[bytes]:
        chance = random.Random(SEED + client)
        answers = set()
        with server.connect() as line:
            for _ in range(ROUNDS):
                queue = f"q{chance.randrange(QUEUES)}"
                if client == 0:
                    answers.add(line.ask(b"delete " + queue.encode()))
                elif client == 1:
                    answers.add(line.get(queue) or b"nothing")
                else:
                    answers.add(line.set(queue, b"item"))
        return answers

    with ThreadPoolExecutor(12) as pool:
        deleting, reading, *setting = pool.map(work, range(12))
    assert deleting <= {b"DELETED", b"NOT_FOUND"}
    assert reading <= {b"item", b"nothing"}
    assert setting == [{b"STORED"}] * len(setting)
    assert server.stop() == 0
    assert "not acknowledged" not in server.log() and "panicked" not in server.log()


def test_all_that_was_acknowledged_together_is_there_after_a_kill(serve: Serve) -> None:
    server = serve("--sync=always")

    def work(client: int) -> None:
        with server.connect() as line:
            for number in range(ROUNDS):
                assert line.set("orders", b"%d %d" % (client, number)) == b"STORED"

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(work, range(10)))
    server.kill()
    server.start()
    with server.connect() as line:
        items = [line.get("orders") for _ in range(10 * ROUNDS)]
        assert line.get("orders") is None
    for client in range(10):
        of_client = [item for item in items if item and item.startswith(b"%d " % client)]
        assert of_client == [b"%d %d" % (client, number) for number in range(ROUNDS)]
