"""Finds words in prose that the project's style replaces, and says what to write.

Prose is Markdown outside of code, and the comments and docstrings of Rust and Python. A rule is one pattern,
which may run over the end of a line. What a rule must find and must not find is in `test_prose.py`.

To check the tree: `python tests/prose.py`; for other paths: `python tests/prose.py crates/millstream-queue`.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rust_text import OPAQUE, block_comment_end

ROOT = Path(__file__).parent.parent

# The files and directories that are checked: the whole project.
CHECKED = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "crates",
    "docs",
    "examples",
    "fuzz",
    "python",
    "tests",
]

# Uses of these words in their plain sense.
ALLOWED = [
    "behind a proxy",
    "behind its leader",
    "bytes behind",
    "how far behind",
    "records behind",
    "seconds behind",
    "disk that lies",
    "disks that lie",
    # People.
    "anyone who",
    "operator who",
    "people who",
    "person who",
    "users who",
]


class Rule(NamedTuple):
    """A pattern of words, and what to write instead; a blank stands for any white space."""

    words: str
    instead: str


RULES = [
    Rule("behind", "after"),
    Rule("in front of", "before"),
    Rule("who|whom|whose turn|whoever|whomever", "a name of the program: the reader, the process that"),
    Rule("nobody|somebody|everybody|anybody", "no process, another process, all processes"),
    Rule("told|is told of", "is notified of, returns, reports"),
    Rule("hears? of|heard of", "learns of, is notified of"),
    Rule("tells? of", "reports, names"),
    Rule("what (?:lies|stands)|lies|lay", "is; the records, the contents"),
    Rule("takes? back|took back|taken back|goes back to|go back to", "rolls back to"),
    Rule("cuts? off|cutting off", "truncates; of a network: disconnects"),
    Rule("comes? right|came right", "is complete"),
    Rule("(?:goes|go|went|gone|going) on (?:from|where|as if|after|with|at)", "resumes from, continues"),
    Rule("how far (?:it|they|each|the)", "its position, its progress"),
    Rule("gives? up on|gave up on", "abandons"),
    Rule("(?:hands?|handed|handing) (?:over|out|in|on|back)", "passes, returns"),
    Rule("(?:is|are|was|were) to be|to be had", "must be; available"),
    Rule("passed over|passes over|pass over", "skipped"),
    Rule("looks? away|(?:stays?|stayed|staying|kept|keeps?) awake", "backs off; spins"),
    Rule("(?:makes?|made|is|are|was|were) void", "superseded"),
    Rule("for as long as (?:it is|they are) (?:needed|wanted)", "retained until"),
    Rule("the outside|the outside world", "external systems"),
    Rule("(?:good|bad|calm|quiet|busy) hours?", "a number of runs and their range"),
    Rule("(?:what )?(?:came|comes|come) of it", "the result"),
    Rule("strangers?", "arbitrary bytes; an unknown client"),
    Rule("as (?:it|they) stands?", "verbatim, unchanged"),
    Rule("(?:is|are|was|were) said|what [^.,;:]{1,30} said", "is reported; the error, the content"),
    Rule("(?:gives?|gave|giving) back", "releases, frees, returns"),
    Rule("for want of|be it in|in good order", "without; also in; cleanly"),
]


def compiled(words: str) -> re.Pattern[str]:
    """A blank is white space with at most one line end, so that a rule does not join two comments."""
    gap = r"[ \t]*(?:\n|[ \t])[ \t]*"
    return re.compile(rf"(?<![\w'-])(?:{words})(?![\w-])".replace(" ", gap), re.IGNORECASE)


PATTERNS = [(compiled(rule.words), rule) for rule in RULES]
GENTLE = re.compile("|".join(rf"\b{re.escape(words)}\b" for words in ALLOWED), re.IGNORECASE)
FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+(?:\n[^`\n]+)?`|\]\([^)\s]*\)|<[^>\s]+>|https?://\S+")


def blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def markdown(text: str) -> str:
    """The text with code, links and addresses taken out; every other character keeps its place."""
    text = FENCE.sub(lambda found: blank(found[0]), text)
    return CODE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), text)


def rust(text: str) -> str:
    """The comments of Rust, without their slashes."""
    kept: list[str] = []
    at = 0
    while begin := OPAQUE.search(text, at):
        comment = begin[0].startswith(("//", "/*"))
        end = block_comment_end(text, begin.end()) if begin[0] == "/*" else begin.end()
        kept += blank(text[at : begin.start()]), (text if comment else blank(text))[begin.start() : end]
        at = end
    comments = "".join(kept) + blank(text[at:])
    return markdown(re.sub(r"//[/!]?|/\*+!?|\*/", lambda found: " " * len(found[0]), comments))


def python(text: str) -> str:
    """The comments and docstrings of Python."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    spans = [
        (starts[token.start[0] - 1] + token.start[1] + 1, starts[token.end[0] - 1] + token.end[1])
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                body = node.body[0]
                spans.append((starts[body.lineno - 1], starts[body.end_lineno or body.lineno]))
    kept = list(blank(text))
    for start, end in spans:
        kept[start:end] = text[start:end]
    return markdown("".join(kept))


PROSE: dict[str, Callable[[str], str]] = {".md": markdown, ".rs": rust, ".py": python, ".pyi": python}


def faults(path: str, text: str) -> Iterator[str]:
    """A line `file:line: "words": say "..."` for each use of words that a rule replaces."""
    prose = GENTLE.sub(lambda found: re.sub(r"\S", "_", found[0]), PROSE[Path(path).suffix](text))
    found = [(use.start(), use[0], rule) for pattern, rule in PATTERNS for use in pattern.finditer(prose)]
    for start, words, rule in sorted(found):
        line = prose.count("\n", 0, start) + 1
        yield f'{path}:{line}: "{" ".join(words.split())}": say "{rule.instead}"'


def files(under: list[str]) -> Iterator[str]:
    """The files with prose at and below some paths; hidden ones and `target` are left out."""
    for path in under:
        top = ROOT / path
        for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inside = file.relative_to(ROOT)
            if file.suffix in PROSE and file.is_file() and not re.search(r"(^|/)(\.|target/)", str(inside)):
                yield str(inside)


def main(under: list[str]) -> int:
    checked = list(files(under))
    found = [line for path in checked for line in faults(path, (ROOT / path).read_text("utf-8"))]
    print(*found, f"{len(checked)} files, {len(found)} words to replace", sep="\n")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or CHECKED))
