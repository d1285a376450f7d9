"""Which modules of a crate or package use which, and where they form cycles.

A module of Rust uses the module that defines a name, not those that pass it on: paths are followed through
`use` declarations, so that a parent may re-export what its children define. Code of unit tests is
not counted.

To list the cycles of a tree: `python tests/modules.py crates/millstream-flow/src`.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

Names = tuple[str, ...]
Uses = dict[str, set[str]]

USE = re.compile(r"(?P<public>\bpub(?:\s*\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]+);")
INLINE = re.compile(r"\b(?:crate|super|self)(?:\s*::\s*\w+)+")
CHILD = re.compile(r"\bmod\s+(\w+)\s*;")
UNIT_TESTS = re.compile(
    r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?(?:mod\s+\w+|(?:async\s+)?fn\s+\w+|impl\b[^{;]*|use[^;]*)"
)


def rust_uses(source: Path) -> Uses:
    """The modules below a crate's `src`, by name, each with those that it uses."""
    modules = {
        module_of(file.relative_to(source)): Module(file.read_text("utf-8")) for file in source.rglob("*.rs")
    }
    crate = Crate(modules)
    return {name(path): {name(used) for used in crate.used_by(path)} for path in modules}


OPAQUE = re.compile(
    r"""
      //[^\n]* | /\*                                                        # a block comment may nest
    | \b[bc]?r(?P<hashes>\#*)".*?"(?P=hashes)                               # raw string
    | "(?:\\.|[^"\\])*"                                                     # string
    | '(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])'                     # character, never a lifetime
    """,
    re.VERBOSE | re.DOTALL,
)


def code_only(rust: str) -> str:
    """Blanks comments, strings and characters; every other character keeps its place."""
    kept: list[str] = []
    at = 0
    while begin := OPAQUE.search(rust, at):
        end = block_comment_end(rust, begin.end()) if begin[0] == "/*" else begin.end()
        kept += rust[at : begin.start()], re.sub(r"[^\n]", " ", rust[begin.start() : end])
        at = end
    return "".join(kept) + rust[at:]


