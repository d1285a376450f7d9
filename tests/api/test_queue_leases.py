"""Open items in process: their time begins anew, and they come back later."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import millstream as ms
import pytest

CONFIG = """
[queue.leased]
open_timeout = "300ms"
[queue.retried]
retry = { first = "1h", tries = 2 }
error_queue = "bad"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "queues.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def opened(stack: ExitStack, queue: Any, timeout: float = 0) -> Any:
    """An item that stays open until the end of the test, or is ended by it."""
    return stack.enter_context(queue.open(timeout=timeout))


def test_a_renewed_item_stays_open_and_one_that_is_not_returns(
    tmp_path: Path, config: Path, stack: ExitStack
) -> None:
    leased = stack.enter_context(ms.Queues(tmp_path / "queues", config=config))["leased"]
    leased.put_many(["a", "b"])
    kept = opened(stack, leased)
    lost = opened(stack, leased)
    assert kept.touch(60) is True
    again = opened(stack, leased, 30)
    assert again.body == b"b"
    assert lost.touch(60) is False and lost.close() is False
    assert again.touch() is True and again.close() is True
    assert again.touch(60) is False
    assert kept.close() is True and len(leased) == 0


def test_a_block_whose_item_has_returned_says_so(tmp_path: Path, config: Path) -> None:
    with ms.Queues(tmp_path / "queues", config=config) as queues:
        leased = queues["leased"]
        leased.put_many(["a", "b"])
        says = "queue 'leased': item 0 is not open any more, .*its open_timeout was over"
        with pytest.raises(ms.QueueItemReturnedError, match=says), leased.open(timeout=0) as late:
            assert late is not None and leased.get() == b"b"
            with leased.open(timeout=30) as again:
                assert again is not None and again.body == b"a"
                again.touch(60)
        assert len(leased) == 0
        leased.put("c")
        with pytest.raises(TimeoutError, match="item [0-9]+ is not open"):
            for item in leased.each(timeout=0):
                with leased.open(timeout=30) as again:
                    assert again is not None and again.body == item.body
        # One that the block itself has confirmed or returned is no error.
        leased.put_many(["d", "e"])
        for item in leased.each(timeout=0):
            if not item.deliveries:
                item.close() if item.body == b"d" else item.abort()
        assert len(leased) == 0


def test_an_item_comes_back_when_its_delay_is_over(tmp_path: Path) -> None:
    with ms.Queues(tmp_path / "queues") as queues:
        jobs = queues["jobs"]
        jobs.put("a")
        with jobs.open(timeout=0) as item:
            assert item is not None
            item.abort(delay=0.2)
            assert not item.is_open and len(jobs) == 1
        with jobs.open(timeout=0) as item:
            assert item is None
        with jobs.open(timeout=30) as item:
            assert item is not None and (item.body, item.deliveries) == (b"a", 1)
            item.abort(delay=3600)
    with ms.Queues(tmp_path / "queues") as queues:
        assert queues["jobs"].get(timeout=0) is None and len(queues["jobs"]) == 1


def test_a_block_that_fails_is_retried_as_the_queue_says(tmp_path: Path, config: Path) -> None:
    with ms.Queues(tmp_path / "queues", config=config) as queues:
        retried = queues["retried"]
        retried.put("a")
        with pytest.raises(ValueError, match="no"), retried.open(timeout=0):
            raise ValueError("no")
        assert retried.get(timeout=0) is None and len(retried) == 1
        retried.flush()
        retried.put("b")
        for delay in (0, None):
            with retried.open(timeout=0) as item:
                assert item is not None
                item.abort(delay=delay)
        with queues["bad"].open(timeout=0) as dead:
            assert dead is not None and dead.origin is not None
            assert (dead.body, dead.origin.deliveries) == (b"b", 2)


def test_wrong_times_are_refused_and_the_item_stays_open(tmp_path: Path) -> None:
    with ms.Queues(tmp_path / "queues") as queues:
        queues["jobs"].put("a")
        with queues["jobs"].open(timeout=0) as item:
            assert item is not None
            for seconds in (0, -1, float("nan"), float("inf")):
                with pytest.raises(ValueError):
                    item.touch(seconds)
            for delay in (-1, float("nan"), float("inf")):
                with pytest.raises(ValueError):
                    item.abort(delay=delay)
            with pytest.raises(ValueError, match="delay"):
                item.abort(failed=False, delay=1)
            assert item.is_open and item.close()


def test_threads_may_renew_an_item_while_others_look_at_it(
    tmp_path: Path, config: Path, stack: ExitStack
) -> None:
    leased = stack.enter_context(ms.Queues(tmp_path / "queues", config=config))["leased"]
    leased.put("a")
    item = opened(stack, leased)
    renewed: list[bool] = []

    def renew() -> None:
        renewed.extend(item.touch(60) for _ in range(500))

    threads = [threading.Thread(target=renew) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert item.is_open
    for thread in threads:
        thread.join()
    assert renewed == [True] * 1500 and item.close()
