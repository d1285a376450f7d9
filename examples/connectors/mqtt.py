"""Messages of an MQTT broker with QoS 1, acknowledged when they are recorded.

A broker keeps few messages unacknowledged at a time (mosquitto: 20), so that acknowledgements do not wait
for a commit. It delivers a message again if its acknowledgement is lost, and nothing tells that from a new
one: each message is processed at least once.

Run: HOST=127.0.0.1 PORT=1883 TOPIC=sensors/# millstream run mqtt.py --state state
"""

import asyncio
import os
from collections.abc import AsyncIterator
from functools import partial

import millstream as ms
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

HOST, PORT = os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "1883"))
TOPIC = os.environ.get("TOPIC", "sensors/#")


@ms.source(durable=True, ack=True, retry=ms.Backoff())
async def readings() -> AsyncIterator[ms.At[bytes]]:
    loop, arrived = asyncio.get_running_loop(), asyncio.Queue[MQTTMessage]()
    # The broker keeps the session of this id, and messages for it, while the flow does not run.
    client = Client(CallbackAPIVersion.VERSION2, client_id="millstream", clean_session=False, manual_ack=True)

    def subscribe(*_: object) -> None:
        client.subscribe(TOPIC, qos=1)

    def pass_on(_client: Client, _data: object, message: MQTTMessage) -> None:
        loop.call_soon_threadsafe(arrived.put_nowait, message)

    client.on_connect, client.on_message = subscribe, pass_on
    await asyncio.to_thread(client.connect, HOST, PORT)
    client.loop_start()
    try:
        while True:
            message = await arrived.get()
            yield ms.At(None, bytes(message.payload), ack=partial(client.ack, message.mid, message.qos))
    finally:
        client.disconnect()
        client.loop_stop()


flow = ms.Flow("readings")
flow.source("readings", readings).sink("out", ms.files.write(os.environ.get("OUT", "readings.txt")))