def block_comment_end(rust: str, at: int) -> int:
    depth = 1
    for mark in re.compile(r"/\*|\*/").finditer(rust, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return len(rust)


def body_end(code: str, at: int) -> int | None:
    """Where the body of the function whose name ends at `at` closes; None when it has no body."""
    depth = 0
    for mark in re.compile(r"[][(){};]").finditer(code, at):
        depth += (mark[0] in "([{") - (mark[0] in ")]}")
        if depth < 0 or (depth == 0 and mark[0] == ";"):
            return None
        if depth == 0 and mark[0] == "}":
            return mark.end()
    return None


def module_of(file: Path) -> Names:
    parts = file.with_suffix("").parts
    if parts in (("lib",), ("main",)):
        return ()
    return parts[:-1] if parts[-1] == "mod" else parts


def name(path: Names) -> str:
    return "::".join(("crate", *path))


class Module:
    """What the text of one module declares and names."""

    def __init__(self, text: str) -> None:
        code = without_unit_tests(code_only(text))
        self.children = set(CHILD.findall(code))
        self.imports: list[tuple[str, Names, bool]] = []  # the name here, its path, whether it is public
        for use in USE.finditer(code):
            for path, alias in branches(use["tree"]):
                self.imports.append((alias, path, bool(use["public"])))
        rest = USE.sub("", code)
        self.paths = {tuple(re.split(r"\s*::\s*", path)) for path in INLINE.findall(rest)}
        for child in self.children:
            self.paths |= {("self", child, found) for found in re.findall(rf"(?<![\w:]){child}::(\w+)", rest)}


def without_unit_tests(code: str) -> str:
    at = 0
    while begin := UNIT_TESTS.search(code, at):
        end = body_end(code, begin.end()) or code.find(";", begin.start()) + 1
        code = code[: begin.start()] + code[end:]
        at = begin.start()
    return code


def branches(tree: str) -> Iterator[tuple[Names, str]]:
    """The paths of a `use` declaration, each with the name that it has from then on."""
    tree = tree.strip()
    before, brace, inside = tree.partition("{")
    if not brace:
        path, _, alias = (part.strip() for part in tree.partition(" as "))
        parts = tuple(part.strip() for part in path.removeprefix("::").split("::"))
        parts = parts[:-1] if parts[-1] == "self" and len(parts) > 1 else parts
        yield parts, alias or parts[-1]
        return
    prefix = tuple(part.strip() for part in before.split("::") if part.strip())
    for part in split_outside_braces(inside.rpartition("}")[0]):
        for path, alias in branches(part):
            yield (
                (prefix, prefix[-1] if alias == "self" else alias)
                if path == ("self",)
                else (prefix + path, alias)
            )


def split_outside_braces(text: str) -> Iterator[str]:
    depth = 0
    begin = 0
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if character == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if text[begin:].strip():
        yield text[begin:]


class Crate:
    def __init__(self, modules: dict[Names, Module]) -> None:
        self.modules = modules

    def used_by(self, path: Names) -> set[Names]:
        module = self.modules[path]
        found = {self.definer(path, used) for used in module.paths}
        for _, used, public in module.imports:
            target = self.definer(path, used)
            if public and target and target[: len(path)] == path:
                continue  # a parent that re-exports what its children define
            found.add(target)
        return {target for target in found if target is not None and target != path}

    def definer(self, where: Names, path: Names, depth: int = 0) -> Names | None:
        """The module that defines what `path` names in the module `where`; None outside the crate."""
        start = self.absolute(where, path)
        if start is None or depth > 20:
            return None
        at: Names = ()
        for index, part in enumerate(start):
            if at + (part,) in self.modules:
                at += (part,)
                continue
            return self.through_imports(at, part, start[index + 1 :], depth) or at
        return at

    def absolute(self, where: Names, path: Names) -> Names | None:
        first = path[0]
        rest = path[1:]
        if first == "crate":
            return rest
        if first == "self":
            return where + rest
        if first == "super":
            up = where[:-1]
            return self.absolute(up, ("self", *rest)) if rest[:1] != ("super",) else self.absolute(up, rest)
        return where + path if first in self.modules[where].children else None

    def through_imports(self, module: Names, part: str, rest: Names, depth: int) -> Names | None:
        for alias, path, _ in self.modules[module].imports if module in self.modules else ():
            if alias == part:
                return self.definer(module, path + rest, depth + 1)
        return None


def python_uses(package: Path) -> Uses:
    """The modules of a Python package, each with those of the package that it imports when it runs."""
    root = package.name
    files = {python_name(root, file.relative_to(package)): file for file in package.rglob("*.py")}
    # A stub stands for native code, which imports nothing of the package when it is loaded.
    native = {python_name(root, file.relative_to(package)): file for file in package.rglob("*.pyi")}
    known = {**native, **files}
    return {module: set(imported(module, file, known)) - {module} for module, file in files.items()}


def python_name(root: str, file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join((root, *(parts[:-1] if parts[-1] == "__init__" else parts)))


def imported(module: str, file: Path, files: dict[str, Path]) -> Iterator[str]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(file.read_text("utf-8"))
    for_types = {id(inner) for node in ast.walk(tree) if is_for_types(node) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                if inner in files or base in files:
                    yield inner if inner in files else base


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def cycles(uses: Uses) -> list[list[str]]:
    """The groups of modules each of which reaches all others of its group, sorted, without groups of one."""

    @cache
    def reached(module: str) -> frozenset[str]:
        seen: set[str] = set()
        ahead = [module]
        while ahead:
            for used in uses.get(ahead.pop(), ()):
                if used not in seen:
                    seen.add(used)
                    ahead.append(used)
        return frozenset(seen)

    groups: set[tuple[str, ...]] = set()
    for module in uses:
        if module in reached(module):
            groups.add(tuple(sorted(other for other in reached(module) if module in reached(other))))
    return [list(group) for group in sorted(groups)]


def edges_inside(uses: Uses, group: Iterable[str]) -> Iterator[str]:
    """The uses that hold a cycle together, one a line."""
    members = set(group)
    for module in sorted(members):
        for used in sorted(uses[module] & members):
            yield f"{module} -> {used}"


if __name__ == "__main__":
    for tree in map(Path, sys.argv[1:]):
        found = python_uses(tree) if (tree / "__init__.py").exists() else rust_uses(tree)
        for group in cycles(found):
            print(f"{tree}: {len(group)} modules: {', '.join(group)}")
            print("\n".join(f"  {edge}" for edge in edges_inside(found, group)))
