"""The programs and sessions in the documents, for the tests that run them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
GUIDE = ROOT / "docs" / "guide"


def blocks(document: Path, language: str) -> list[str]:
    """The blocks of a language; "" for those that name none, which are sessions in a shell and drawings."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", document.read_text(), re.DOTALL | re.MULTILINE)
    return [block for of, block in fenced if of == language]
