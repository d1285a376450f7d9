"""The Python side of ``millstream-bench``, which starts each module: ``python -m millstream_bench.NAME``."""
