"""What MkDocs does not do by itself: pages of files that are elsewhere, the reference of Python, llms.txt.

The documents are written for a reader of the repository. For the site, README.md and its neighbours become
pages, links to other files lead to the repository, and each public name of the package is on a page of the
reference.
"""

from __future__ import annotations

import inspect
import pkgutil
import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
PAGES = {"README.md": "index.md"} | {
    f"{name}.md": f"{name}.md" for name in ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")
}
LINK = re.compile(r"(\]\()([^)\s#]*)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")
# A word after the language of a block is for tests.
WORD = re.compile(r"^(```[a-z]+) [a-z, -]+$", re.MULTILINE)
# Pages of the reference by where a name is defined; a public module has a page of its own.
AREAS = {"_connectors": "connectors", "_stores": "stores", "_errors": "errors", "service": "service"}
STORES = ("JournalCursor", "JournalReader", "JournalRecord", "OpenItem")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are made."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    for page, names in reference().items():
        module = names[0] if names[0] == f"millstream.{page}" else ""
        text = f"# {module or page.capitalize()}\n\n" + "\n".join(
            f"::: {name}\n" + ("    options: {show_root_heading: false}\n" if name == module else "")
            for name in names
        )
        files.append(File.generated(config, f"reference/{page}.md", content=text))
    return files


def reference() -> dict[str, list[str]]:
    """The public names of the package by page."""
    package = griffe.load("millstream", search_paths=[str(ROOT / "python")])
    pages: dict[str, list[str]] = {}
    for name, member in sorted(package.members.items()):
        if name.startswith("_") or name in ("TYPE_CHECKING", "errors", "market_spread", "pytest_plugin"):
            continue
        path = (member.target_path if member.is_alias else member.path).split(".")
        if path == ["millstream", name]:
            pages.setdefault(name, []).insert(0, f"millstream.{name}")
        else:
            area = "stores" if name in STORES else AREAS.get(path[1], "flows")
            pages.setdefault(area, []).append(f"millstream.{name}")
    return pages


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links to what has no page lead to the repository."""
    here = {target: source for source, target in PAGES.items()}.get(page.file.src_uri)
    source = here or f"docs/{page.file.src_uri}"

    def target(link: re.Match[str]) -> str:
        before, path, after = link.groups()
        if not path or re.match(r"[a-z]+:", path):
            return link[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        found = PAGES.get(file) or file.removeprefix("docs/")
        if not files.get_file_from_path(found):
            kind = "tree" if (ROOT / file).is_dir() else "blob"
            return f"{before}{config.extra['repository']}/{kind}/main/{file}{after}"
        return before + posixpath.relpath(found, posixpath.dirname(page.file.src_uri) or ".") + after

    parts = FENCE.split(markdown)
    return "".join(
        WORD.sub(r"\1", part) if part.startswith("```") else LINK.sub(target, part) for part in parts
    )


class Docstrings(griffe.Extension):
    """Reads the docstrings as those of Google's style: `Example:` has programs, and roles are names."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called with each object of the package."""
        if isinstance(obj, griffe.Function):
            show_options(obj)
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r":(?:func|class|meth|mod|attr|exc):(?=`)", "", text)


def show_options(function: griffe.Function) -> None:
    """Shows the options that a decorator gives to a function, as the function itself shows them."""
    names = [str(decorator.value).partition("(")[0] for decorator in function.decorators]
    if function.docstring is None or not {"takes", "with_outbox"} & {*names}:
        return
    real = pkgutil.resolve_name(function.path)
    function.docstring.value = inspect.getdoc(real) or ""
    function.parameters = griffe.Parameters(
        *(
            griffe.Parameter(
                each.name,
                annotation=None if each.annotation is each.empty else each.annotation,
                kind=griffe.ParameterKind(each.kind.description),
                default=None if each.default is each.empty else repr(each.default),
            )
            for each in inspect.signature(real).parameters.values()
        )
    )


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> None:
    """Writes llms.txt, by which programs find the documents, when all pages have been read."""
    if not page.is_homepage:
        return
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    section = None
    for one in nav.pages:
        top = one.ancestors[-1] if one.ancestors else None
        if top is not section:
            lines += ["", f"## {top.title}", ""]
            section = top
        first = re.search(r"^[A-Z][^\n]*(?:\n[^\n]+)*", (one.markdown or "").partition("\n")[2], re.MULTILINE)
        about = LINK_TEXT.sub(r"\1", " ".join(first[0].split())).split(". ")[0] if first else ""
        lines.append(f"- [{one.title}]({one.canonical_url}): {about}".removesuffix(": "))
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", "utf-8")
