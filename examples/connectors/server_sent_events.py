"""Server-sent events: a connection, also after a crash, resumes after the last event by its id.

Run: URL=http://127.0.0.1:8000/events millstream run server_sent_events.py --state state
"""

import os
from collections.abc import AsyncIterator

import httpx
import millstream as ms

URL = os.environ.get("URL", "http://127.0.0.1:8000/events")


@ms.source(resume=True, retry=ms.Backoff())
async def events(resume: str | None = None) -> AsyncIterator[ms.At[str]]:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": resume} if resume else {})
    async with httpx.AsyncClient(timeout=httpx.Timeout(10, read=60)) as client:
        async with client.stream("GET", URL, headers=headers) as response:
            response.raise_for_status()
            last = resume or ""
            data = []
            async for line in response.aiter_lines():
                field, _, value = line.partition(":")
                if field == "id":
                    last = value.removeprefix(" ")
                elif field == "data":
                    data.append(value.removeprefix(" "))
                elif not line and data:
                    yield ms.At(last, "\n".join(data))
                    data = []
    raise ConnectionError("the server has closed the stream of events")


flow = ms.Flow("events")
flow.source("events", events).sink("out", ms.files.write(os.environ.get("OUT", "events.txt")))
