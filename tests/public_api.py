"""The public API of the published crates as text, one item a line: ``crates/CRATE/api.txt``.

``make lint`` lets rustdoc write its JSON in the place of doctests (``tests/rustdoc-json``); this makes the
text from it.

    python tests/public_api.py target/doc          compares; exits 1 and prints the difference
    python tests/public_api.py target/doc --write  renews the files

A line has the kind of the item, its path and its signature, with types as the source spells them; that of
a variant has its fields. A re-export of an item that has another public path, or is of another crate, is
``use PATH = TARGET``. Derived traits are on one line for each type, other impls on one line each. Of the auto
traits, only a missing ``Send`` or ``Sync`` is listed. The features of the crate come first.
"""

import difflib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
Json = dict[str, Any]

FORMATS = range(54, 61)
"""The versions of rustdoc's JSON that this was read from."""


def published(root: Path = ROOT) -> dict[str, Json]:
    """The manifests of the library crates that are published, by name."""
    manifests = [tomllib.loads(path.read_text("utf-8")) for path in sorted(root.glob("crates/*/Cargo.toml"))]
    return {one["package"]["name"]: one for one in manifests if one["package"].get("publish", True)}


def features(manifest: Json) -> str:
    """The features of a crate, one a line."""
    lines = (
        f"feature {name} = [{', '.join(sorted(turns_on))}]\n"
        for name, turns_on in sorted(manifest.get("features", {}).items())
    )
    return "".join(lines)


def items(params: Iterable[str], ends: str = "<>") -> str:
    text = ", ".join(params)
    return f"{ends[0]}{text}{ends[1]}" if text else ""


