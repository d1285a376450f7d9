"""``millstream new``: folders to begin with, each of which runs as it is written."""
