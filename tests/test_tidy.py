"""What neither cargo, clippy, ruff nor mypy checks: sizes of files, module docs, cycles of modules."""

import re
import subprocess
from pathlib import Path

import pytest
from modules import cycles, edges_inside, python_uses, rust_uses

ROOT = Path(__file__).parent.parent
FILE_LINES_MAX = 800
FOR_LATER = "TO" + "DO|FIX" + "ME"
"""Not in one piece: this file is checked, too."""


def texts(*patterns: str) -> dict[str, str]:
    """The text files that git tracks, by path."""
    command = ["git", "ls-files", "-z", "--", *patterns]
    paths = subprocess.check_output(command, cwd=ROOT, text=True).split("\0")
    found = {}
    for path in filter(None, paths):
        try:
            found[path] = (ROOT / path).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # deleted but not yet committed, or not text
    assert found
    return found


def test_files_are_short() -> None:
    lines = {path: text.count("\n") for path, text in texts("*.rs", "*.py", "*.pyi").items()}
    assert {path: count for path, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_modules_begin_with_what_they_are() -> None:
    rust = {path: text.startswith("//!") for path, text in texts("crates/*/src/*.rs").items()}
    python = {path: text.startswith(('"""', 'r"""')) for path, text in texts("python/*.py").items()}
    assert [path for path, documented in (rust | python).items() if not documented] == []


def test_nothing_is_left_for_later_and_nothing_refers_outside_of_the_repository() -> None:
    pattern = re.compile(rf"\b({FOR_LATER})\b|\.\./[s]hared")
    assert {path: found[0] for path, text in texts(".").items() if (found := pattern.search(text))} == {}


IGNORED = re.compile(r"#\[ignore\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)")


def test_an_ignored_test_of_rust_is_started_by_another() -> None:
    """It must have a process to itself."""
    for path, text in texts("*.rs").items():
        for found in IGNORED.finditer(text):
            assert re.search(rf'own_process\w*\("{Path(path).stem}::{found[1]}"', text), (path, found[1])


# Modules that know each other in a circle can be neither read nor tested one by one.
TREES = sorted(
    [*(ROOT / "crates").glob("*/src"), ROOT / "benchmarks" / "src", ROOT / "python" / "millstream"]
)


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.parent.name)
def test_modules_form_no_cycle(tree: Path) -> None:
    uses = python_uses(tree) if (tree / "__init__.py").exists() else rust_uses(tree)
    assert uses
    faults = [
        line for group in cycles(uses) for line in (f"{len(group)} modules:", *edges_inside(uses, group))
    ]
    assert not faults, "\n" + "\n".join(faults)


RUST_CYCLE = {
    "lib.rs": "mod a; pub use a::{A, low::Low as Deep}; use crate::b::B;",
    "a.rs": "pub mod low; pub use low::Low; pub struct A(crate::b::B);",
    "a/low.rs": "pub struct Low; #[cfg(test)] mod tests { use crate::b::B; }",
    "b.rs": "use super::Deep; // use crate::a::A;\npub struct B;",
    "c.rs": "fn f() { super::d::g() }",
    "d.rs": "use crate::{c as see, a::A}; fn g() { see::f() }",
}


def test_cycles_are_found_in_rust(tmp_path: Path) -> None:
    for name, text in RUST_CYCLE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    uses = rust_uses(tmp_path)
    assert uses == {
        "crate": {"crate::b"},
        "crate::a": {"crate::b"},
        "crate::a::low": set(),
        "crate::b": {"crate::a::low"},
        "crate::c": {"crate::d"},
        "crate::d": {"crate::c", "crate::a"},
    }
    assert cycles(uses) == [["crate::c", "crate::d"]]


def test_cycles_are_found_in_python(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from . import b\n")
    (tmp_path / "b.py").write_text("def f():\n    from .sub.c import name\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.py").write_text("from ..a import f\nif TYPE_CHECKING:\n    from .d import D\n")
    (tmp_path / "sub" / "d.py").write_text("from .c import name\n")
    root = tmp_path.name
    assert cycles(python_uses(tmp_path)) == [[f"{root}.a", f"{root}.b", f"{root}.sub.c"]]
