"""Counts of words that are posted, as they change, on a page of a browser."""

import os

import millstream as ms

LISTEN = os.environ.get("LISTEN", "127.0.0.1:8081")
FEED = os.environ.get("FEED", "127.0.0.1:8082")
PAGE = os.environ.get("PAGE", "http://127.0.0.1:8000")
"""The origin of the page: no other page may read the feed."""

flow = ms.Flow("live-count")
(
    flow.source("lines", ms.http.listen(LISTEN, "/words", body="lines", decode=str))
    .flat_map(str.split)
    .key_by(str.lower)
    .count(emit="each")
    .items()
    .map(lambda item: {"word": item[0], "count": item[1]})
    .sink("feed", ms.http.feed(FEED, "/counts", origins=[PAGE]))
)

if __name__ == "__main__":
    ms.run(flow)
