"""The cents of each customer in an archive, which archive.py writes. Run again, it reads what is new.

Run:
FROM=s3://bucket/orders millstream run totals.py --state totals
"""

import os

import millstream as ms

flow = ms.Flow("totals")
orders = flow.source("orders", ms.objects.read(os.environ.get("FROM", "archive"), "parquet"))
totals = orders.key_by(lambda order: order["customer"]).map(lambda order: order["cents"]).sum(emit="end")
totals.sink("out", ms.files.write(os.environ.get("OUT", "totals.txt")))
