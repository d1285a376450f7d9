"""Reading Rust as text: where comments, strings and characters begin, and where functions begin and end."""

import re
from collections.abc import Iterator

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


def rust_functions(rust: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and number of lines of each function that has a body, nested ones too."""
    code = code_only(rust)
    for head in re.finditer(r"\bfn\s+(?:r#)?(\$?\w+)", code):
        if end := body_end(code, head.end()):
            yield head[1], code.count("\n", 0, head.start()) + 1, code.count("\n", head.start(), end) + 1


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
