"""An archive of orders: JSON lines become objects of Parquet, each order once, in a bucket or a directory.

Run, with a file orders.jsonl whose lines are such as {"id": 7, "customer": "ann", "cents": 1250}:
TO=s3://bucket/orders millstream run archive.py --state state
"""

import os

import millstream as ms
import pyarrow

SCHEMA = pyarrow.schema([("id", pyarrow.int64()), ("customer", pyarrow.string()), ("cents", pyarrow.int64())])

flow = ms.Flow("archive")
orders = flow.source("orders", ms.files.json_lines(os.environ.get("ORDERS", "orders.jsonl")))
archive = ms.objects.write(
    os.environ.get("TO", "archive"),
    "parquet",
    schema=SCHEMA,
    batch=int(os.environ.get("ROWS", "100000")),
)
orders.sink("archive", archive)
