"""Messages of a NATS JetStream consumer, acknowledged when their epoch is committed.

NATS delivers a message again if its acknowledgement is lost; its number in the stream tells. `ack_wait` is
longer than an epoch, or NATS would deliver messages again that are not committed yet. A connection that fails
is an attempt of the source that fails: the client does not connect again by itself.

Run: URL=nats://127.0.0.1:4222 SUBJECT=orders millstream run nats_jetstream.py --state state
"""

import os
from collections.abc import AsyncIterator

import millstream as ms
import nats
from nats.errors import TimeoutError
from nats.js.api import ConsumerConfig

URL = os.environ.get("URL", "nats://127.0.0.1:4222")
SUBJECT = os.environ.get("SUBJECT", "orders")
CONSUMER = ConsumerConfig(ack_wait=float(os.environ.get("ACK_WAIT", "30")))


async def ignore(error: Exception) -> None:
    """The source fails with it, and logs it."""


OPTIONS = {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}


@ms.source(ack=True, retry=ms.Backoff(), dedupe=ms.Dedupe(lambda numbered: numbered[0]))
async def orders() -> AsyncIterator[ms.At[tuple[int, bytes]]]:
    async with await nats.connect(URL, error_cb=ignore, **OPTIONS) as client:
        stream = client.jetstream()
        consumer = await stream.pull_subscribe(SUBJECT, durable="millstream", config=CONSUMER)
        while True:
            try:
                messages = await consumer.fetch(100, timeout=5)
            except TimeoutError:
                continue
            for message in messages:
                number = message.metadata.sequence.stream
                yield ms.At(None, (number, message.data), ack=message.ack)


flow = ms.Flow("orders")
bodies = flow.source("orders", orders).map(lambda numbered: numbered[1])
bodies.sink("out", ms.files.write(os.environ.get("OUT", "orders.txt")))
