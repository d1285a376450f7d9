"""The messages of the page on troubleshooting are those of the program."""

import re
from collections.abc import Iterator

import pytest
from documents import ROOT

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
