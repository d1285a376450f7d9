"""Word count: the lines of a file in, each word with its count out."""

import os

import millstream as ms

flow = ms.Flow("word-count")
(
    flow.source("lines", ms.files.lines(os.environ.get("BOOK", "book.txt")))
    .flat_map(str.split)
    .key_by(str.lower)
    .count()
    .items()
    .map(lambda item: f"{item[1]} {item[0]}")
    .sink("out", ms.stdout())
)

if __name__ == "__main__":
    ms.run(flow)
