"""A put fails, and another copy of the state directory writes objects before the next attempt."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import millstream as ms
import pytest
from millstream.objects.store import Prefix
from object_places import Place, items_of
from test_objects_write import write

FLOW = """
import os
import millstream as ms


@ms.source(resume=True)
def numbered(resume=None):
    items = eval(os.environ["ITEMS"])
    for number in range(resume or 0, len(items)):
        yield ms.At(number + 1, items[number])


flow = ms.Flow("numbers")
sink = ms.objects.write(os.environ["URL"], os.environ["FORMAT"], config=eval(os.environ["CONFIG"]))
flow.source("in", numbered()).sink("out", sink)
"""


class Copy:
    """The same flow in a process of its own, on a copy of the state directory."""

    def __init__(self, place: Place, folder: Path, format: str) -> None:
        self.folder = folder
        (folder / "flow.py").write_text(FLOW)
        self.environment = os.environ | {"URL": place.url, "CONFIG": repr(place.config), "FORMAT": format}
        self.copy()

    def copy(self) -> None:
        """Copies the state directory as it is now."""
        shutil.rmtree(self.folder / "copy", ignore_errors=True)
        shutil.copytree(self.folder / "state", self.folder / "copy")

    def run(self, items: list[Any]) -> None:
        command = [sys.executable, "-m", "millstream", "run", str(self.folder / "flow.py")]
        command += ["--state", str(self.folder / "copy")]
        environment = self.environment | {"ITEMS": repr(items)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr


def fail_once(monkeypatch: pytest.MonkeyPatch, effect: Callable[[], object], before: bool) -> list[str]:
    """The first object is created before ``effect`` or not at all, and the answer is lost.

    Returns the names of all attempts.
    """
    names: list[str] = []
    create = Prefix.create

    def created(self: Prefix, name: str, content: bytes) -> bool:
        names.append(name)
        if len(names) > 1:
            return create(self, name, content)
        if before:
            create(self, name, content)
        effect()
        raise ConnectionError("no answer")

    monkeypatch.setattr(Prefix, "create", created)
    return names


def item(format: str, text: str) -> Any:
    return {"text": text} if format == "parquet" else text


@pytest.mark.parametrize("format", ["lines", "parquet"])
@pytest.mark.parametrize("others", ["x", "cx", "xyz", "xyzu", "cdeu", "cd"])
def test_the_late_one_is_stopped(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, others: str
) -> None:
    """Another copy has written fewer items, as many, and more: others, or the same in another division."""
    first, own = ([item(format, text) for text in texts] for texts in ("ab", "abcde"))
    write(place, format, first, tmp_path / "state")
    copy = Copy(place, tmp_path, format)
    written = first + [item(format, text) for text in others]
    names = fail_once(monkeypatch, lambda: copy.run(written), before=False)
    with pytest.raises(ms.FlowError, match=r"another (process|copy)") as error:
        write(place, format, own, tmp_path / "state", retry=ms.Backoff(first=0.01))
    assert "\n" not in str(error.value) and "state directory" in str(error.value)
    assert items_of(place.contents()) == written
    assert len(names) <= 2


def test_the_same_object_of_another_copy_is_as_good_as_its_own(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place, "lines", ["a", "b"], tmp_path / "state")
    copy = Copy(place, tmp_path, "lines")
    fail_once(monkeypatch, lambda: copy.run(["a", "b", "c", "d"]), before=False)
    write(place, "lines", ["a", "b", "c", "d"], tmp_path / "state", retry=ms.Backoff(first=0.01))
    assert items_of(place.contents()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("is_created", [True, False])
def test_an_answer_that_is_lost(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_created: bool
) -> None:
    names = fail_once(monkeypatch, lambda: None, before=is_created)
    write(place, "lines", ["a", "b"], tmp_path / "state", retry=ms.Backoff(first=0.01))
    assert items_of(place.contents()) == ["a", "b"]
    assert len(names) == 2 and len(set(names)) == 1


def test_a_copy_that_writes_after_the_lost_answer(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object of this flow is there, and the copy continues after it."""
    write(place, "lines", ["a", "b"], tmp_path / "state")
    copy = Copy(place, tmp_path, "lines")

    def other() -> None:
        # The copy has all records that this flow has committed.
        copy.copy()
        copy.run(["a", "b", "c", "d", "x"])

    fail_once(monkeypatch, other, before=True)
    with pytest.raises(ms.FlowError, match="another copy"):
        write(place, "lines", ["a", "b", "c", "d"], tmp_path / "state", retry=ms.Backoff(first=0.01))
    assert items_of(place.contents()) == ["a", "b", "c", "d", "x"]
