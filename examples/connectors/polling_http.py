"""A web API that is polled for entries after the last one, by number.

Run: URL=http://127.0.0.1:8000/entries millstream run polling_http.py --state state
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import millstream as ms

URL = os.environ.get("URL", "http://127.0.0.1:8000/entries")
SECONDS = float(os.environ.get("SECONDS", "1"))


@ms.source(resume=True, retry=ms.Backoff())
async def entries(resume: int | None = None) -> AsyncIterator[ms.At[dict[str, Any]]]:
    after = resume or 0
    async with httpx.AsyncClient(timeout=10) as client:
        while True:
            response = await client.get(URL, params={"after": after})
            response.raise_for_status()
            for entry in response.json():
                after = entry["id"]
                yield ms.At(after, entry)
            await asyncio.sleep(SECONDS)


flow = ms.Flow("entries")
texts = flow.source("entries", entries).map(lambda entry: entry["text"])
texts.sink("out", ms.files.write(os.environ.get("OUT", "entries.txt")))
