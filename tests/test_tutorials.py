"""Pages that say what to type, run as they are written: README, tutorials, the recipes of the cookbook."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import written
from documents import ROOT
from postgres_server import PASSWORD, Server

COOKBOOK = ROOT / "docs" / "cookbook"


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "tutorial").glob("*.md")), ids=lambda page: page.stem
)
def test_a_tutorial_runs_as_written(page: Path, tmp_path: Path) -> None:
    blocks = written.blocks(page.read_text())
    assert blocks and all(block.language in ("sh", "text") for block in blocks)
    written.run(blocks, tmp_path)


def test_the_readme_runs_as_written(tmp_path: Path) -> None:
    blocks = written.blocks((ROOT / "README.md").read_text())
    assert sum(block.language == "text" for block in blocks) >= 4
    written.run(blocks, tmp_path)


def recipes() -> list[tuple[str, list[written.Block]]]:
    """The recipes by page and title, each with the files that its page begins with."""
    found = []
    for page in sorted(COOKBOOK.glob("*.md")):
        introduction, *sections = re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
        files = written.blocks(introduction)
        for section in sections:
            title, _, text = section.partition("\n")
            found.append((f"{page.stem}: {title}", files + written.blocks(text)))
    return found


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A database server, with a socket in its folder: a network of one's own does not reach its port."""
    server = Server()
    try:
        server.settings["unix_socket_directories"] = str(server.folder)
        server.start()
        for name, value in (("HOST", server.folder), ("PORT", server.port), ("USER", "postgres")):
            monkeypatch.setenv(f"PG{name}", str(value))
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        yield
    finally:
        server.remove()


@pytest.mark.parametrize("blocks", [pytest.param(blocks, id=name) for name, blocks in recipes()])
def test_a_recipe_prints_what_it_says(
    blocks: list[written.Block], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert blocks[-1].language == "text"
    if any("psql" in block.text for block in blocks):
        request.getfixturevalue("database")
    written.run(blocks, tmp_path)


def test_the_cookbook_has_thirty_recipes() -> None:
    assert len(recipes()) >= 30


def test_a_block_that_prints_something_else_is_found(tmp_path: Path) -> None:
    blocks = written.blocks("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="^1\n--- instead of\n2\n"):
        written.run(blocks, tmp_path)


@pytest.mark.parametrize("kind", ["alerts", "queue", "service"])
def test_a_new_folder_passes_its_own_tests(kind: str, tmp_path: Path) -> None:
    subprocess.run(["millstream", "new", kind], cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        command, cwd=tmp_path / kind, capture_output=True, text=True, timeout=written.TIMEOUT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"\b[1-9]\d* passed", ran.stdout)


def test_a_folder_that_has_one_of_the_files_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "alerts.py").write_text("mine")
    command = ["millstream", "new", "alerts", "mine"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1 and "mine has alerts.py already" in ran.stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["alerts.py"]
    assert (tmp_path / "mine" / "alerts.py").read_text() == "mine"


def test_a_kind_that_does_not_exist_is_bad_usage(tmp_path: Path) -> None:
    command = ["millstream", "new", "alrts"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2 and "there is no 'alrts': the kinds are alerts, queue, service" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_a_folder_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in ("file", "file/inside", "/proc/inside"):
        command = ["millstream", "new", "alerts", directory]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 1 and ran.stderr.count("\n") == 1, ran.stderr
        assert ran.stderr.startswith(f"millstream new: {directory}: ")
