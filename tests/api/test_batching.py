"""Lists of values, and calls to external systems."""

import asyncio
import threading
from typing import Any

import millstream as ms
import pytest
from millstream import testing


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("most", [1, 4, 1000])
def test_lists_of_at_most_so_many(most: int, batch: int) -> None:
    flow = ms.Flow("lists")
    out = testing.collect()
    keyed = testing.collect()
    numbers = flow.source("in", testing.items(range(30), batch))
    numbers.collect(max=most).sink("out", out)
    numbers.key_by(lambda n: n % 3).collect(max=most, name="keyed").sink("keyed out", keyed)
    ms.run(flow)
    assert out == [list(range(30))[at : at + most] for at in range(0, 30, most)]
    for key in range(3):
        own = list(range(key, 30, 3))
        assert [n for k, n in keyed if k == key] == [own[at : at + most] for at in range(0, 10, most)]


def test_a_list_waits_no_longer_than_its_timeout() -> None:
    clock = testing.clock()
    script = [1, testing.advance(clock, 4), 2, testing.advance(clock, 4), 3, testing.advance(clock, 60), 4, 5]
    for workers in (1, 2):
        flow = ms.Flow("waits")
        out = testing.collect()
        flow.source("in", testing.items(script)).collect(max=10, wait=5).sink("out", out)
        ms.run(flow, clock=clock, workers=workers)
        assert out == [[1, 2], [3], [4, 5]]


async def twice(n: int) -> int:
    await asyncio.sleep((n * 7 % 5) / 500)
    return 2 * n


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("concurrency", [1, 4, 100])
@pytest.mark.parametrize("ordered", [True, False])
def test_async_calls_give_what_plain_calls_give(ordered: bool, concurrency: int, workers: int) -> None:
    flow = ms.Flow("async")
    out = testing.collect()
    numbers = flow.source("in", testing.items(range(50)))
    numbers.map_async(twice, concurrency=concurrency, ordered=ordered).sink("out", out)
    ms.run(flow, workers=workers)
    assert (out if ordered else sorted(out)) == [2 * n for n in range(50)]


def test_keys_stay_with_their_results() -> None:
    flow = ms.Flow("keys")
    out = testing.collect()
    numbers = flow.source("in", testing.items(range(50))).key_by(str)
    numbers.map_async(twice, ordered=False).sink("out", out)
    ms.run(flow)
    assert sorted(out) == sorted((str(n), 2 * n) for n in range(50))


def test_no_more_calls_than_allowed_run_at_once() -> None:
    running = most = 0

    async def watched(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return n

    for ordered in (True, False):
        flow = ms.Flow("at once")
        out = testing.collect()
        numbers = flow.source("in", testing.items(range(60)))
        numbers.map_async(watched, concurrency=5, ordered=ordered).sink("out", out)
        ms.run(flow)
        assert len(out) == 60 and most <= 5


def test_results_come_while_the_input_pauses() -> None:
    flow = ms.Flow("pause")
    seen = []
    came = threading.Event()
    numbers = flow.source("in", testing.items([1, testing.pause(0.5), 2]))

    def look(n: int) -> None:
        if n == 4:
            seen.append(came.is_set())
        came.set()

    numbers.map_async(twice).inspect(look).sink("out", testing.collect())
    ms.run(flow)
    assert seen == [True]


def test_calls_are_made_again_and_given_up_in_the_end() -> None:
    tries: dict[int, int] = {}

    async def shaky(n: int) -> int:
        tries[n] = tries.get(n, 0) + 1
        if n == 3:
            await asyncio.sleep(60)
        if tries[n] <= n % 3:
            raise ConnectionError(f"try {tries[n]}")
        return n

    def make(on_error: Any) -> tuple[ms.Flow, Any]:
        flow = ms.Flow("shaky")
        out = testing.collect()
        numbers = flow.source("in", testing.items(range(6))).key_by(str)
        options: Any = {"timeout": 0.05, "retries": 1, "retry_pause": 0.001, "name": "call"}
        numbers.map_async(shaky, **options, on_error=on_error).values().sink("out", out)
        return flow, out

    bad = testing.collect()
    flow, out = make(ms.dead_letter(bad))
    report = ms.run(flow)
    # 2 and 5 fail twice, 3 takes too long.
    assert out == [0, 1, 4] and report.step("call")["skipped"] == 3
    kinds = [(letter.key, letter.item, type(letter.error)) for letter in bad]
    assert kinds[0] == ("2", 2, ConnectionError) and kinds[2] == ("5", 5, ConnectionError)
    assert kinds[1][:2] == ("3", 3) and issubclass(kinds[1][2], (asyncio.TimeoutError, TimeoutError))
    tries.clear()
    with pytest.raises(ms.StepError, match='step "call"') as raised:
        ms.run(make("fail")[0])
    assert raised.value.key == "'2'" and isinstance(raised.value.__cause__, ConnectionError)


def test_no_thread_remains() -> None:
    async def fails(n: int) -> int:
        raise ValueError(n)

    for f in (twice, fails):
        flow = ms.Flow("threads")
        flow.source("in", testing.items(range(9))).map_async(f).sink("out", testing.collect())
        try:
            ms.run(flow, workers=2)
        except ms.StepError:
            assert f is fails
    assert not [thread for thread in threading.enumerate() if "map_async" in thread.name]


def test_mistakes_are_errors_with_a_remedy() -> None:
    numbers = ms.Flow("mistakes").source("in", testing.items([1]))
    cases: list[Any] = [
        (lambda: numbers.collect(max=0), "max is a number of values, 1 or more, not 0"),
        (lambda: numbers.collect(max=3, wait=-1), "wait is a number of seconds above 0"),
        (lambda: numbers.map_async(3), "map_async takes an asyncio function"),
        (lambda: numbers.map_async(twice, concurrency=0), "concurrency is a number of calls"),
        (lambda: numbers.map_async(twice, retries=-1), "retries is a number of calls"),
        (lambda: numbers.key_by(str).map_async(twice, timeout=0), "timeout is a number of seconds above 0"),
    ]
    for make, says in cases:
        with pytest.raises(ms.FlowUsageError, match=says):
            make()
