"""Entries of a Redis stream, read by a consumer group and acknowledged when their epoch is committed.

After a restart Redis delivers unacknowledged entries again; their ids tell which ones are committed.

Run: URL=redis://127.0.0.1:6379 STREAM=orders millstream run redis_streams.py --state state
"""

import os
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import millstream as ms
from redis.asyncio import from_url
from redis.exceptions import ResponseError

URL, STREAM = os.environ.get("URL", "redis://127.0.0.1:6379"), os.environ.get("STREAM", "orders")
GROUP, CONSUMER = "millstream", "flow"


@ms.source(ack=True, retry=ms.Backoff(), dedupe=ms.Dedupe(lambda entry: entry[0]))
async def entries() -> AsyncIterator[ms.At[tuple[str, dict[str, str]]]]:
    async with from_url(URL, decode_responses=True, protocol=2) as client:
        try:
            await client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
        # First the entries that this consumer has not acknowledged, then new ones.
        after = "0"
        while True:
            found: Any = await client.xreadgroup(GROUP, CONSUMER, {STREAM: after}, count=100, block=5000)
            new = found[0][1] if found else []
            if after != ">":
                after = new[-1][0] if new else ">"
            for number, fields in new:
                yield ms.At(None, (number, fields), ack=partial(client.xack, STREAM, GROUP, number))


flow = ms.Flow("entries")
texts = flow.source("entries", entries).map(lambda entry: entry[1]["text"])
texts.sink("out", ms.files.write(os.environ.get("OUT", "entries.txt")))
