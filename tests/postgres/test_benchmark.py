"""The benchmark runs, with few rows: its figures are those of `python -m millstream_bench.postgres`."""

from millstream_bench.postgres import measure
from postgres_server import Database


def test_each_case_has_a_rate(database: Database) -> None:
    found = measure(database.dsn, 2500, 1)
    assert len(found) == 5 and all(row["per_second"] > 0 for row in found)
    assert database.rows("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []
