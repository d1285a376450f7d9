"""Links of the documents lead to files and headings that exist; the glossary names files that exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The headings of a document as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def dead_links(document: Path, text: str) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        if not file.exists() or (anchor and anchor not in anchors(file.read_text())):
            yield target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert not list(dead_links(document, document.read_text()))


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# A\n")
    (tmp_path / "b.md").write_text("# B\n## The `b` of it: all, *too*\n```\n# not one\n```\n")
    text = "# A\n[1](#a) [2](b.md#the-b-of-it-all-too) [3](b.md#not-one) [4](c.md) [5](https://x.org) [6](#b)"
    assert list(dead_links(tmp_path / "a.md", text)) == ["b.md#not-one", "c.md", "#b"]


def unknown_files(glossary: str) -> Iterator[str]:
    """Cells of the last column with a path below `src` that not exactly one of the section's crates has."""
    for section in re.split(r"^## ", glossary, flags=re.MULTILINE)[1:]:
        introduction, _, rows = section.partition("\n|")
        crates = re.findall(r"`(millstream-\w+)`", introduction)
        sources = [ROOT / "crates" / crate / "src" for crate in crates]
        files = [str(file.relative_to(source)) for source in sources for file in source.rglob("*.rs")]
        assert crates and files, introduction
        for last in re.findall(r"\| ([^|]*) \|$", rows, re.MULTILINE):
            named = re.findall(r"`([\w/]+\.rs)`", last)
            if not all(files.count(name) == 1 for name in named):
                yield last


def test_the_glossary_names_files_that_exist() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert not list(unknown_files(glossary))
    assert glossary.count(".rs` |") > 50


def test_a_file_that_does_not_exist_is_found() -> None:
    rows = "| a | b | `append.rs` |\n| c | d | `no_such.rs` |\n| e | f | `survey.rs` |\n"
    glossary = (
        f"# G\n\n## J\n\nCrate `millstream-journal`.\n\n| term | meaning | file |\n|---|---|---|\n{rows}"
    )
    assert list(unknown_files(glossary)) == ["`no_such.rs`", "`survey.rs`"]


def unknown_paths(text: str, files: list[str]) -> Iterator[str]:
    """Files that a document names, by a path or its end, and that do not exist; `*` is any text."""
    for name in re.findall(r"`([\w./*-]+\.(?:rs|py))`", FENCE.sub("", text)):
        pattern = re.compile("/" + re.escape(name).replace(r"\*", "[^/]*") + "$")
        if not any(pattern.search(f"/{file}") for file in files):
            yield name


def test_files_that_documents_name_exist() -> None:
    """Not those of the guide, which names files of users."""
    places = ("benchmarks", "crates", "python", "tests", "examples", "fuzz/targets", "release")
    files = [str(file.relative_to(ROOT)) for place in places for file in (ROOT / place).rglob("*.[rp][sy]")]
    named = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "notes").glob("*.md"), ROOT / "ARCHITECTURE.md"]
    faults = [f"{file.name}: {name}" for file in named for name in unknown_paths(file.read_text(), files)]
    assert not faults
    assert list(
        unknown_paths("`tests/test_documents.py` `no_such.rs` `a/test_doc*.py` `test_doc*.py`", files)
    ) == [
        "no_such.rs",
        "a/test_doc*.py",
    ]
