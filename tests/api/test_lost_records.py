"""A journal that has lost its end is noticed by what stored a position in it."""

from __future__ import annotations

import shutil
from pathlib import Path

import millstream as ms
import pytest


def append(path: Path, *texts: str) -> None:
    with ms.Journal(path) as journal:
        journal.append_many([text.encode() for text in texts])


def truncate(path: Path, sequence: int) -> None:
    """Leaves the records before a number, as an older copy of the journal has them."""
    kept = path.with_name(f"{path.name}-kept")
    with ms.Journal(path, "r") as journal, ms.Journal(kept) as older:
        older.append_many([journal[number].body for number in range(sequence)])
    identity = (path / "identity").read_bytes()
    shutil.rmtree(path)
    kept.rename(path)
    (path / "identity").write_bytes(identity)


def upper(folder: Path, state: str = "state", out: str = "out") -> list[str]:
    """Runs the flow to the end of the journal; what is in its output."""
    flow = ms.Flow("upper")
    words = flow.source("words", ms.journals.read(folder / "in", decode=str))
    words.map(str.upper).sink("out", ms.journals.append(folder / out))
    ms.run(flow, state=folder / state)
    with ms.Journal(folder / out, "r") as journal:
        return [record.body.decode() for record in journal.read(0)]


def copied(source: Path, target: Path) -> None:
    shutil.copytree(source, target)


def test_a_flow_refuses_a_journal_that_was_replaced_by_an_older_copy(tmp_path: Path) -> None:
    source = tmp_path / "in"
    append(source, "a", "b", "c")
    copied(source, tmp_path / "backup")
    append(source, "d", "e")
    copied(source, tmp_path / "follower")
    assert upper(tmp_path) == list("ABCDE")
    shutil.rmtree(source)
    copied(tmp_path / "backup", source)
    with pytest.raises(
        OSError, match="record 4, which was read before, is lost: the journal ends before record 3"
    ):
        upper(tmp_path)
    append(source, "new 1", "new 2", "new 3")
    with pytest.raises(OSError, match="record 4, .* another record has its number now.* new state directory"):
        upper(tmp_path)
    # Anew, with what the journal has now.
    assert upper(tmp_path, "state 2", "out 2") == ["A", "B", "C", "NEW 1", "NEW 2", "NEW 3"]
    # From a copy that has the records.
    shutil.rmtree(source)
    copied(tmp_path / "follower", source)
    append(source, "f")
    assert upper(tmp_path) == list("ABCDEF")


def test_a_cursor_on_records_that_were_replaced_is_an_error_until_it_is_set(tmp_path: Path) -> None:
    source = tmp_path / "in"
    append(source, *"abcde")
    with ms.Journal(source) as journal, journal.cursor("billing") as cursor:
        cursor.position = 4
    cursors = tmp_path / "cursors"
    copied(source / "cursors", cursors)
    truncate(source, 2)
    append(source, *"xyz")
    # The segments are those of an older copy, the cursors are not.
    shutil.rmtree(source / "cursors", ignore_errors=True)
    copied(cursors, source / "cursors")
    with ms.Journal(source) as journal, journal.cursor("billing") as cursor:
        with pytest.raises(ms.RecordLostError, match="record 3, which was read before, is lost"):
            _ = cursor.position
        assert issubclass(ms.RecordLostError, LookupError)
        cursor.position = 2
        assert cursor.position == 2
