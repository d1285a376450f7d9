"""The style of the repository, as a test.

A check takes a file's path and text and yields a line per fault. Every check comes with text that it
must object to, so that a check which has stopped looking fails too.
"""

import ast
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from modules import cycles, edges_inside, python_uses, rust_uses
from rust_text import code_only, rust_functions

ROOT = Path(__file__).parent.parent
FILE_LINES_MAX = 800
FUNCTION_LINES_MAX = 70

Check = Callable[[str, str], Iterator[str]]


def source_files(root: Path) -> Iterator[tuple[str, str]]:
    """Path and text of each text file that git tracks or, outside git, that is neither hidden nor built."""
    for path in sorted(tracked(root) or walked(root)):
        try:
            yield path, (root / path).read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue  # deleted but not yet committed, or not text


def tracked(root: Path) -> list[str]:
    try:
        listing = subprocess.check_output(["git", "ls-files", "-z"], cwd=root, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return []
    return [os.fsdecode(path) for path in listing.split(b"\0") if path]


def walked(root: Path) -> Iterator[str]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name[0] != "." and name not in ("target", "dist")]
        yield from (os.path.relpath(os.path.join(folder, name), root) for name in names)


def python_functions(python: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of each function, its docstring not counted."""
    for node in ast.walk(ast.parse(python)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) is not None
            lines = height(node) - (height(node.body[0]) if documented else 0)
            yield node.name, node.lineno, lines


def height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


# The checks.


def files_are_short(path: str, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if path.endswith((".rs", ".py", ".pyi")) and lines > FILE_LINES_MAX:
        yield f"{path}: {lines} lines, at most {FILE_LINES_MAX}"


def functions_are_short(path: str, text: str) -> Iterator[str]:
    functions = {".rs": rust_functions, ".py": python_functions}.get(Path(path).suffix)
    for name, line, lines in functions(text) if functions else ():
        if lines > FUNCTION_LINES_MAX:
            yield f"{path}:{line}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


def modules_say_what_they_are(path: str, text: str) -> Iterator[str]:
    if re.fullmatch(r"(crates/[^/]+|benchmarks)/src/.*\.rs", path) and not text.startswith("//!"):
        yield f"{path}:1: opens without //!"
    if re.fullmatch(r"python/.*\.py", path) and not ast.get_docstring(ast.parse(text)):
        yield f"{path}:1: opens without a docstring"


def modules_are_named_for_what_they_do(path: str, text: str) -> Iterator[str]:
    vague = {"util", "utils", "helper", "helpers", "manager", "managers", "common"}
    if path.endswith((".rs", ".py", ".pyi")) and (found := vague.intersection(re.split(r"[/_.-]", path))):
        yield f"{path}: {found.pop()} says nothing"


# Functions of librdkafka that its Rust crate lacks.
UNSAFE = ("crates/millstream-journal/", "crates/millstream-kafka/src/client/leader_epoch.rs")


def unsafe_stays_where_it_is(path: str, text: str) -> Iterator[str]:
    if path.endswith(".rs") and not path.startswith(UNSAFE):
        yield from lines_with(r"\bunsafe\b", path, code_only(text))


def nothing_is_left_for_later(path: str, text: str) -> Iterator[str]:
    yield from lines_with(r"\b(TOD[O]|FIXM[E])\b|\b(tod[o]|unimplemente[d])!", path, text)


def what_is_ignored_is_run_by_another_test(path: str, text: str) -> Iterator[str]:
    """A Rust test that must have a process to itself is ignored, and started by name from another test."""
    ignored = re.finditer(r"#\[ignore\b[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:async )?fn (\w+)", text)
    for found in ignored if path.endswith(".rs") else ():
        name = rf'\("{Path(path).stem}::{found[1]}"'
        if not re.search(rf"(in_own_process(_with)?|start_own_process){name}", text):
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}: nothing runs {found[1]}"


def nothing_points_outside(path: str, text: str) -> Iterator[str]:
    yield from lines_with(r"\.\./[s]hared", path, text)


def lines_with(pattern: str, path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.search(pattern, line):
            yield f"{path}:{number}: {found[0]}"


def libraries_print_nothing(path: str, text: str) -> Iterator[str]:
    """Clippy denies it where the root of a library says so; only programs print."""
    if re.fullmatch(r"crates/(?!millstream-(?:cli|sim)/)[^/]+/src/lib\.rs", path):
        if "#![deny(clippy::print_stdout, clippy::print_stderr)]" not in text:
            yield f"{path}:1: clippy is not told to deny printing"


# What each check must object to: path, text. A `~` is dropped; it keeps this file itself tidy.
BAD: dict[Check, list[tuple[str, str]]] = {
    files_are_short: [("crates/x/src/a.rs", "//\n" * 801), ("tests/a.py", "\n" * 801)],
    functions_are_short: [
        ("crates/x/src/a.rs", "fn long() {\n" + "    step();\n" * 69 + "}\n"),
        ("tests/a.py", "def long():\n" + "    step()\n" * 70),
        ("tests/a.py", "class A:\n    async def long(self):\n" + "        step()\n" * 70),
    ],
    modules_say_what_they_are: [
        ("crates/x/src/a.rs", "use std::fs;\n//! Too late.\n"),
        ("python/x/a.py", "import os\n"),
        ("python/x/__init__.py", ""),
    ],
    modules_are_named_for_what_they_do: [
        ("crates/x/src/utils.rs", ""),
        ("python/x/string_helpers.py", ""),
        ("tests/common/mod.rs", ""),
    ],
    unsafe_stays_where_it_is: [("crates/millstream/src/a.rs", "//! A.\nfn f() { unsafe { g() } }\n")],
    nothing_is_left_for_later: [
        ("README.md", "TO~DO: write it"),
        ("a.py", "# FIX~ME"),
        ("a.rs", "fn f() { to~do!() }"),
        ("a.rs", "fn f() { unimplement~ed!() }"),
    ],
    what_is_ignored_is_run_by_another_test: [
        ("crates/x/tests/y/a.rs", '#[test]\n#[ignore = "slow"]\nfn slow() {}\n'),
        ("crates/x/tests/y/a.rs", '#[ignore]\n#[test]\nfn b() {}\nfn c() { in_own_process("a::bb") }\n'),
    ],
    libraries_print_nothing: [("crates/x/src/lib.rs", "//! A.\n")],
    nothing_points_outside: [("docs/a.md", "see ../sha~red/notes.md")],
}
CHECKS = pytest.mark.parametrize("check", BAD, ids=lambda check: check.__name__)


@CHECKS
def test_the_tree_is_tidy(check: Check) -> None:
    files = list(source_files(ROOT))
    assert "Cargo.toml" in (path for path, _ in files)
    faults = [fault for path, text in files for fault in check(path, text)]
    assert not faults, "\n" + "\n".join(faults)


@CHECKS
def test_the_check_can_fail(check: Check) -> None:
    for path, text in BAD[check]:
        faults = list(check(path, text.replace("~", "")))
        assert len(faults) == 1 and faults[0].startswith(path), (path, text[:60], faults)


TRICKY_RUST = r"""
trait Named { fn name(&self) -> [u8; 4]; fn size(&self) -> usize { 1 } }
fn text<'a, 'b: 'a>(s: &'a str, _: &'b [u8; 2]) -> usize {
    let _ = ("{ \" {", '{', '\'', b'{', '\u{7b}', r#"{ " fn no() { "#, br"\", "// {");
    s.len() // } fn no() {
}
/* { /* nested } */ fn no() { } */
const CALL: fn(u32) -> u32 = r#fn_like;
pub async fn outer<F>(f: F) where F: Fn([u8; 2]) {
    fn inner() {}
    match 1 { _ => { inner() } }
}
extern "C" { fn foreign(n: u32); }
"""


def test_rust_functions_are_found_in_tricky_code() -> None:
    assert list(rust_functions(TRICKY_RUST)) == [
        ("size", 2, 1),
        ("text", 3, 4),
        ("outer", 9, 4),
        ("inner", 10, 1),
    ]


def test_the_limit_itself_is_allowed() -> None:
    rust = "fn most() {\n" + "    step();\n" * 68 + "}\n"
    python = 'def most():\n    """Says\n    much."""\n' + "    step()\n" * 69
    assert not list(functions_are_short("a.rs", rust)) and not list(functions_are_short("a.py", python))


def test_outside_git_the_tree_is_walked(tmp_path: Path) -> None:
    for name in ("a.rs", "target/b.rs", ".venv/c.py", "docs/d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("//! Text.\n")
    assert [path for path, _ in source_files(tmp_path)] == ["a.rs", "docs/d.md"]


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