class Types:
    """Types, bounds and generics as Rust text."""

    def type(self, type: Json | None) -> str:
        if type is None or type == "infer":
            return "_"
        ((kind, of),) = type.items()
        made: str = getattr(self, "type_" + kind)(of)
        return made

    def type_primitive(self, of: str) -> str:
        return "!" if of == "never" else of

    def type_generic(self, of: str) -> str:
        return of

    def type_resolved_path(self, of: Json) -> str:
        path = str(of["path"])
        return (path.rpartition("::")[2] if path.startswith("crate::") else path) + self.args(of["args"])

    def type_tuple(self, of: list[Json]) -> str:
        return "(" + ", ".join(map(self.type, of)) + ("," if len(of) == 1 else "") + ")"

    def type_slice(self, of: Json) -> str:
        return f"[{self.type(of)}]"

    def type_array(self, of: Json) -> str:
        return f"[{self.type(of['type'])}; {of['len']}]"

    def type_borrowed_ref(self, of: Json) -> str:
        lifetime = f"{of['lifetime']} " if of["lifetime"] else ""
        return f"&{lifetime}{'mut ' if of['is_mutable'] else ''}{self.type(of['type'])}"

    def type_raw_pointer(self, of: Json) -> str:
        return f"*{'mut' if of['is_mutable'] else 'const'} {self.type(of['type'])}"

    def type_impl_trait(self, of: list[Json]) -> str:
        return "impl " + self.bounds(of)

    def type_dyn_trait(self, of: Json) -> str:
        traits = [self.poly(one) for one in of["traits"]]
        return "dyn " + " + ".join([*traits, *([of["lifetime"]] if of["lifetime"] else [])])

    def type_function_pointer(self, of: Json) -> str:
        header = self.header(of["header"])
        return f"{self.for_all(of['generic_params'])}{header}fn{self.signature(of['sig'], named=False)}"

    def type_qualified_path(self, of: Json) -> str:
        trait = of["trait"]
        of_trait = f" as {trait['path']}{self.args(trait['args'])}" if trait and trait["path"] else ""
        own = self.type(of["self_type"])
        return (f"<{own}{of_trait}>" if of_trait else own) + f"::{of['name']}{self.args(of['args'])}"

    def type_pat(self, of: Json) -> str:
        return self.type(of["type"])

    def args(self, args: Json | None) -> str:
        if not args:
            return ""
        if "parenthesized" in args:
            call = args["parenthesized"]
            output = f" -> {self.type(call['output'])}" if call["output"] else ""
            return "(" + ", ".join(map(self.type, call["inputs"])) + ")" + output
        if "angle_bracketed" not in args:
            return "(..)"
        given = args["angle_bracketed"]
        return items([*map(self.arg, given["args"]), *map(self.constraint, given["constraints"])])

    def arg(self, arg: Json | str) -> str:
        if isinstance(arg, str):
            return "_"
        ((kind, of),) = arg.items()
        return {"lifetime": str, "type": self.type, "const": lambda of: str(of["expr"])}[kind](of)

    def constraint(self, of: Json) -> str:
        ((kind, binding),) = of["binding"].items()
        name = of["name"] + self.args(of["args"])
        if kind == "constraint":
            return f"{name}: {self.bounds(binding)}"
        ((_, term),) = binding.items()
        return f"{name} = {self.type(term) if 'expr' not in term else term['expr']}"

    def for_all(self, params: list[Json]) -> str:
        names = items(param["name"] for param in params)
        return f"for{names} " if names else ""

    def poly(self, of: Json) -> str:
        return f"{self.for_all(of['generic_params'])}{of['trait']['path']}{self.args(of['trait']['args'])}"

    def bound(self, of: Json) -> str:
        ((kind, bound),) = of.items()
        if kind == "trait_bound":
            return {"maybe": "?"}.get(bound["modifier"], "") + self.poly(bound)
        return (
            str(bound) if kind == "outlives" else f"use<{', '.join(next(iter(a.values())) for a in bound)}>"
        )

    def bounds(self, of: list[Json]) -> str:
        return " + ".join(map(self.bound, of))

    def generics(self, of: Json) -> str:
        return items(filter(None, map(self.param, of["params"])))

    def param(self, param: Json) -> str:
        ((kind, of),) = param["kind"].items()
        name = str(param["name"])
        if kind == "lifetime":
            return name + (": " + " + ".join(of["outlives"]) if of["outlives"] else "")
        if kind == "const":
            return f"const {name}: {self.type(of['type'])}"
        if of["is_synthetic"]:
            return ""
        default = f" = {self.type(of['default'])}" if of["default"] else ""
        return name + (f": {self.bounds(of['bounds'])}" if of["bounds"] else "") + default

    def where(self, of: Json) -> str:
        predicates = ", ".join(map(self.predicate, of["where_predicates"]))
        return f" where {predicates}" if predicates else ""

    def predicate(self, predicate: Json) -> str:
        ((kind, of),) = predicate.items()
        if kind == "bound_predicate":
            return f"{self.for_all(of['generic_params'])}{self.type(of['type'])}: {self.bounds(of['bounds'])}"
        if kind == "lifetime_predicate":
            return f"{of['lifetime']}: {' + '.join(of['outlives'])}"
        return f"{self.type(of['lhs'])} = {of['rhs']}"

    def header(self, of: Json) -> str:
        words = [word for word in ("const", "async", "unsafe") if of["is_" + word]]
        abi = of["abi"] if isinstance(of["abi"], str) else next(iter(of["abi"]))
        words += [] if abi == "Rust" else [f'extern "{abi}"']
        return "".join(word + " " for word in words)

    def signature(self, sig: Json, named: bool = True) -> str:
        inputs = [self.input(name, type, named) for name, type in sig["inputs"]]
        output = f" -> {self.type(sig['output'])}" if sig["output"] else ""
        return f"({', '.join(inputs)}){output}"

    def input(self, name: str, type: Json, named: bool) -> str:
        text = self.type(type)
        if name == "self":
            short = {"Self": "self", "&Self": "&self", "&mut Self": "&mut self"}
            return short.get(text, f"self: {text}")
        return f"{name}: {text}" if named and name not in ("", "_") else text


