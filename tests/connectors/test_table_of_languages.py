"""The table "What exists in which language" of the guide names what exists, and each connector."""

from __future__ import annotations

import operator
import re
from pathlib import Path

import millstream as ms
import pytest
import test_table_of_promises

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide" / "connectors-compared.md"


def rows() -> list[list[str]]:
    """The cells: what it is, Python, Rust, and the way where it is missing."""
    text = GUIDE.read_text().partition("## What exists in which language\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


PYTHON = sorted({name for row in rows() for name in re.findall(r"`ms\.([\w.]+)`", row[1])})
RUST = sorted({name for row in rows() for name in re.findall(r"`(\w+::[\w:]+)`", row[2])})


@pytest.mark.parametrize("name", PYTHON)
def test_a_name_of_python_exists(name: str) -> None:
    assert operator.attrgetter(name)(ms)


@pytest.mark.parametrize("name", RUST)
def test_a_name_of_rust_exists(name: str) -> None:
    crate, _, rest = name.partition("::")
    api = (ROOT / "crates" / f"millstream-{crate}" / "api.txt").read_text()
    while (plain := re.sub(r"<[^<>]*>", "", api)) != api:
        api = plain
    assert re.search(rf"\bmillstream_{crate}(::\w+)*::{rest}\b", api)


def test_what_one_language_has_alone_has_a_reason() -> None:
    assert len(rows()) > 20 and all(len(row) == 4 and row[1] for row in rows())
    assert not [row for row in rows() if not row[2] and not row[3]]


def test_each_connector_is_in_the_table() -> None:
    assert {name.removeprefix("ms.") for name in test_table_of_promises.rows()} <= set(PYTHON)
