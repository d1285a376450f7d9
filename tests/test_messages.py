"""The messages of the page on troubleshooting are those of the program; errors lead to pages that exist."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import millstream as ms
import pytest
from documents import ROOT
from millstream._errors.pages import DOCUMENTS, PAGES
from test_documents import dead_links

PAGE = ROOT / "docs" / "troubleshooting.md"
# Of the system, of Python, and of the protocol of memcache, each with its row.
ELSEWHERE = {"Address already in use", "No such file or directory", "No space left on device", "Can't pickle"}


@pytest.fixture(scope="module")
def sources() -> str:
    """All sources, with texts that are divided between lines as one."""
    files = [*(ROOT / "python").rglob("*.py"), *(ROOT / "crates").rglob("src/**/*.rs")]
    text = "\n".join(file.read_text() for file in files)
    text = re.sub(r'"\s*\n\s*f?"', "", re.sub(r"\\\n\s*", "", text))
    return text.replace('\\"', '"')


def unknown(page: str, sources: str) -> Iterator[str]:
    """Parts of the messages in the first cells of the tables that no source has."""
    for message in re.findall(r"^\| `([^`]+)`", page, re.MULTILINE):
        for part in message.split("..."):
            if len(part.strip(" \"',;:")) > 2 and message not in ELSEWHERE and part.strip() not in sources:
                yield part


def test_the_messages_are_those_of_the_program(sources: str) -> None:
    page = PAGE.read_text()
    assert len(re.findall(r"^\| `", page, re.MULTILINE)) > 20
    assert not list(unknown(page, sources))


def test_a_message_that_does_not_exist_is_found(sources: str) -> None:
    page = '| `the name "..." is used by two steps` | a |\n| `there is no jornal here` | b |\n'
    assert list(unknown(page, sources)) == ["there is no jornal here"]


def test_each_class_of_errors_has_a_page_that_exists() -> None:
    links = " ".join(f"[{name}]({page})" for name, page in PAGES.items())
    assert not list(dead_links(ROOT / "docs" / "index.md", links))
    classes = {getattr(ms.errors, name) for name in ms.errors.__all__ if name.endswith(("Error", "Refused"))}
    # Mistakes of a test, and what a destination has refused.
    for cls in classes:
        assert any(base.__name__ in PAGES for base in cls.__mro__), cls
    assert PAGES.keys() <= {*ms.errors.__all__}


FLOW = """
import millstream as ms
flow = ms.Flow("ages")
flow.source("in", ms.testing.items(["x"])).map(int).sink("out", ms.stdout())
"""


def test_a_command_that_fails_says_where_its_error_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "ages.py"
    path.write_text(FLOW)
    command = [sys.executable, "-m", "millstream", "run", str(path)]
    failed = subprocess.run(command, capture_output=True, text=True)
    *_, error, link = failed.stderr.splitlines()
    assert "invalid literal" in error and link == f"see {DOCUMENTS}/{PAGES['StepError']}"
    failed = subprocess.run([*command, "--log-format", "json"], capture_output=True, text=True)
    assert json.loads(failed.stderr.splitlines()[-1])["see"] == link.removeprefix("see ")
    path.write_text(FLOW + "raise KeyError")
    failed = subprocess.run(command, capture_output=True, text=True)
    assert "see http" not in failed.stderr and "KeyError" in failed.stderr.splitlines()[-1]