class Crate(Types):
    """The public items of a crate, from its JSON."""

    def __init__(self, doc: Json) -> None:
        self.index: Json = doc["index"]
        self.root = self.index[str(doc["root"])]
        self.paths: dict[int, str] = {}
        self.lines: set[str] = set()
        self.uses: list[tuple[str, Json]] = []
        self.only = ""
        self.module(self.root, self.root["name"])
        while self.uses:
            self.use(*self.uses.pop(0))
        for item in self.index.values():
            if item["crate_id"] == 0 and "impl" in item["inner"]:
                self.impl(item["inner"]["impl"], item)
        self.lines.update(self.derives())

    def text(self) -> str:
        return "".join(line + "\n" for line in sorted(self.lines, key=lambda line: line.split(" ", 1)[::-1]))

    def add(self, kind: str, item: Json, rest: str) -> None:
        plain = [attr if isinstance(attr, str) else next(iter(attr.values())) for attr in item["attrs"]]
        non_exhaustive = "  [non_exhaustive]" if "non_exhaustive" in plain else ""
        self.lines.add(f"{kind} {rest}{non_exhaustive}{self.only}")

    def item(self, item: Json, path: str) -> None:
        """An item at a path that users can name."""
        ((kind, of),) = item["inner"].items()
        self.paths.setdefault(item["id"], path)
        known = getattr(self, kind, None)
        if known:
            known(item, path)
        else:
            self.add(kind, item, path)

    def module(self, item: Json, path: str) -> None:
        self.add("mod", item, path)
        for id in item["inner"]["module"]["items"]:
            inner = self.index.get(str(id))
            if inner is None or "impl" in inner["inner"]:
                continue
            if "use" in inner["inner"]:
                self.uses.append((path, inner))
            elif inner["visibility"] == "public" or "macro" in inner["inner"]:
                self.item(inner, f"{path}::{inner['name']}")

    def use(self, path: str, item: Json) -> None:
        of = item["inner"]["use"]
        target = self.index.get(str(of["id"]))
        if of["is_glob"] and target is not None and "module" in target["inner"]:
            for id in target["inner"]["module"]["items"]:
                inner = self.index.get(str(id))
                if inner is not None and "impl" not in inner["inner"]:
                    self.add_name(inner, f"{path}::{inner['name']}", f"{of['source']}::{inner['name']}")
            return
        name = f"{path}::{'*' if of['is_glob'] else of['name']}"
        if target is None or of["is_glob"]:
            self.lines.add(f"use {name} = {of['source']}")
        else:
            self.add_name(target, name, of["source"])

    def add_name(self, target: Json, name: str, source: str) -> None:
        """A name for an item: the item itself, unless users can name it otherwise."""
        if "use" in target["inner"]:
            self.use(name.rpartition("::")[0], target)
        elif target["id"] in self.paths:
            self.lines.add(f"use {name} = {self.paths[target['id']]}")
        elif target["crate_id"] != 0:
            self.lines.add(f"use {name} = {source}")
        else:
            self.item(target, name)

    def members(self, ids: list[int | None], path: str) -> None:
        for id in ids:
            if (inner := self.index.get(str(id))) is not None:
                self.item(inner, f"{path}::{inner['name']}")

    def struct(self, item: Json, path: str) -> None:
        of = item["inner"]["struct"]
        kind, generics = of["kind"], self.generics(of["generics"])
        shape = ""
        if isinstance(kind, dict) and "tuple" in kind:
            fields = [self.index.get(str(id)) for id in kind["tuple"]]
            types = [self.type(field["inner"]["struct_field"]) if field else "_" for field in fields]
            shape = "(" + ", ".join(types) + ")"
        self.add("struct", item, path + generics + shape + self.where(of["generics"]))
        if isinstance(kind, dict) and "plain" in kind:
            if not kind["plain"]["has_stripped_fields"] and kind["plain"]["fields"]:
                self.lines.add(f"struct {path} has public fields only")
            self.members(kind["plain"]["fields"], path)

    def struct_field(self, item: Json, path: str) -> None:
        self.add("field", item, f"{path}: {self.type(item['inner']['struct_field'])}")

    def enum(self, item: Json, path: str) -> None:
        of = item["inner"]["enum"]
        self.add("enum", item, path + self.generics(of["generics"]) + self.where(of["generics"]))
        self.members(of["variants"], path)

    def variant(self, item: Json, path: str) -> None:
        kind = item["inner"]["variant"]["kind"]
        shape = ""
        if isinstance(kind, dict) and "tuple" in kind:
            fields = [self.index.get(str(id)) for id in kind["tuple"]]
            types = [self.type(field["inner"]["struct_field"]) if field else "_" for field in fields]
            shape = "(" + ", ".join(types) + ")"
        elif isinstance(kind, dict) and "struct" in kind:
            fields = [self.index[str(id)] for id in kind["struct"]["fields"] if str(id) in self.index]
            texts = (f"{field['name']}: {self.type(field['inner']['struct_field'])}" for field in fields)
            shape = f" {{ {', '.join(texts)} }}"
        self.add("variant", item, path + shape)

    def function(self, item: Json, path: str) -> None:
        of = item["inner"]["function"]
        text = f"{self.generics(of['generics'])}{self.signature(of['sig'])}{self.where(of['generics'])}"
        header = self.header(of["header"]).strip()
        self.add("fn", item, f"{path}{text}{'  [' + header + ']' if header else ''}")

    def trait(self, item: Json, path: str) -> None:
        of = item["inner"]["trait"]
        bounds = f": {self.bounds(of['bounds'])}" if of["bounds"] else ""
        self.add("trait", item, path + self.generics(of["generics"]) + bounds + self.where(of["generics"]))
        for id in of["items"]:
            if (inner := self.index.get(str(id))) is not None:
                before = set(self.lines)
                self.item(inner, f"{path}::{inner['name']}")
                if "function" in inner["inner"] and inner["inner"]["function"]["has_body"]:
                    (line,) = self.lines - before
                    self.lines ^= {line, line + "  [provided]"}

    def type_alias(self, item: Json, path: str) -> None:
        of = item["inner"]["type_alias"]
        self.add("type", item, f"{path}{self.generics(of['generics'])} = {self.type(of['type'])}")

    def assoc_type(self, item: Json, path: str) -> None:
        of = item["inner"]["assoc_type"]
        bounds = f": {self.bounds(of['bounds'])}" if of["bounds"] else ""
        equals = f" = {self.type(of['type'])}" if of["type"] else ""
        self.add("type", item, path + self.generics(of["generics"]) + bounds + equals)

    def assoc_const(self, item: Json, path: str) -> None:
        self.add("const", item, f"{path}: {self.type(item['inner']['assoc_const']['type'])}")

    def constant(self, item: Json, path: str) -> None:
        of = item["inner"]["constant"]
        self.add("const", item, f"{path}: {self.type(of['type'])} = {of['const']['expr']}")

    def static(self, item: Json, path: str) -> None:
        self.add("static", item, f"{path}: {self.type(item['inner']['static']['type'])}")

    def proc_macro(self, item: Json, path: str) -> None:
        of = item["inner"]["proc_macro"]
        helpers = f"  [helpers: {', '.join(of['helpers'])}]" if of["helpers"] else ""
        self.add(f"macro({of['kind']})", item, path + helpers)

    def impl(self, of: Json, item: Json) -> None:
        named = of["for"].get("resolved_path", {}).get("id") if isinstance(of["for"], dict) else None
        path = self.paths.get(named) if named is not None else None
        if of["trait"] is None:
            self.only = self.conditions(of)
            for inner in (self.index.get(str(id)) for id in of["items"] if path):
                if inner is not None and inner["visibility"] == "public":
                    self.item(inner, f"{path}::{inner['name']}")
            self.only = ""
            return
        trait = of["trait"]["path"]
        if of["is_synthetic"]:
            if of["is_negative"] and trait in ("Send", "Sync") and path:
                self.lines.add(f"impl !{trait} for {path}")
        elif of["blanket_impl"] is None and "automatically_derived" not in item["attrs"]:
            text = f"{trait}{self.args(of['trait']['args'])} for {self.type(of['for'])}"
            self.lines.add(f"impl{self.generics(of['generics'])} {text}{self.where(of['generics'])}")

    def conditions(self, of: Json) -> str:
        """Which types of an impl have its functions, where not all have."""
        args = self.type(of["for"]).partition("<")[2]
        params = {param["name"] for param in of["generics"]["params"]}
        bounds = [next(iter(param["kind"].values())).get("bounds") for param in of["generics"]["params"]]
        if (
            not any(bounds)
            and not of["generics"]["where_predicates"]
            and not set(args[:-1].split(", ")) - params - {"", "'_"}
        ):
            return ""
        return f"  [impl{self.generics(of['generics'])} {self.type(of['for'])}{self.where(of['generics'])}]"

    def derives(self) -> Iterator[str]:
        derived: dict[str, list[str]] = {}
        for item in self.index.values():
            of = item["inner"].get("impl")
            if of and of["trait"] and "automatically_derived" in item["attrs"]:
                id = of["for"].get("resolved_path", {}).get("id")
                if id in self.paths and of["trait"]["path"] != "StructuralPartialEq":
                    derived.setdefault(self.paths[id], []).append(of["trait"]["path"].rpartition("::")[2])
        for path, traits in derived.items():
            yield f"derive {path}: {', '.join(sorted(traits))}"


