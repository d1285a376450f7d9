"""Messages of a WebSocket server, which sends each of them once: recorded before they are processed.

Run: URL=ws://127.0.0.1:8765 millstream run websocket.py --state state
"""

import os
from collections.abc import AsyncIterator

import millstream as ms
from websockets.asyncio.client import connect

URL = os.environ.get("URL", "ws://127.0.0.1:8765")


@ms.source(durable=True, retry=ms.Backoff())
async def messages() -> AsyncIterator[str]:
    async with connect(URL) as socket:
        async for message in socket:
            yield str(message)


flow = ms.Flow("websocket")
flow.source("messages", messages).sink("out", ms.files.write(os.environ.get("OUT", "messages.txt")))
