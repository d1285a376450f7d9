"""A fault of mapped journal memory is an exception of the journal; any other fault has its usual effect."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import millstream as ms
import pytest

PRELUDE = """
import faulthandler, mmap, os, signal, sys, threading
from pathlib import Path
import millstream as ms

path = Path(sys.argv[1])
journal = ms.Journal(path / "orders", segment_bytes=65536)
journal.append_many([b"x" * 1000] * 50)
segment = path / "orders" / "segment-0000000000.log"

def raises(call, offset=True):
    try:
        call()
    except ms.JournalIOError as error:
        assert "truncated" in str(error) and "segment-0000000000.log" in str(error), error
        assert error.offset % 4096 == 0, error.offset
    else:
        raise AssertionError("no exception")

def die_of_another_fault():
    other = path / "other"
    other.write_bytes(bytes(8192))
    with open(other, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        file.truncate(0)
        mapped[0]
"""

SURVIVE = """
record, view = journal[0], journal[1].view
early = journal[2]
assert bytes(view[:2]) == b"xx"
os.truncate(segment, 0)
assert bytes(view[:2]) == bytes(2)
raises(early.check)
raises(lambda: record.body)
raises(lambda: record.view)
raises(lambda: journal.append(record))
raises(lambda: journal.append(b"more"))
raises(lambda: journal.append_many([b"more"]))
raises(lambda: list(journal))
raises(lambda: journal[3])
raises(journal.sync)
raises(lambda: len(journal))
failed = []
def work():
    try:
        journal.append(b"from a thread")
    except ms.JournalIOError:
        failed.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(failed) == 4
journal.close()
second = ms.Journal(path / "second")
assert second.append(b"another journal is as good as ever") == 0 and second[0].body
print("survived")
"""

BEFORE = {
    "nothing": "",
    "faulthandler": "import faulthandler; faulthandler.enable()\n",
    "a handler in Python": "import signal; signal.signal(signal.SIGBUS, lambda *_: None)\n",
}


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("before", BEFORE)
def test_a_truncated_segment_is_an_exception(before: str, tmp_path: Path) -> None:
    done = run(BEFORE[before] + PRELUDE + SURVIVE, tmp_path)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr
    assert "Fatal" not in done.stderr


def test_a_truncated_segment_is_an_exception_with_a_later_handler(tmp_path: Path) -> None:
    # The next mapping of a journal puts the handler over this one.
    later = "faulthandler.enable()\nms.Journal(path / 'later').append(b'x')\n"
    done = run(PRELUDE + later + SURVIVE, tmp_path)
    assert (done.returncode, done.stdout) == (0, "survived\n"), done.stderr
    assert "Fatal" not in done.stderr


@pytest.mark.parametrize("when", ["before", "after", "over", "never"])
def test_a_fault_of_other_memory_kills_as_it_did(when: str, tmp_path: Path) -> None:
    enable = "import faulthandler\nfaulthandler.enable()\n"
    script = {
        "before": enable + PRELUDE,
        "after": PRELUDE + enable,
        "over": PRELUDE + enable + "ms.Journal(path / 'later')\n",
        "never": PRELUDE,
    }[when]
    done = run(script + "die_of_another_fault()\n", tmp_path)
    assert done.returncode == -signal.SIGBUS, (done.returncode, done.stderr)
    assert ("die_of_another_fault" in done.stderr) == (when != "never"), done.stderr


def test_a_signal_that_is_sent_kills_as_it_did(tmp_path: Path) -> None:
    done = run(PRELUDE + "os.kill(os.getpid(), signal.SIGBUS)\nprint('alive')\n", tmp_path)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "")


def test_a_directory_that_is_removed_is_an_exception(tmp_path: Path) -> None:
    with ms.Journal(tmp_path / "orders") as journal:
        journal.append(b"first")
        tail = journal.tail(0, timeout=60)
        assert next(tail).body == b"first"
        shutil.rmtree(tmp_path / "orders")
        with pytest.raises(ms.JournalNotFoundError, match="removed, moved or replaced"):
            next(tail)
        with pytest.raises(ms.JournalNotFoundError, match="removed, moved or replaced"):
            journal.append(b"second")