def snapshot(path: Path) -> str:
    """The text of a crate, given its JSON."""
    doc = json.loads(path.read_text("utf-8"))
    if doc["format_version"] not in FORMATS:
        known = f"{FORMATS[0]} to {FORMATS[-1]}"
        sys.exit(f"{path}: rustdoc writes format {doc['format_version']}, tests/public_api.py reads {known}")
    return Crate(doc).text()


def main(docs: Path, write: bool) -> int:
    """Compares or renews the snapshots; returns the exit code."""
    changed = False
    for name, manifest in published().items():
        source, file = docs / (name.replace("-", "_") + ".json"), ROOT / "crates" / name / "api.txt"
        if not source.exists():
            print(f"{source} is missing: `cargo clean --doc`, then `make docs`", file=sys.stderr)
            return 1
        text = features(manifest) + snapshot(source)
        before = file.read_text("utf-8") if file.exists() else ""
        if text == before:
            continue
        if write:
            file.write_text(text, "utf-8")
            print(f"{file.relative_to(ROOT)}: {len(text.splitlines())} items")
            continue
        changed = True
        name = str(file.relative_to(ROOT))
        lines = difflib.unified_diff(
            before.splitlines(), text.splitlines(), name, "the sources", "", "", 0, ""
        )
        print("\n".join(lines))
    if changed:
        print(
            "The public API has changed. If that is meant, run `make api` and commit the files.",
            file=sys.stderr,
        )
    return int(changed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--write" in sys.argv[2:]))
