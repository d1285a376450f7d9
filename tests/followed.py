"""A follower as a leader sees it: a cursor that a test moves, in place of a process on another machine."""

import subprocess
import sys

import millstream as ms


def follower(journal: ms.Journal, name: str) -> ms.JournalCursor:
    """A follower of the journal that counts. Its position is what it has acknowledged."""
    cursor = journal.cursor(f"follower.{name}", shared=True)
    command = [sys.executable, "-m", "millstream", "journal", "followers", str(journal.path), "--admit", name]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return cursor
