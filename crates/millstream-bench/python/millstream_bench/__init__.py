"""The Python side of ``millstream-bench``, which starts each module as a program: ``python -m millstream_bench.NAME``."""
